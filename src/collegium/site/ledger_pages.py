"""A long ledger in parts: what pages show of it, without holding all of it. A ledger grows for years."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.site.ledger import reading, unsalted

_SIZES: Final = "COUNT(*) AS releases, SUM(bytes) AS bytes, SUM(event IS NULL) AS unprotected"
_COUNTED: Final = {
    "ledger": "SELECT COUNT(*) FROM ledger WHERE ? IN ('', run)",
    "refusal": "SELECT COUNT(*) FROM refusal WHERE ? IN ('', run)",
}
_NEWEST: Final = {
    "ledger": "SELECT * FROM ledger WHERE ? IN ('', run) ORDER BY rowid DESC LIMIT ? OFFSET ?",
    "refusal": "SELECT * FROM refusal WHERE ? IN ('', run) ORDER BY id DESC LIMIT ? OFFSET ?",
}
_LAST_REFUSAL: Final = "SELECT COALESCE(MAX(id), 0) FROM refusal"
Table = Literal["ledger", "refusal"]


@dataclass(frozen=True)
class RunReleases:
    """What left a site in one run."""

    run: str
    releases: int
    bytes: int
    unprotected: int
    """Without differential privacy."""
    first: str
    last: str
    """When it released first, and last."""
    round: int
    step: str
    """Of the last release."""


@dataclass(frozen=True)
class LedgerPages:
    """The ledger in a file, which may not be there yet: nothing has left then."""

    path: Path

    def runs(self) -> list[RunReleases]:
        """What left by run, the run that released last at the end."""
        if not self.path.is_file():
            return []
        query = f"""SELECT run, {_SIZES}, MIN(time) AS first, MAX(seq), time AS last, round, step
            FROM ledger GROUP BY run ORDER BY MAX(seq)"""  # noqa: S608 - constants only; SQLite takes time, round and
        # step from the row that has the largest seq
        with reading(self.path) as db:
            found = [dict(row) for row in db.execute(query)]
        return [RunReleases(**{key: value for key, value in row.items() if key != "MAX(seq)"}) for row in found]

    def count(self, table: Table, run: str = "") -> int:
        """How many releases or refusals there are, of all runs or of one."""
        if not self.path.is_file():
            return 0
        with reading(self.path) as db:
            return int(db.execute(_COUNTED[table], (run,)).fetchone()[0]) if _has(db, table) else 0

    def newest(self, table: Table, most: int, *, skip: int = 0, run: str = "") -> list[dict[str, Any]]:
        """The latest releases or refusals, the last one first."""
        if not self.path.is_file():
            return []
        with reading(self.path) as db:
            found = db.execute(_NEWEST[table], (run, most, skip)) if _has(db, table) else ()
            return [unsalted(dict(row)) for row in found]

    def end(self) -> tuple[int, int]:
        """The numbers of the last release and the last refusal: while they are the same, nothing has changed."""
        if not self.path.is_file():
            return 0, 0
        with reading(self.path) as db:
            released = db.execute("SELECT COALESCE(MAX(rowid), 0) FROM ledger").fetchone()[0]
            refused = db.execute(_LAST_REFUSAL).fetchone()[0] if _has(db, "refusal") else 0
        return int(released), int(refused)

    def charged(self) -> Iterator[tuple[str, list[Charge]]]:
        """The time and the charges of each release that has any, oldest first, one at a time."""
        if not self.path.is_file():
            return
        with reading(self.path) as db:
            for row in db.execute("SELECT time, event FROM ledger WHERE event IS NOT NULL ORDER BY rowid"):
                yield row["time"], read_charges(row["event"])[0]


def _has(db: sqlite3.Connection, table: Table) -> bool:
    """Ledgers of the first versions have no refusals."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None
