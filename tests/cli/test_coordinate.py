"""`collegium coordinate` and `federation demo`: what people do wrong before anything runs."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import collegium
from tests.flare.offices import OfficeHost, write_data, write_site

from collegium.cli.coordinate import _kits, federation_demo
from collegium.cli.coordinate import coordinate as coordinate_study
from collegium.errors import ConfigError

STUDY = """
name = "test"
[data]
source = "public.csv"
[algorithm]
name = "fedct"
[federation]
classes = ["a", "b"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def coordinate(study: Path, kits: Path | None = None, server: Path | None = None, lead: Path | None = None) -> None:
    out = study.parent / "out"
    coordinate_study(study, kits, server, lead, out=out)


def test_without_kits(study: Path) -> None:
    with pytest.raises(ConfigError, match="--kits FOLDER"):
        coordinate(study)
    assert not (study.parent / "out").exists()


def test_folders_that_are_no_kits(study: Path) -> None:
    with pytest.raises(ConfigError, match=r"Kit .* not found"):
        coordinate(study, server=study.parent / "none", lead=study.parent / "none")
    (study.parent / "empty").mkdir()
    with pytest.raises(ConfigError, match="kit"):
        coordinate(study, server=study.parent / "empty", lead=study.parent / "empty")


def test_one_of_several_leads_must_be_named(tmp_path: Path) -> None:
    for name in ("server", "a@x.org", "b@x.org"):
        (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=r"a@x.org, b@x.org"):
        _kits(tmp_path, None, None)
    assert _kits(tmp_path, None, tmp_path / "b@x.org") == (tmp_path / "server", tmp_path / "b@x.org")


def test_a_study_that_only_simulates(study: Path) -> None:
    study.write_text(STUDY.replace("fedct", "centralized"))
    from collegium.study.preparing import coordinators_part
    from collegium.study.study import Study

    with pytest.raises(ConfigError, match="can only be simulated"):
        coordinators_part(Study.from_toml(study), study.parent)


def test_a_study_of_a_federation_is_not_run_by_itself(study: Path) -> None:
    from collegium.study.study import Study

    with pytest.raises(ConfigError, match="collegium coordinate"):
        Study.from_toml(study).run()


def test_a_study_of_a_federation_can_be_rehearsed(study: Path) -> None:
    from collegium.study.rehearsal import rehearse
    from collegium.study.study import Study

    (study.parent / "public.csv").write_text("x,y\n" + "\n".join(f"{i},{i % 7}" for i in range(30)))
    run = rehearse(Study.from_toml(study), rounds=1, base=study.parent)
    assert set(run.releases["kind"]) == {"HardLabels"}


def test_a_rehearsal_says_that_scores_would_leave(study: Path) -> None:
    (study.parent / "public.csv").write_text("x,y\n" + "\n".join(f"{i},{i % 7}" for i in range(30)))
    assert "Scores (scores.score)" in collegium("rehearse", str(study), "--rounds", "1").stdout
    silent = collegium("rehearse", str(study), "--rounds", "1", "--set", "federation.metrics=false").stdout
    assert "Scores" not in silent


def test_the_demo_does_not_overwrite_what_is_no_demo(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(ConfigError, match="not an earlier demo"):
        federation_demo(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "important"


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """The command sets it for its process, which is this one."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def federation(folder: Path, monkeypatch: pytest.MonkeyPatch, **policies: str) -> list[str]:
    """Sites with these policies, reached in process; returns the command that runs a study over them."""
    names = ("site-1", "site-2", "site-3")
    write_data(folder, names)
    for name in names:
        write_site(folder / name, name, policy=policies.get(name.replace("-", "_"), ""))
    host = OfficeHost({name: folder / name for name in names})
    monkeypatch.setattr("collegium.cli.coordinate._host", lambda server, lead: contextlib.nullcontext(host))
    settings = "rounds = 2\n[federation]\nat_least = 3\nwait = 0.2\npatience = 0.3\n"
    text = STUDY.replace("[federation]\n", settings).replace('"a", "b"', '"benign", "malignant"')
    (folder / "study.toml").write_text(text)
    return [
        "coordinate",
        str(folder / "study.toml"),
        "--server",
        str(folder / "server"),
        "--lead",
        "l",
        "--out",
        str(folder / "out"),
    ]


def test_a_study_that_all_sites_refuse_fails_and_says_what_each_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = 'algorithms = ["fedkt"]'
    command = federation(tmp_path, monkeypatch, site_1=denied, site_2=denied, site_3='unprotected = ["Scores"]')
    result = collegium(*command)
    assert result.returncode == 1
    for line in ("site-2: algorithm-denied. The site's policy does not allow this algorithm", "site-3: unprotected."):
        assert line in result.stderr
    assert "collegium site check KIT STUDY.toml" in result.stderr
    assert "--resume" in result.stderr


def test_a_study_that_no_site_has_budget_for_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poor = "[budget]\nepsilon = 0.001\n"
    command = federation(tmp_path, monkeypatch, site_1=poor, site_2=poor, site_3=poor)
    result = collegium(*command, "--set", 'algorithm.mechanism={ name = "randomized_response", epsilon = 1.0 }')
    assert result.returncode == 1, result.stderr
    assert "site-1: budget-exhausted. The site's privacy budget is spent" in result.stderr


def test_a_study_that_lost_a_site_says_so_in_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = federation(tmp_path, monkeypatch, site_3='algorithms = ["fedkt"]')
    result = collegium(*command, "--json")
    assert result.returncode == 4, result.stderr
    assert json.loads(result.stdout)["incomplete"] == {"site-3": {"algorithm-denied": 2}}
    assert json.loads((tmp_path / "out" / "run.json").read_text())["incomplete"] == {"site-3": {"algorithm-denied": 2}}
    assert "Incomplete: 1 of 3 sites" in result.stderr
    assert "failed or were missing" in (tmp_path / "out" / "report.html").read_text()


def test_a_site_that_keeps_its_score_to_itself_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = federation(tmp_path, monkeypatch, site_3='unprotected = ["HardLabels"]')
    result = collegium(*command, "--json")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["incomplete"] == {}
    assert {row["code"] for row in said["failures"]} == {"unprotected"}


def test_an_interrupted_coordinator_says_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(host: OfficeHost) -> dict[str, float]:
        raise KeyboardInterrupt

    command = federation(tmp_path, monkeypatch)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(OfficeHost, "seen", interrupt)
        result = collegium(*command)
    assert result.returncode == 130
    assert f"interrupted; to continue, add to the command: --out {tmp_path / 'out'} --resume" in result.stderr
    assert collegium(*command, "--resume").returncode == 0


def test_nobody_else_can_read_what_a_coordinator_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collegium(*federation(tmp_path, monkeypatch)).returncode == 0
    out = tmp_path / "out"
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    files = [file for file in out.rglob("*") if file.is_file()]
    assert {"record", "labels.npy", "releases.parquet", "report.html"} <= {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
