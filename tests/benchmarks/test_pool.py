"""Runs at a time: each on its own cores, what was found kept and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.machine import available_cores, in_words
from benchmarks.pool import Task, in_parallel, machines, undisturbed
from sklearn.tree import DecisionTreeClassifier

import collegium as cg


@pytest.mark.slow
def test_all_are_run_and_each_sees_no_more_than_its_cores() -> None:
    tasks = {str(n): Task(dict, ([("n", n)],)) for n in range(2)}
    tasks |= {"narrow": Task(seen, (), 1), "too wide": Task(seen, (), 999)}
    found = dict(in_parallel(tasks))
    assert {name: run.get("n") for name, run in found.items()} == {"0": 0, "1": 1, "narrow": None, "too wide": None}
    assert found["narrow"]["cores"] == 1
    assert found["too wide"]["cores"] == available_cores()
    assert {run["machine"] for run in found.values()} == {in_words()}


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"n": 7, "machine": "elsewhere"}))
    tasks = {"old": Task(fail, ()), "new": Task(dict, ([("n", 1)],))}
    found = dict(in_parallel(tasks, jobs=1, keep=str(tmp_path)))
    assert (found["old"]["n"], found["new"]["n"]) == (7, 1)
    assert json.loads((tmp_path / "new.json").read_text()) == found["new"]
    assert "elsewhere" in machines(found.values())


def test_nothing_is_measured_where_nothing_shall_be(tmp_path: Path) -> None:
    assert dict(in_parallel({"new": Task(fail, ())}, keep=str(tmp_path), measure=False)) == {}


def test_one_that_fails_says_so_when_the_others_are_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {"bad": Task(fail, ()), "good": Task(dict, ([("n", 1)],))}
    with pytest.raises(ZeroDivisionError):
        dict(in_parallel(tasks, jobs=1, keep=str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["good.json"]
    assert "bad failed" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::collegium.CollegiumWarning")
def test_a_run_in_which_a_site_failed_measured_nothing() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    parts = np.split(np.arange(60), 3)
    learners = [Breaks() if i == 1 else DecisionTreeClassifier() for i in range(3)]
    sites = [cg.Site(f"site{i}", X[own], y[own], learner=learners[i]) for i, own in enumerate(parts)]
    whole = cg.run(cg.FedCT(rounds=1), sites=[sites[0], sites[2]], public=X, seed=0)
    assert undisturbed(whole) is whole
    with pytest.raises(RuntimeError, match="site1"):
        undisturbed(cg.run(cg.FedCT(rounds=1), sites=sites, public=X, seed=0))


class Breaks(DecisionTreeClassifier):  # type: ignore[misc]
    """A learner that fails."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Breaks:
        raise MemoryError


def seen() -> dict[str, int]:
    return {"cores": available_cores()}


def fail() -> dict[str, int]:
    return {"n": 1 // 0}
