"""The ledger: what left a site, append-only and hash-chained, in SQLite.

One row per release. Each row's hash covers the row and the hash before it, and the head of the chain is
kept beside the rows, so that a changed, inserted, removed or cut-off row is found by `verify_ledger`. What the
chain cannot show by itself is a ledger replaced as a whole: for that, every release carries the hash of
its row to the coordinator, which keeps it. A row can hold what the coordinator must not know, such as a cost that
depends on votes, and hashes of few possibilities can be searched: so every row has a random salt that stays here.

The same file holds, in the same transaction, the sealed reply (so that an order asked twice is answered
with the same bytes) and the number of the stored state: an order is done entirely, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from collegium.errors import LedgerError, StorageError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ledger (
    party TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, number INTEGER NOT NULL,
    round INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL, bytes INTEGER NOT NULL, wire_bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL, event TEXT, claim TEXT, prev TEXT NOT NULL, hash TEXT NOT NULL, salt TEXT,
    PRIMARY KEY (party, seq));
CREATE TABLE IF NOT EXISTS head (party TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    party TEXT NOT NULL, run TEXT NOT NULL, number INTEGER NOT NULL, request TEXT NOT NULL, reply BLOB NOT NULL,
    notes TEXT, PRIMARY KEY (party, run, number));
CREATE TABLE IF NOT EXISTS state (
    party TEXT NOT NULL, run TEXT NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (party, run));
CREATE TABLE IF NOT EXISTS refusal (
    id INTEGER PRIMARY KEY, party TEXT NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, number INTEGER NOT NULL,
    step TEXT NOT NULL, code TEXT NOT NULL);
"""
_ADDED_LATER: Final = {"outbox": "notes", "ledger": "salt"}
"""Columns that files of earlier versions lack. A row without a salt was written before there were any."""
_SALT_BYTES: Final = 32
_CANONICAL: Final = json.JSONEncoder(separators=(",", ":"))  # made once: a ledger of years is verified at every start
KEPT_REFUSALS: Final = 10_000
_COLUMNS: Final = (
    "party", "seq", "time", "run", "number", "round", "step", "kind", "bytes", "wire_bytes", "sha256", "event", "claim",
)  # fmt: skip
_INSERT: Final = f"INSERT INTO ledger VALUES ({', '.join('?' * (len(_COLUMNS) + 3))})"  # noqa: S608


@dataclass(frozen=True)
class Sent:
    """An answer that was sent, to be sent again if it is asked for again."""

    request: str
    """The hash of the orders that it answers."""
    reply: bytes
    notes: str | None = None
    """What a simulated site noted beside it."""


@dataclass(frozen=True)
class Entry:
    """What a row says about one release, before it is chained."""

    run: str
    number: int
    round: int
    step: str
    kind: str
    bytes: int
    wire_bytes: int
    sha256: str
    event: str | None = None
    """The privacy charges, as JSON; None if the release was unprotected."""
    claim: str | None = None
    """The claim about this release by itself, in words."""


class Ledger:
    """One party's rows in a ledger file (in memory, where there is no path).

    With `durable`, stored rows also survive a power cut, not only the end of the process. That takes longer.
    """

    def __init__(
        self, party: str, path: Path | None = None, *, keep_replies: bool = True, durable: bool = False
    ) -> None:
        self.party = party
        self.path = path
        self.durable = durable
        # Without a run's folder nobody can resume the run, so nobody can ask for older replies again.
        self._keep_replies = keep_replies and path is not None
        self._lock = threading.RLock()
        with storage_errors(path, LedgerError):
            self._db = open_ledger(path, durable=durable)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is stored together, or not at all."""
        with self._lock, storage_errors(self.path, LedgerError):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # a full disk ends it by itself
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def append(self, entry: Entry) -> str:
        """Chain one row; returns its hash. Call inside a transaction."""
        seq, prev = self._end()
        row = {"party": self.party, "seq": seq + 1, "time": now()}
        row |= vars(entry) | {"salt": secrets.token_hex(_SALT_BYTES)}
        digest = row_hash(row, prev)
        self._insert(row | {"prev": prev, "hash": digest})
        return digest

    def _insert(self, row: dict[str, Any]) -> None:
        self._db.execute(_INSERT, [row[column] for column in (*_COLUMNS, "prev", "hash", "salt")])
        self._db.execute("INSERT OR REPLACE INTO head VALUES (?, ?, ?)", (self.party, row["seq"], row["hash"]))

    def _fetch(self, query: str, *args: object) -> Any:
        """The first row that a query about this party finds; None if there is none."""
        with self._lock, storage_errors(self.path, LedgerError):
            return self._db.execute(query, (self.party, *args)).fetchone()

    def _head(self) -> tuple[int, str]:
        head = self._fetch("SELECT seq, hash FROM head WHERE party = ?")
        return tuple(head) if head else (0, genesis(self.party))

    def _end(self) -> tuple[int, str]:
        """Where the chain ends, and the next row goes. The last row must be as it was written."""
        seq, digest = self._head()
        last = self._fetch("SELECT * FROM ledger WHERE party = ? ORDER BY seq DESC LIMIT 1")
        row = None if last is None else dict(last)
        if (seq > 0 or row is not None) and (row is None or (row["seq"], row_hash(row, row["prev"])) != (seq, digest)):
            raise LedgerError(f"{self.path}: the last rows of {self.party!r} were changed or removed.")
        return seq, digest

    def length(self) -> int:
        """How many rows the file has, of all parties."""
        with self._lock, storage_errors(self.path, LedgerError):
            return int(self._db.execute("SELECT COALESCE(SUM(seq), 0) FROM head").fetchone()[0])

    def bytes_of(self, run: str) -> int:
        """All content bytes released in a run."""
        return int(self._fetch("SELECT COALESCE(SUM(bytes), 0) FROM ledger WHERE party = ? AND run = ?", run)[0])

    def charges(self, *, of_all: bool = False) -> list[Charge]:
        """All privacy that this party has spent in every run; `of_all`: that any party in the file has.

        A broken chain is an error: the sum would be unknown.
        """
        with self._lock, storage_errors(self.path, LedgerError):
            rows = _checked_rows(self.path, self._db, None if of_all else self.party)
            return [charge for row in rows for charge in read_charges(row["event"])[0]]

    def rows(self) -> list[dict[str, Any]]:
        """This party's rows, oldest first, without their salts."""
        with self._lock, storage_errors(self.path, LedgerError):
            return [unsalted(row) for row in _rows(self._db, self.party)]

    def sent(self, run: str, number: int) -> Sent | None:
        """What this order was answered with, if it was."""
        query = "SELECT request, reply, notes FROM outbox WHERE party = ? AND run = ? AND number = ?"
        row = self._fetch(query, run, number)
        return Sent(*row) if row else None

    def answered_after(self, run: str, number: int) -> list[int]:
        """The orders of a run that were answered after this one, in that order."""
        query = """SELECT number FROM outbox WHERE party = ? AND run = ? AND rowid > (
            SELECT rowid FROM outbox WHERE party = ? AND run = ? AND number = ?) ORDER BY rowid"""
        with self._lock, storage_errors(self.path, LedgerError):
            rows = self._db.execute(query, (self.party, run, self.party, run, number))
            return [each for (each,) in rows]

    def keep_reply(self, run: str, number: int, sent: Sent) -> None:
        """Remember an answer. Call inside a transaction."""
        if not self._keep_replies:
            self._db.execute("DELETE FROM outbox WHERE party = ? AND run = ?", (self.party, run))
        values = (self.party, run, number, sent.request, sent.reply, sent.notes)
        self._db.execute("INSERT INTO outbox (party, run, number, request, reply, notes) VALUES (?,?,?,?,?,?)", values)

    def state_file(self, run: str) -> tuple[str, str] | None:
        """Name and sha256 of the stored state of a run."""
        row = self._fetch("SELECT file, sha256 FROM state WHERE party = ? AND run = ?", run)
        return tuple(row) if row else None

    def keep_state(self, run: str, file: str, sha256: str) -> None:
        """Point to a state file. Call inside a transaction."""
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", (self.party, run, file, sha256))

    def note_refusal(self, run: str, number: int, step: str, code: str) -> None:
        """Record that an order was refused. Only the latest are kept, so that nobody can fill the disk."""
        values = (self.party, now(), run[:64], number, step[:128], code)
        with self._lock, storage_errors(self.path, LedgerError):
            added = self._db.execute(
                "INSERT INTO refusal (party, time, run, number, step, code) VALUES (?, ?, ?, ?, ?, ?)", values
            ).lastrowid
            self._db.execute("DELETE FROM refusal WHERE id <= ?", ((added or 0) - KEPT_REFUSALS,))

    def refusals(self) -> list[dict[str, Any]]:
        """What this party refused, oldest first."""
        with self._lock, storage_errors(self.path, LedgerError):
            return [row for row in _refusals(self._db) if row["party"] == self.party]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def now() -> str:
    """The time, as rows say it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def row_hash(row: dict[str, Any], prev: str) -> str:
    """The hash that chains a row to the one before it."""
    salt = row.get("salt")
    covered = [row[column] for column in _COLUMNS] + [prev] + ([] if salt is None else [salt])
    return hashlib.sha256(_CANONICAL.encode(covered).encode()).hexdigest()


def genesis(party: str) -> str:
    """What the first row of a party is chained to."""
    return hashlib.sha256(f"collegium ledger of {party}".encode()).hexdigest()


def read_ledger(path: str | Path) -> list[dict[str, Any]]:
    """All rows of a ledger file, of every party in it, without their salts."""
    with reading(Path(path)) as db:
        return [unsalted(row) for row in _rows(db)]


def read_refusals(path: str | Path) -> list[dict[str, Any]]:
    """What was refused, of every party in a ledger file, oldest first."""
    with reading(Path(path)) as db:
        return _refusals(db)


def verify_ledger(path: str | Path) -> dict[str, int]:
    """Check every party's chain; returns the number of rows per party, or raises LedgerError."""
    with reading(Path(path)) as db:
        if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            raise LedgerError(f"{path} is damaged (SQLite's integrity check fails): restore it from a backup.")
        for _ in _checked_rows(path, db):
            pass  # one row at a time: a ledger grows for years
        return {str(party): int(seq) for party, seq in db.execute("SELECT party, seq FROM head ORDER BY party")}


def _checked_rows(
    path: str | Path | None, db: sqlite3.Connection, party: str | None = None
) -> Iterator[dict[str, Any]]:
    """All rows, or those of one party, oldest first; a LedgerError where a chain is not intact."""
    heads = {name: (seq, digest) for name, seq, digest in db.execute("SELECT party, seq, hash FROM head")}
    for name, rows in groupby(_rows(db, party), itemgetter("party")):
        if name not in heads:
            raise LedgerError(f"{path} has rows of a party without a head. The ledger was changed.")
        yield from _chained(path, name, rows, heads.pop(name))
    for name in heads if party is None else heads.keys() & {party}:
        yield from _chained(path, name, (), heads[name])


def _chained(
    path: str | Path | None, party: str, rows: Iterable[dict[str, Any]], head: tuple[int, str]
) -> Iterator[dict[str, Any]]:
    seq, digest = 0, genesis(party)
    for row in rows:
        if row["seq"] != seq + 1:
            raise LedgerError(f"{path}: row {seq + 1} of {party!r} is missing. The ledger was cut, or rows removed.")
        if row["prev"] != digest or row["hash"] != row_hash(row, digest):
            raise LedgerError(f"{path}: row {seq + 1} of {party!r} does not match its hash. The ledger was changed.")
        seq, digest = row["seq"], row["hash"]
        yield row
    if (seq, digest) != head:
        raise LedgerError(f"{path}: the last rows of {party!r} are missing ({seq} of {head[0]} are there).")


def _rows(db: sqlite3.Connection, party: str | None = None) -> Iterator[dict[str, Any]]:
    where, args = ("WHERE party = ?", (party,)) if party is not None else ("", ())
    query = f"SELECT * FROM ledger {where} ORDER BY party, seq"  # noqa: S608  (constants only)
    return (dict(row) for row in db.execute(query, args))


def unsalted(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it may be shown: whoever has a row and its salt can show that a hash is the row's."""
    return {name: value for name, value in row.items() if name != "salt"}


def _refusals(db: sqlite3.Connection) -> list[dict[str, Any]]:
    if "refusal" not in _tables(db):  # a ledger that was written before refusals were
        return []
    return [dict(row) for row in db.execute("SELECT party, time, run, number, step, code FROM refusal ORDER BY id")]


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def open_ledger(path: Path | None, *, durable: bool) -> sqlite3.Connection:
    """A ledger's file, or one in memory, with all its tables."""
    db = sqlite3.connect(path or ":memory:", timeout=60, isolation_level=None, check_same_thread=False)
    if path is not None:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    db.row_factory = sqlite3.Row
    db.executescript(_SCHEMA)
    for table, column in _ADDED_LATER.items():
        if column not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
    return db


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A ledger file that is there already, for questions that no function here answers."""
    if not path.is_file():
        raise LedgerError(f"There is no ledger at {path}.")
    with (
        storage_errors(path, LedgerError),
        contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db,
    ):
        if not {"ledger", "head"} <= _tables(db):
            raise LedgerError(f"{path} is not a ledger: it has no table of releases.")
        db.row_factory = sqlite3.Row
        yield db


@contextlib.contextmanager
def storage_errors(path: Path | None, kind: type[StorageError]) -> Iterator[None]:
    """Turn errors of SQLite and the disk into one line that says what, where and what next."""
    where = path or "the ledger in memory"
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        if error.errno == errno.ENOSPC if isinstance(error, OSError) else "full" in str(error):
            raise StorageError(f"No space left on disk for {where}: free some and resume the run.") from None
        if isinstance(error, OSError):
            raise StorageError(f"Cannot use {where}: {error.strerror}.") from None
        if "disk I/O" in str(error):
            raise StorageError(f"Cannot write to {where}: the disk is full or failing.") from None
        if "readonly" in str(error) or "unable to open" in str(error):
            raise StorageError(f"Cannot write to {where}: check the folder and its permissions.") from None
        raise kind(f"Cannot read {where}: it is damaged or of another kind. Restore it from a backup.") from None
