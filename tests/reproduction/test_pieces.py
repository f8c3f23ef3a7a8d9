"""Units in pieces: what is through stays, what fails stops nobody, and who needs weights waits for them."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import time
import weakref
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reproduction.test_declared import table

from collegium.errors import ConfigError, StorageError
from collegium.reproduction import declared, pieces, units
from collegium.reproduction.declared import Table
from collegium.reproduction.page import page
from collegium.reproduction.results import Results
from collegium.reproduction.units import Conditions, PieceOver, Unit, carry_out

NETS = """
[[rows]]
name = "first"
measure = "global"
set.algorithm = { name = "fedavg", rounds = 2, local_steps = 1 }
set.sites = [{ learner = { name = "torch", net = "linear" }, prepare = "none" }]
columns = ["all"]
[[rows]]
name = "second"
measure = "global"
after = "first"
parts = 2
set.algorithm = { name = "fedavg", rounds = 2, local_steps = 1, anneal = 4 }
set.sites = [{ learner = { name = "torch", net = "linear" }, prepare = "none" }]
columns = ["all"]
"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Table:
    declare(monkeypatch, own := table())
    return own


def declare(monkeypatch: pytest.MonkeyPatch, own: Table) -> None:
    for module in (declared, units):
        monkeypatch.setattr(module, "tables", lambda: {"small": own})


def piece(own: Table, out: Path, seeds: int = 1, said: list[str] | None = None, **conditions: Any) -> pieces.Piece:
    say = (lambda _: None) if said is None else said.append
    return pieces.Piece({"small": own}, Conditions(out, **conditions), seeds, say)


def test_what_is_through_is_not_run_again(small: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = piece(small, tmp_path, quick=True)
    assert len(first.waiting) == 3
    first.carry_out()
    assert (first.waiting, first.failed) == ([], {})
    kept = json.loads((tmp_path / "small.json").read_text())
    assert set(kept) == {"FedCT | all | 0", "local | all | 0", "FedCT | few public rows | 0"}
    assert {"last", "best", "seconds", "machine", "date", "kB sent"} <= set(kept["FedCT | all | 0"])
    monkeypatch.setattr(pieces, "carry_out", lambda *_: pytest.fail("it was run again"))
    said: list[str] = []
    piece(small, tmp_path, quick=True, said=said).carry_out()
    assert said == ["3 of 3 runs are there already"]
    assert len(piece(small, tmp_path, seeds=2, quick=True).waiting) == 3


def test_quick_runs_and_true_ones_are_never_in_one_folder(
    small: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "carry_out", lambda *_: {"last": 0.5, "best": 0.6, "seconds": 1.0})
    for quick, what in ((True, "runs of the quick form"), (False, "the true ones")):
        piece(small, tmp_path / what, quick=quick).carry_out()
        with pytest.raises(ConfigError, match=f"are of {what}: choose another folder"):
            piece(small, tmp_path / what, quick=not quick)


def test_a_run_that_fails_stops_nobody(small: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def carry(unit: Unit, conditions: Conditions) -> dict[str, Any]:
        if unit.row == "local":
            raise RuntimeError("no luck")
        return {"last": 0.5, "best": 0.6, "seconds": 1.0}

    monkeypatch.setattr(pieces, "carry_out", carry)
    said: list[str] = []
    one = piece(small, tmp_path, said=said)
    one.carry_out()
    assert [unit.row for unit in one.failed] == ["local"]
    assert said[-1] == "failed: small, local | all | 0: RuntimeError: no luck"
    assert len(piece(small, tmp_path).waiting) == 1  # it is tried again


def test_a_piece_ends_in_time_and_the_next_one_goes_on(
    small: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Unit] = []

    def carry(unit: Unit, conditions: Conditions) -> dict[str, Any]:
        calls.append(unit)
        if len(calls) == 2:
            raise PieceOver
        return {"last": 0.5, "best": 0.6, "seconds": 1000.0}

    monkeypatch.setattr(pieces, "carry_out", carry)
    said: list[str] = []
    one = piece(small, tmp_path, said=said, deadline=time.time() + 90)  # the table says that a run takes a minute
    one.carry_out()
    assert [unit.row for unit in calls] == ["FedCT", "local", "FedCT"]
    assert "the time was up before small, local | all | 0 was through" in said[2]
    two = piece(small, tmp_path, seeds=2, deadline=time.time() + 90)
    two.carry_out()
    assert [unit.key for unit in calls[3:]] == ["local | all | 0"]
    assert [unit.seed for unit in two.waiting] == [1, 1, 1]  # each is known to take 1,000 s


@pytest.mark.parametrize("device", ["cuda:1", None])
def test_a_gpu_has_its_memory_back_before_the_next_unit(
    device: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Net:
        def __init__(self) -> None:
            self.itself = self

    made: list[weakref.ref[Net]] = []

    def measured(unit: Unit, conditions: Conditions) -> dict[str, Any]:
        made.append(weakref.ref(Net()))
        return {"last": None}

    monkeypatch.setattr(units, "_measure", measured)
    gc.disable()
    try:
        carry_out(Unit("small", "FedCT", "all", 0), Conditions(tmp_path, device=device))
        assert (made[0]() is None) == (device is not None)  # elsewhere there is room until the collector comes by
    finally:
        gc.enable()


def test_the_clock_ends_a_run_between_rounds(small: Table, tmp_path: Path) -> None:
    with pytest.raises(PieceOver):
        carry_out(Unit("small", "FedCT", "all", 0), Conditions(tmp_path, quick=True, deadline=time.time() - 1))


def test_parts_go_on_from_each_other_and_a_row_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(('[[rows]]\nname = "local"', NETS + '[[rows]]\nname = "local"'))
    declare(monkeypatch, own)
    begun: list[Any] = []
    run = units.run
    monkeypatch.setattr(units, "run", lambda algorithm, **options: begun.append(algorithm) or run(algorithm, **options))
    every = [unit for unit in pieces.units_of("small", own, [0]) if unit.row in ("first", "second")]
    assert [(unit.row, unit.part) for unit in every] == [("first", 0), ("second", 0), ("second", 1)]
    assert every[1].needs() == every[0]
    assert every[2].needs() == every[1]
    conditions = Conditions(tmp_path)
    for unit in every:
        carry_out(unit, conditions)
    assert [(each.rounds, each.first_round) for each in begun] == [(2, 0), (1, 0), (1, 1)]
    for unit, algorithm in zip(every, begun[1:], strict=False):
        with np.load(conditions.weights(unit)) as kept:
            assert all(np.array_equal(kept[name], algorithm.start.points[0][name]) for name in kept.files)
    assert not conditions.weights(every[2]).exists()  # nobody needs those


def test_some_cells_alone_bring_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(('[[rows]]\nname = "local"', NETS + '[[rows]]\nname = "local"'))
    declare(monkeypatch, own)
    chosen = pieces.Piece({"small": own}, Conditions(tmp_path), 1, lambda _: None, only="second").waiting
    assert [(unit.row, unit.part) for unit in chosen] == [("first", 0), ("second", 0), ("second", 1)]
    chosen = pieces.Piece({"small": own}, Conditions(tmp_path), 2, lambda _: None, only="few public").waiting
    assert [unit.key for unit in chosen] == ["FedCT | few public rows | 0", "FedCT | few public rows | 1"]


def test_weights_that_were_removed_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(('[[rows]]\nname = "local"', NETS + '[[rows]]\nname = "local"'))
    declare(monkeypatch, own)
    first = Unit("small", "first", "all", 0)
    conditions = Conditions(tmp_path)
    Results(tmp_path, "small").add(first, {"last": 0.5, "best": 0.5, "seconds": 1.0})
    one = piece(own, tmp_path)
    one.waiting = [unit for unit in one.waiting if unit.row == "second"]
    one.carry_out()
    assert conditions.weights(first).is_file()
    assert (one.waiting, one.failed) == ([], {})


def test_a_table_without_its_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(("breast_cancer", "mushroom"))
    declare(monkeypatch, own)
    said: list[str] = []
    one = piece(own, tmp_path, said=said, data=tmp_path)
    assert (one.waiting, said[0]) == ([], "small: not run, mushroom is not in the data folder")
    assert said[1:] == [f"The data folder is {tmp_path}: --data or COLLEGIUM_DATA names another."]


def test_the_cells_whose_data_are_there_run_without_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(("set.data = { public = 20 }", 'set.data = { source = "mushroom", public = 20 }'))
    declare(monkeypatch, own)
    said: list[str] = []
    one = piece(own, tmp_path, said=said, data=tmp_path)
    assert [unit.column for unit in one.waiting] == ["all", "all"]
    assert said[:-1] == ["small: 1 of 3 runs not run, mushroom is not in the data folder"]


def test_pretraining_can_be_asked_for_alone(tmp_path: Path) -> None:
    of_paper = {"fedaux_table2": declared.tables()["fedaux_table2"]}
    chosen = pieces.Piece(of_paper, Conditions(tmp_path, quick=True), 1, lambda _: None, only="pretraining").waiting
    assert chosen == [units.pretraining("fedaux_table2")]


def test_the_page_has_the_numbers_beside_the_papers(small: Table, tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    for seed, last in enumerate((0.8, 0.9)):
        results.add(Unit("small", "FedCT", "all", seed), {"last": last, "best": 0.95, "seconds": 1.0}, device="cpu")
    shown = page({"small": small}, {"small": Results(tmp_path, "small")})
    assert "| FedCT | all | 0.900 | 0.850 | 0.050 | 0.950 | 2 |" in shown
    assert "| FedCT | few public rows |  |  |  |  |  |" in shown
    assert "2 of 9 runs are through. `collegium reproduce small`." in shown
    assert "Not run yet." in page({"small": small}, {"small": Results(tmp_path / "none", "small")})


def test_several_processes_write_the_same_table(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = context.Barrier(2)
    rows = [row.name for row in declared.tables()["fedkt_table5"].rows[:2]]
    processes = [context.Process(target=_add_some, args=(both, tmp_path, row)) for row in rows]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(json.loads((tmp_path / "fedkt_table5.json").read_text())) == 2 * 100
    assert [each.name for each in tmp_path.iterdir()] == ["fedkt_table5.json"]


def _add_some(both: Barrier, folder: Path, row: str) -> None:
    results = Results(folder, "fedkt_table5")
    both.wait()  # one may start so late that the other is through
    for seed in range(100):
        results.add(Unit("fedkt_table5", row, "Adult", seed), {"last": 0.5, "best": 0.5, "seconds": 1.0})


def test_processes_have_one_thread_each_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in pieces.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    before = dict(os.environ)
    with pieces._workers(2) as pool:
        assert [pool.submit(os.getenv, name).result() for name in pieces.THREADS] == ["1", "1", "3"]
    assert dict(os.environ) == before


def test_a_file_that_holds_no_results_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text("something else")
    with pytest.raises(StorageError, match=r"small\.json is no file of results"):
        Results(tmp_path, "small")
