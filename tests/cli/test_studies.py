from __future__ import annotations

import io
import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.commands import collegium, program

import collegium as cg
from collegium.cli.studies import summary_table

pytestmark = pytest.mark.xdist_group("studies")  # its fixtures are made once

STUDY = Path(__file__).resolve().parents[2] / "studies" / "breast_cancer.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def done(folder):
    result = program("run", str(STUDY), "--out", "a", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return result


def test_run_ends_with_one_json_object(done, folder):
    said = json.loads(done.stdout)
    assert said["run"] == "a"
    assert set(said["accuracy"]) == {"mean", *(f"site{i}" for i in range(5))}
    assert said["bytes_up"] > 0
    assert said["seconds"] > 0
    run = cg.load(folder / "a")
    assert said["accuracy"]["mean"] == pytest.approx(run.summary().loc["mean", "accuracy"])
    assert (folder / "a" / "report.html").stat().st_size > 5000
    assert [row["site"] for row in said["verdict"]] == [f"site{i}" for i in range(5)]
    assert run.verdict["together"].mean() == pytest.approx(said["accuracy"]["mean"])
    assert said["concerns"] == run.concerns
    assert "Did it help?" in done.stderr


def test_nothing_is_overwritten_without_force(done, folder):
    again = collegium("run", str(STUDY), "--out", "a", cwd=folder)
    assert again.returncode == 2
    assert all(word in again.stderr for word in ("not empty", "--resume", "--force", "--out"))
    assert "=True" not in again.stderr  # a setting of Python's
    assert cg.load(folder / "a").finished
    forced = collegium("run", str(STUDY), "--out", "a", "--overwrite", "--json", cwd=folder)  # as in Python
    assert forced.returncode == 0, forced.stderr
    assert json.loads(forced.stdout)["accuracy"] == json.loads(done.stdout)["accuracy"]


def test_an_interrupted_run_says_how_to_continue(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, signal\nfrom sklearn.tree import DecisionTreeClassifier\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a job in the background ignores
        "class Interrupted(DecisionTreeClassifier):\n"
        "    def fit(self, X, y):\n        os.kill(os.getpid(), signal.SIGINT)\n        return super().fit(X, y)\n"
    )
    (tmp_path / "study.toml").write_text(STUDY.read_text().replace('"decision_tree"', '"mine:Interrupted"'))
    ended = program("run", "study.toml", "--out", "a", cwd=tmp_path)
    assert ended.returncode == 130
    assert "to continue, add to the command: --out a --resume" in ended.stderr


def test_the_first_study_needs_no_extra(folder, monkeypatch):
    for package in ("xgboost", "lightgbm", "imodels", "torch", "opacus", "cryptography", "nacl", "gmpy2", "tenseal"):
        monkeypatch.setitem(sys.modules, package, None)
    result = collegium("run", str(STUDY), "--out", "plain", "--set", "algorithm.rounds=1", cwd=folder)
    assert result.returncode == 0, result.stderr


def test_force_does_not_remove_what_is_no_run(folder):
    (folder / "thesis").mkdir()
    (folder / "thesis" / "text.txt").write_text("precious")
    result = collegium("run", str(STUDY), "--out", "thesis", "--force", cwd=folder)
    assert result.returncode == 2
    assert (folder / "thesis" / "text.txt").read_text() == "precious"


def test_resume_goes_on_or_starts(done, folder):
    result = collegium("run", str(STUDY), "--out", "a", "--resume", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["accuracy"] == json.loads(done.stdout)["accuracy"]


def test_without_a_folder_runs_are_numbered(folder):
    for expected in ("breast-cancer", "breast-cancer-2"):
        result = collegium("run", str(STUDY), "--set", "algorithm.rounds=1", "--json", cwd=folder)
        assert Path(json.loads(result.stdout)["run"]) == Path("runs") / expected


def test_cohort_device_and_precision_replace_those_of_the_study(folder):
    options = ["--cohort", "on", "--device", "cpu", "--precision", "bfloat16", "--set", "engine.cohort=off"]
    result = collegium("run", str(STUDY), "--out", "nets", "--set", "algorithm.rounds=1", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    words = " ".join(result.stdout.split())
    assert "Note: precision='bfloat16' changes nothing: no learner of this run has a precision." in words
    assert "0 of 5 sites were trained together; " in words
    run = cg.load(folder / "nets")
    assert run.about["cohort"]["mode"] == "on"
    assert 'precision = "bfloat16"' in run.study
    assert run.trained_together in (folder / "nets" / "report.html").read_text()
    wrong = collegium("run", str(STUDY), "--cohort", "sometimes", cwd=folder)
    assert wrong.returncode == 2
    assert "engine.cohort" in wrong.stderr


def test_rehearse_shows_orders_and_releases(folder):
    result = collegium("rehearse", str(STUDY), cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "fedct.label" in result.stdout
    assert "HardLabels" in result.stdout
    assert "unprotected" in result.stdout
    # The command's first name still works.
    said = json.loads(collegium("plan", str(STUDY), "--json", cwd=folder).stdout)
    assert {row["kind"] for row in said["releases"]} == {"HardLabels"}
    assert said["orders"]


def test_80_columns_show_accuracy_and_bytes(done, folder):
    console = Console(width=80, file=io.StringIO())
    console.print(summary_table(cg.load(folder / "a"), "a"))
    shown = console.file.getvalue()
    assert all(
        name in shown for name in ("accuracy", "sent", "failures", f"{cg.load(folder / 'a').accuracy.iloc[-1, 0]:.3f}")
    )


def test_report_and_compare(done, folder):
    result = collegium("report", "a", "--out", "again.html", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "again.html").read_text().startswith("<!doctype html>")
    other = collegium("run", str(STUDY), "--out", "b", "--set", "algorithm.rounds=2", "--json", cwd=folder)
    assert other.returncode == 0, other.stderr
    compared = collegium("compare", "a", "b", "--json", cwd=folder)
    assert set(json.loads(compared.stdout)) == {"a", "b"}
    assert (folder / "comparison.html").exists()
    again = collegium("compare", "a", "b", cwd=folder)
    assert again.returncode == 2
    narrow = collegium("compare", "a", "b", "--force", cwd=folder)
    assert narrow.returncode == 0
    assert max(map(len, narrow.stdout.splitlines())) < 80
    assert collegium("compare", "a", cwd=folder).returncode == 2


@pytest.mark.parametrize("what", ["algorithms", "learners", "consensus", "partitions", "data"])
def test_list(what, folder):
    rows = json.loads(collegium("list", what, "--json", cwd=folder).stdout)
    names = {row["name"] for row in rows}
    expected = {
        "algorithms": "fedct",
        "learners": "xgboost",
        "consensus": "dawid_skene",
        "partitions": "dirichlet",
        "data": "adult",
    }
    assert expected[what] in names


def test_list_alone_lists_everything(folder):
    tables = json.loads(collegium("list", "--json", cwd=folder).stdout)
    assert set(tables) == {"algorithms", "learners", "transformers", "consensus", "mechanisms", "partitions", "data"}
    assert "fedct" in {row["name"] for row in tables["algorithms"]}
    assert "Partitions" in collegium("list", cwd=folder).stdout


def test_version(folder):
    said = collegium("--version", cwd=folder)
    assert (said.returncode, said.stdout) == (0, f"collegium {metadata.version('collegium')}\n")


def test_schema_is_json(folder):
    assert "properties" in json.loads(collegium("schema", cwd=folder).stdout)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["run", "none.toml"], 2, "no study file"),
        (["run", str(STUDY), "--set", "algorithm.ruonds=3"], 2, "'rounds'"),
        (["run", str(STUDY), "--set", "data.source=missing.csv"], 2, "missing.csv"),
        (["run", str(STUDY), "--set", "data.source=adult", "--out", "x"], 2, "COLLEGIUM_DATA"),
        (["report", "nowhere"], 1, "no run"),
        (["list", "everything"], 2, "everything"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_mistakes_end_with_a_code_and_no_traceback(args, code, said, folder, monkeypatch):
    monkeypatch.setenv("COLLEGIUM_DATA", str(folder / "no data here"))
    result = collegium(*args, cwd=folder)
    assert result.returncode == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_where_an_error_came_from(folder):
    result = collegium("--debug", "run", "none.toml", cwd=folder)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_mistake_ends_the_program_with_its_code_and_one_line(folder):
    result = program("run", "none.toml", cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("collegium: ")
    assert len(result.stderr.strip().splitlines()) == 1
