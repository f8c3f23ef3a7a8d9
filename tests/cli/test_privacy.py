from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collegium.cli import main

STUDY = """
name = "dp"
[data]
source = "breast_cancer"
public = 200
test = 100
[partition]
sites = 2
[algorithm]
name = "fedct"
rounds = 2
mechanism = {name = "randomized_response", epsilon = 0.05}
[[sites]]
learner = {name = "decision_tree", max_depth = 3}
budget = {epsilon = 50, delta = 1e-5, ledger = "{site}.db"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def collegium(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command; what it printed, or what it said was wrong."""

    def command(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["collegium", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.out + said.err
        return said.out if code == 0 else said.err

    return command


def test_explain_says_what_would_leave_and_spends_nothing(folder: Path, collegium) -> None:
    rows = json.loads(collegium("privacy", "explain", "study.toml", "--json"))["privacy"]
    assert [row["party"] for row in rows] == ["site0", "site1"]
    assert {row["kind"] for row in rows} == {"dp"}
    assert rows[0]["covers"] == "2 x HardLabels"
    said = collegium("privacy", "explain", "study.toml")
    assert "no budget was spent" in " ".join(said.split())
    assert not list(folder.glob("*.db"))


def test_explain_is_what_the_run_then_costs(folder: Path, collegium) -> None:
    planned = json.loads(collegium("privacy", "explain", "study.toml", "--json"))["privacy"]
    done = json.loads(collegium("run", "study.toml", "--out", "out", "--json").splitlines()[-1])
    assert done["privacy"] == planned


def test_explain_calls_unprotected_releases_unprotected(folder: Path, collegium) -> None:
    bare = STUDY.replace('mechanism = {name = "randomized_response", epsilon = 0.05}', "").replace("budget =", "#")
    (folder / "study.toml").write_text(bare)
    rows = json.loads(collegium("privacy", "explain", "study.toml", "--json"))["privacy"]
    assert {row["kind"] for row in rows} == {"unprotected"}
    assert rows[0]["epsilon"] is None
    assert "unprotected" in collegium("rehearse", "study.toml")


def test_the_budget_is_shown_with_what_is_left(folder: Path, collegium) -> None:
    collegium("run", "study.toml", "--out", "out", "--json")
    (row,) = json.loads(collegium("ledger", "budget", "site0.db", "--json"))
    assert row["site"] == "site0"
    assert row["budget"] == 50
    assert row["charges"] == 2
    assert row["left"] == pytest.approx(50 - row["spent epsilon"])
    assert 0 < row["spent epsilon"] < 50
    assert "site0" in collegium("ledger", "budget", "site0.db")
    tighter = json.loads(collegium("ledger", "budget", "site0.db", "--delta", "1e-9", "--json"))
    assert tighter[0]["spent epsilon"] > row["spent epsilon"]


def test_calibrate_gives_the_noise_for_a_total(folder: Path, collegium) -> None:
    arguments = [
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--rounds",
        "400",
        "--public-size",
        "1",
        "--classes",
        "2",
        "--json",
    ]
    found = json.loads(collegium("privacy", "calibrate", *arguments))
    assert found["epsilon_per_label"] == pytest.approx(0.01344007, rel=1e-5)
    assert found["total_epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert 0.5 < found["truth_kept"] < 0.51
    assert 0.5 < found["consensus_of_5_right"] < 0.51


@pytest.mark.parametrize("mechanism", ["randomized_response", "unary_encoding", "xor"])
def test_every_mechanism_for_labels_can_be_calibrated(collegium, mechanism: str) -> None:
    arguments = ["--epsilon", "2", "--public-size", "50", "--classes", "3", "--mechanism", mechanism]
    found = json.loads(collegium("privacy", "calibrate", *arguments, "--json"))
    assert found["total_epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert "a site's label kept" in collegium("privacy", "calibrate", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["privacy", "calibrate", "--epsilon", "0"], "epsilon"),
        (["privacy", "calibrate", "--epsilon", "1", "--delta", "1"], "delta"),
        (["privacy", "calibrate", "--epsilon", "1", "--rounds", "0"], "--rounds must be at least 1"),
        (["privacy", "calibrate", "--epsilon", "1", "--mechanism", "randomised"], "Did you mean 'randomized_response'"),
        (["privacy", "calibrate", "--epsilon", "1", "--mechanism", "gaussian"], "not for labels"),
        (["privacy", "explain", "none.toml"], "no study file"),
        (["ledger", "budget", "none.db"], "no ledger"),
        (["run", "study.toml", "--set", "algorithm.mechanism.epsilon=-1"], "epsilon"),
        (["run", "study.toml", "--set", "algorithm.mechanism.name=laplace"], "Laplace is for Numbers"),
        (["run", "study.toml", "--set", "sites.0.budget.epsilon=0.001"], "smaller than one round costs"),
        (["run", "study.toml", "--set", "sites.0.budget.delta=2"], "sites[0].budget.delta"),
    ],
)
def test_a_mistake_ends_with_one_line(folder: Path, collegium, arguments: list[str], said: str) -> None:
    code = 1 if said == "no ledger" else 2
    error = collegium(*arguments, code=code)
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not list(folder.glob("*.db"))


def test_explain_names_the_real_learner_that_is_not_private(folder: Path, collegium) -> None:
    bare = STUDY.replace('mechanism = {name = "randomized_response", epsilon = 0.05}', "").replace("budget =", "#")
    (folder / "study.toml").write_text(bare + 'policy = {requires = "dp"}\n')
    error = collegium("privacy", "explain", "study.toml", code=2)
    assert "site0" in error
    assert "DecisionTreeClassifier" in error
