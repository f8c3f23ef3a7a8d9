"""How much of what a site's owner agreed to has been used: runs of an approval, and orders of a run.

An order is counted when it is admitted, before anything of it runs, and once, however often it is sent. What fails
counts as well: a failure can be an answer.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from collegium.errors import Refused, StorageError
from collegium.flare.kits.identity import write_private
from collegium.site.ledger import storage_errors

BY_POLICY: Final = ""
"""Stands for the approval where the policy alone decides, and nobody signs."""
SPENT: Final = "approval-spent"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (run TEXT PRIMARY KEY, plan TEXT NOT NULL, approval TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    run TEXT NOT NULL, last INTEGER NOT NULL, place INTEGER NOT NULL, step TEXT NOT NULL,
    PRIMARY KEY (run, last, place, step));
"""


class Usage:
    """The counts in one file. It outlives the agent's process, and is made when something is counted first."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def runs(self, approval: str) -> int:
        """How many runs were begun under an approval."""
        with self._open() as db:
            return int(db.execute("SELECT COUNT(*) FROM run WHERE approval = ?", (approval,)).fetchone()[0])

    def plan_of(self, run: str) -> str | None:
        """The plan under which a run was begun; None if it never was."""
        with self._open() as db:
            found = db.execute("SELECT plan FROM run WHERE run = ?", (run,)).fetchone()
        return None if found is None else str(found[0])

    def begin(self, run: str, plan: str, approval: str) -> None:
        """Count a run. One that was begun before is resumed, and not counted again."""
        with self._open() as db:
            db.execute("INSERT OR IGNORE INTO run VALUES (?, ?, ?)", (run, plan, approval))

    def take(self, run: str, last: int, steps: Sequence[str], most: Mapping[str, int]) -> None:
        """Count the orders of one frame, whose last number is `last`; Refused if a step was asked for too often."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            rows = [(run, last, place, step) for place, step in enumerate(steps)]
            db.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?, ?, ?)", rows)
            counts = Counter(step for (step,) in db.execute("SELECT step FROM asked WHERE run = ?", (run,)))
            over = [step for step in steps if counts[step] > most.get(step, 0)]
            db.execute("ROLLBACK" if over else "COMMIT")
        if over:
            raise Refused(SPENT, f"Run {run} asks for {over[0]!r} more than {most.get(over[0], 0)} times.")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with storage_errors(self._file, StorageError):
            if not self._file.exists():
                write_private(self._file, b"")
            with closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as db:
                db.executescript(_SCHEMA)
                yield db
