"""Carries out the units of tables, as many as fit into a piece of time; the next piece goes on from there."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collegium.data.benchmarks import data_folder
from collegium.errors import ConfigError
from collegium.reproduction.declared import PRETRAINING, Table, not_at_hand, tables
from collegium.reproduction.plan import Estimates, ordered
from collegium.reproduction.results import Results
from collegium.reproduction.units import Conditions, Found, PieceOver, Unit, carry_out, pretraining

Say = Callable[[str], None]
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""How many threads numerical libraries have: one in each of several processes, unless the user says otherwise."""


def units_of(name: str, table: Table, seeds: Iterable[int]) -> Iterator[Unit]:
    """All units of a table, split by split, each after what it needs."""
    for seed in seeds:
        if seed == 0 and any(row.pretrained for row, _ in table.cells()):
            yield pretraining(name)
        for row, column in table.cells():
            for training in range(row.trainings):
                for part in range(row.parts):
                    yield Unit(name, row.name, column.name, seed * row.trainings + training, part)


class Piece:
    """What is still to be done of these tables, and the time for it."""

    def __init__(
        self, tables: dict[str, Table], conditions: Conditions, seeds: int | None, say: Say, only: str = ""
    ) -> None:
        self._tables, self._conditions, self._say = tables, conditions, say
        self.results = {name: Results(conditions.out, name) for name in tables}
        if any(each.holds(quick=not conditions.quick) for each in self.results.values()):
            form = "the true ones" if conditions.quick else "runs of the quick form"
            raise ConfigError(f"The results in {conditions.out} are of {form}: choose another folder with --out.")
        most = max((seeds or table.seeds) for table in tables.values())
        lists = [
            [unit for unit in units_of(name, table, [seed]) if seed < (seeds or table.seeds)]
            for seed in range(most)
            for name, table in tables.items()
        ]
        every = self._at_hand(_with_what_they_need([unit for units in lists for unit in units], only))
        self.estimates = Estimates(self.results, conditions.device)
        waiting = [unit for unit in every if not self._is_done(unit)]
        self.waiting = ordered(waiting, self.estimates, self._is_ready)
        self.failed: dict[Unit, str] = {}
        self._all = len(every)

    def _at_hand(self, units: list[Unit]) -> list[Unit]:
        """Those whose data are in the folder; tells what is missing of each table."""
        if self._conditions.quick:
            return units
        sources = {unit: unit.declared.sources(unit.row, unit.column) for unit in units}
        missing = set(not_at_hand({name for several in sources.values() for name in several}, self._conditions.data))
        for table in {unit.table: None for unit in units}:
            of_table = [unit for unit in units if unit.table == table]
            left = [unit for unit in of_table if sources[unit] & missing]
            if left:
                names = sorted({name for unit in left for name in sources[unit] & missing})
                are = "is" if len(names) == 1 else "are"
                some = "" if len(left) == len(of_table) else f"{len(left)} of {len(of_table)} runs "
                self._say(f"{table}: {some}not run, {', '.join(names)} {are} not in the data folder")
        if missing:
            folder = data_folder(self._conditions.data)
            self._say(f"The data folder is {folder}: --data or COLLEGIUM_DATA names another.")
        return [unit for unit in units if not sources[unit] & missing]

    def _is_done(self, unit: Unit) -> bool:
        shared = unit.row == PRETRAINING and self._has_weights(unit)
        return shared or self.results[unit.table].get(unit) is not None

    def carry_out(self, jobs: int = 1) -> None:
        """Work until all is done or the time is up."""
        self._say(f"{self._all - len(self.waiting)} of {self._all} runs are there already")
        running: dict[Future[Found], Unit] = {}
        with _workers(jobs) as pool:
            while True:
                while len(running) < jobs and (unit := self._next(set(running.values()))) is not None:
                    self.waiting.remove(unit)
                    running[pool.submit(carry_out, unit, self._conditions)] = unit
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self._ended(running.pop(future), future)
        for unit, why in self.failed.items():
            self._say(f"failed: {unit.table}, {unit.key}: {why}")

    def _next(self, running: set[Unit]) -> Unit | None:
        """The first that can begin now and would end in time."""
        for needed in [unit.needs() for unit in self.waiting]:
            # Whoever needs weights that were removed since has them made again.
            if needed is not None and self._is_done(needed) and not self._has_weights(needed):
                known = {*self.waiting, *running, *self.failed}
                self.waiting[:0] = [needed] if needed not in known else []
        for unit in self.waiting:
            needed = unit.needs()
            if (needed is None or self._is_ready(needed)) and self._fits(unit):
                return unit
        return None

    def _is_ready(self, unit: Unit) -> bool:
        """Whether others can go on from it."""
        return self._is_done(unit) and self._has_weights(unit)

    def _has_weights(self, unit: Unit) -> bool:
        return self._conditions.weights(unit).is_file()

    def _fits(self, unit: Unit) -> bool:
        deadline = self._conditions.deadline
        if deadline is None:
            return True
        expected = 0.0 if self._conditions.quick else 60 * self.estimates.of(unit).minutes
        return time.time() + expected <= deadline

    def _ended(self, unit: Unit, future: Future[Found]) -> None:
        try:
            found = future.result()
        except PieceOver:
            self._say(f"the time was up before {unit.table}, {unit.key} was through: it begins again next time")
        except Exception as error:  # whatever a run may raise: the others go on
            self.failed[unit] = f"{type(error).__name__}: {error}"
        else:
            about = {"quick": True} if self._conditions.quick else {}
            self.results[unit.table].add(unit, found, device=self._conditions.device or "cpu", **about)
            value = "" if found["last"] is None else f": {found['last']:.4g}"
            self._say(f"{unit.table}, {unit.key}{value} ({found['seconds']:.0f} s)")


def _with_what_they_need(units: list[Unit], only: str) -> list[Unit]:
    """Those whose names hold these words, and those that they start from, in their order."""
    chosen = {unit for unit in units if only in unit.key and (only or unit.row != PRETRAINING)}
    for unit in reversed(units):
        needed = unit.needs()
        if unit in chosen and needed is not None:
            chosen.add(needed)
    return [unit for unit in units if unit in chosen]


@contextmanager
def _workers(jobs: int) -> Iterator[Executor]:
    """Processes where several work at a time, each with its own GPU context, and one thread of numerical libraries.

    A library counts its threads when it is loaded: the processes are started with these variables.
    """
    if jobs == 1:
        with ThreadPoolExecutor(1) as thread:
            yield thread
        return
    given = dict(os.environ)
    os.environ.update({name: os.environ.get(name, "1") for name in THREADS})
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as processes:
            yield processes
    finally:
        for name in THREADS:
            os.environ.pop(name)
        os.environ.update(given)


def out_folder(given: Path | None, *, quick: bool) -> Path:
    """Where results go: never the quick form's beside true ones."""
    return given or Path("runs") / ("reproduction-quick" if quick else "reproduction")


def take(others: Path, folder: Path, say: Say) -> None:
    """Add to the results in a folder what those of another machine have beyond them."""
    if not others.is_dir():
        raise ConfigError(f"{others} is no folder of results.")
    for name in tables():
        if added := Results(folder, name).take(others):
            say(f"{name}: {added} runs from {others}")
