"""The coordinator's record: every exchange of a run, so that a killed run can be resumed.

A SQLite file with one transaction per exchange: after a kill the record holds whole exchanges only. Rows are
chained by hashes like a ledger's, so a damaged or truncated record is detected before anything is trained.

SQLite takes a lost or damaged write-ahead log for an older, intact file. A `durable` record therefore writes beside
itself how far it has come; other files can show that a run was begun, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from collegium.core.link import Answer
from collegium.core.observations import Notes
from collegium.errors import RecordError
from collegium.site.ledger import storage_errors

_VERSION: Final = "2"  # frames without npz
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS exchange (number INTEGER PRIMARY KEY, orders TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reply (
    exchange INTEGER NOT NULL, seq INTEGER NOT NULL, party TEXT NOT NULL, frame BLOB NOT NULL, notes TEXT,
    PRIMARY KEY (exchange, seq));
CREATE TABLE IF NOT EXISTS newcomer (exchange INTEGER NOT NULL, party TEXT PRIMARY KEY);
"""

_DATABASE: Final = b"SQLite format 3\0"
_REPLIES: Final = "SELECT party, frame, notes FROM reply WHERE exchange = ? ORDER BY seq"


def is_record(file: Path) -> bool:
    """Whether a file is a run's record (empty, if the run ended at once), and no other file of that name."""
    with suppress(OSError), file.open("rb") as stream:
        return stream.read(len(_DATABASE)) in (b"", _DATABASE)
    return False


class Record:
    """All exchanges of one run. `about` identifies the run: settings, seed, sites, public set.

    With `durable`, exchanges also survive a power cut. `begun_by` are files that only a run which has begun leaves.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        *,
        resume: bool,
        durable: bool = False,
        begun_by: Sequence[Path] = (),
    ) -> None:
        self.path = path
        self._head = path.with_name(f"{path.name}.head") if durable else None
        existed = path.exists()
        known = self._read_head()
        with storage_errors(path, RecordError):
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.executescript(_SCHEMA)
            begun = known is not None or any(file.exists() for file in begun_by)
            self._identify(dict(about), continues=resume and existed, begun=begun)
        self.length = self._check(known or (0, ""))
        self._write_head()

    def _identify(self, about: dict[str, Any], *, continues: bool, begun: bool) -> None:
        text = self._get("about")
        if text is None:
            if continues and self._db.execute("SELECT COUNT(*) FROM exchange").fetchone()[0]:
                raise RecordError(f"{self.path} does not say which run it belongs to: the file is damaged.")
            if begun:
                raise RecordError(f"A run was begun in {self.path.parent}, but its record is lost. {self._remedy}")
            written = json.dumps(about, sort_keys=True), _VERSION
            self._db.execute("INSERT INTO run VALUES ('about', ?), ('version', ?)", written)
            return
        if self._get("version") != _VERSION:
            raise RecordError(
                f"{self.path} was written by another version of Collegium. Resume the run with that version, or start "
                "a new one in another folder."
            )
        before = json.loads(text)
        differing = [key for key in sorted(about) if key != "run" and before.get(key) != about[key]]
        if differing:
            raise RecordError(
                f"{self.path} belongs to another run: {', '.join(differing)} differ. Resume with the same settings, "
                "or choose another folder."
            )

    def _get(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    @property
    def run(self) -> str:
        """The run's id; a resumed run keeps it."""
        with storage_errors(self.path, RecordError):
            return str(json.loads(self._get("about") or "{}")["run"])

    @property
    def _remedy(self) -> str:
        return (
            f"Restore {self.path.name}, and {self.path.name}-wal if there was one, or start a new run in another "
            "folder: sites would release their answers again."
        )

    def _read_head(self) -> tuple[int, str] | None:
        """How far the record has come, and the hash of its last exchange, by the file beside it."""
        if self._head is None or not self._head.exists():
            return None
        with storage_errors(self._head, RecordError):
            try:
                length, digest = self._head.read_text(encoding="ascii").split(" ")
                return int(length), digest.strip()
            except ValueError:
                raise RecordError(f"{self._head} is damaged. {self._remedy}") from None

    def _write_head(self) -> None:
        if self._head is None:
            return
        beside = self._head.with_name(f"{self._head.name}.part")
        with storage_errors(self._head, RecordError):
            with beside.open("w", encoding="ascii") as file:
                file.write(f"{self.length} {self._hash_before(self.length)}\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._head)

    def _hash_before(self, number: int) -> str:
        """The hash of the exchange before this one."""
        row = self._db.execute("SELECT hash FROM exchange WHERE number = ?", (number - 1,)).fetchone()
        return str(row[0]) if row else ""

    def _check(self, known: tuple[int, str]) -> int:
        """The number of whole exchanges, after checking the chain; as many as are known to have been at least."""
        with storage_errors(self.path, RecordError):
            prev = ""
            rows = self._db.execute("SELECT number, orders, hash FROM exchange ORDER BY number").fetchall()
            for position, (number, orders, digest) in enumerate(rows):
                if number != position or digest != self._hash(number, orders, prev):
                    raise RecordError(
                        f"{self.path}: exchange {position} is damaged or missing. Restore the file, or start a new run."
                    )
                prev = digest
            head = self._get("length")
        if head is not None and int(head) != len(rows):
            raise RecordError(f"{self.path} is truncated: it has {len(rows)} of {head} exchanges. Restore the file.")
        if len(rows) < known[0] or self._hash_before(known[0]) != known[1]:
            raise RecordError(f"{self.path} has lost exchanges: {len(rows)} of {known[0]} are there. {self._remedy}")
        return len(rows)

    def _hash(self, number: int, orders: str, prev: str) -> str:
        rows = self._db.execute(_REPLIES, (number,))
        return _chained(number, orders, prev, (_reply_hash(*row) for row in rows))

    def orders_hash(self, number: int) -> str:
        """Identifies the orders of a recorded exchange."""
        with storage_errors(self.path, RecordError):
            return str(self._db.execute("SELECT orders FROM exchange WHERE number = ?", (number,)).fetchone()[0])

    def answers(self, number: int) -> Iterator[Answer]:
        """The recorded answers of an exchange, in the order they came."""
        with storage_errors(self.path, RecordError):
            for party, frame, notes in self._db.execute(_REPLIES, (number,)):
                yield Answer(party, frame, Notes.from_json(notes))

    def newcomers(self, number: int) -> tuple[str, ...]:
        """The sites that joined before an exchange."""
        with storage_errors(self.path, RecordError):
            query = "SELECT party FROM newcomer WHERE exchange = ? ORDER BY rowid"
            return tuple(party for (party,) in self._db.execute(query, (number,)))

    def write_newcomers(self, number: int, parties: tuple[str, ...]) -> tuple[str, ...]:
        """Keep that sites joined before an exchange; returns those that are not known yet."""
        with storage_errors(self.path, RecordError):
            known = {party for (party,) in self._db.execute("SELECT party FROM newcomer")}
            fresh = tuple(party for party in parties if party not in known)
            self._db.executemany("INSERT INTO newcomer VALUES (?, ?)", [(number, party) for party in fresh])
        return fresh

    def write(self, number: int, orders: str, answers: Iterator[Answer]) -> Iterator[Answer]:
        """Pass answers on as they come, and keep them; the exchange counts once all have come."""
        with storage_errors(self.path, RecordError):
            self._db.execute("BEGIN IMMEDIATE")
        hashes = []
        try:
            for seq, answer in enumerate(answers):
                notes = None if answer.notes is None else answer.notes.to_json()
                with storage_errors(self.path, RecordError):
                    values = (number, seq, answer.party, answer.frame, notes)
                    self._db.execute("INSERT INTO reply VALUES (?, ?, ?, ?, ?)", values)
                hashes.append(_reply_hash(answer.party, answer.frame, notes))
                yield answer
            with storage_errors(self.path, RecordError):
                self._finish(number, orders, hashes)
        except BaseException:
            if self._db.in_transaction:  # a full disk ends it by itself
                self._db.execute("ROLLBACK")
            raise

    def _finish(self, number: int, orders: str, replies: Iterable[bytes]) -> None:
        digest = _chained(number, orders, self._hash_before(number), replies)
        self._db.execute("INSERT INTO exchange VALUES (?, ?, ?)", (number, orders, digest))
        self._db.execute("INSERT OR REPLACE INTO run VALUES ('length', ?)", (str(number + 1),))
        self._db.execute("COMMIT")
        self.length = number + 1
        self._write_head()

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _reply_hash(party: str, frame: bytes, notes: str | None) -> bytes:
    digest = hashlib.sha256(frame)
    digest.update((notes or "").encode())
    return party.encode() + b"\0" + digest.digest()


def _chained(number: int, orders: str, prev: str, replies: Iterable[bytes]) -> str:
    """The hash of an exchange, which covers that of the one before."""
    return hashlib.sha256(b"".join([f"{prev}:{number}:{orders}".encode(), *replies])).hexdigest()
