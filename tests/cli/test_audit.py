from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from tests.cli.commands import collegium

STUDY = """
name = "small"
[data]
source = "breast_cancer"
public = 100
test = 50
[partition]
sites = 3
[algorithm]
name = "fedct"
rounds = 1
[[sites]]
learner = {name = "decision_tree"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_a_study_is_attacked_and_the_report_of_its_run_shows_it(folder: Path) -> None:
    assert collegium("run", "study.toml", cwd=folder).returncode == 0
    done = collegium("audit", "study.toml", "--forged", "static", "--canaries", "60", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "epsilon, at least" in done.stdout
    assert "Nothing is claimed" in " ".join(done.stdout.split())
    assert collegium("report", "runs/small", cwd=folder).returncode == 0
    page = (folder / "runs" / "small" / "report.html").read_text()
    assert "An attacker who coordinates the run" in page
    assert sorted(file.suffix for file in (folder / "runs" / "small" / "audits").iterdir()) == [
        ".html",
        ".json",
        ".png",
    ]


def test_for_programs_there_is_json_with_a_schema(folder: Path) -> None:
    done = collegium("audit", "study.toml", "--view", "model", "--canaries", "40", "--json", cwd=folder)
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads(collegium("schema", "--audit").stdout))
    assert (found["view"], found["verdict"], found["canaries"]) == ("model", "no claim", 40)


def test_a_contradicted_claim_is_exit_code_3(folder: Path) -> None:
    boastful = (
        "from tests.auditing.games import Boastful as Claims\n\n\nclass Boastful(Claims):\n"
        "    def __init__(self, epsilon=0.1):\n        super().__init__(epsilon)\n"
    )
    (folder / "boastful.py").write_text(boastful)
    (folder / "study.toml").write_text(STUDY.replace('"decision_tree"', '"boastful:Boastful"'))
    done = collegium("audit", "study.toml", "--forged", "static", "--canaries", "70", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "the attack contradicts it" in " ".join(done.stdout.split())


def test_the_owner_may_ask_for_the_canaries_and_nothing_else_lists_them(folder: Path) -> None:
    done = collegium("audit", "study.toml", "--canaries", "40", "--show-canaries", "canaries.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    listed = (folder / "canaries.csv").read_text().splitlines()
    assert len(listed) == 41
    assert listed[0].endswith("its label,its kind,was there,score")
    assert (folder / "canaries.csv").stat().st_mode & 0o077 == 0
    first = listed[1].split(",")[0]
    written = list((folder / "audits" / "small").glob("*.[hj]*"))
    assert len(written) == 2
    assert all(first not in file.read_text() for file in written)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--forged", "maybe"], "--forged must be no, static or adaptive, got 'maybe'."),
        (["--kinds", "ordinary=x"], "--kinds must look like ordinary=7,mislabelled=1"),
        (["--view", "owner"], "view must be one of"),
        (["--site", "site9"], "there is no site 'site9'"),
        (["--attack", "lira"], "lira compares with shadow runs"),
    ],
)
def test_mistakes_end_with_one_line(folder: Path, options: list[str], said: str) -> None:
    done = collegium("audit", "study.toml", *options, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
