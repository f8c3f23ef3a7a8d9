"""Runs at a time: each on its own cores, what was found kept and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.machine import available_cores, in_words
from benchmarks.pool import Task, in_parallel, machines


def test_all_are_run_and_each_sees_no_more_than_its_cores() -> None:
    tasks = {str(n): Task(dict, ([("n", n)],)) for n in range(3)} | {"cores": Task(seen, (), 1)}
    found = dict(in_parallel(tasks, jobs=2))
    assert {name: run.get("n") for name, run in found.items()} == {"0": 0, "1": 1, "2": 2, "cores": None}
    assert found["cores"]["cores"] == 1
    assert {run["machine"] for run in found.values()} == {in_words()}


def test_one_that_wants_more_cores_than_there_are_gets_all() -> None:
    [(_, found)] = in_parallel({"wide": Task(seen, (), 999)})
    assert found["cores"] == available_cores()


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"n": 7, "machine": "elsewhere"}))
    tasks = {"old": Task(fail, ()), "new": Task(dict, ([("n", 1)],))}
    found = dict(in_parallel(tasks, jobs=1, keep=str(tmp_path)))
    assert (found["old"]["n"], found["new"]["n"]) == (7, 1)
    assert json.loads((tmp_path / "new.json").read_text()) == found["new"]
    assert "elsewhere" in machines(found.values())


def test_nothing_is_measured_where_nothing_shall_be(tmp_path: Path) -> None:
    assert dict(in_parallel({"new": Task(fail, ())}, keep=str(tmp_path), measure=False)) == {}


def test_a_run_that_fails_says_so() -> None:
    with pytest.raises(ZeroDivisionError):
        dict(in_parallel({"bad": Task(fail, ())}, jobs=1))


def seen() -> dict[str, int]:
    return {"cores": available_cores()}


def fail() -> dict[str, int]:
    return {"n": 1 // 0}
