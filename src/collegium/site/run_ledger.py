"""Ledgers of simulated runs, which have a run to themselves and are quick.

While a run lasts, nobody but this process writes the rows of its sites: the run's folder belongs to one process at a
time. So where the chain of a site ends, how many bytes it has released and which orders it has answered is read once
and known from then on. Sites share one connection, and wait for each other's transactions in a queue instead of asking
the file again and again. What is written is what `Ledger` writes, and in the same transactions. A ledger that others
may write to, such as that of a budget that outlives a run, is never one of these.

Without a folder the ledger ends with the run: there the rows are kept as they are.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collegium.errors import LedgerError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.site.ledger import (
    KEPT_REFUSALS,
    Entry,
    Ledger,
    Sent,
    genesis,
    now,
    open_ledger,
    storage_errors,
    unsalted,
)


class LedgerFile:
    """A ledger's file, open for several sites at once; the last of them closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._users = 0
        with storage_errors(path, LedgerError):
            self.db = open_ledger(path, durable=False)

    def take(self) -> None:
        """One more site uses it."""
        with self.lock:
            self._users += 1

    def leave(self) -> None:
        """One site less does."""
        with self.lock:
            self._users -= 1
            if not self._users:
                self.db.close()


class RunLedger(Ledger):
    """One site's rows in the ledger file of a simulated run."""

    def __init__(self, party: str, file: LedgerFile) -> None:
        self._keep_replies = True
        self.party, self.path, self.durable = party, file.path, False
        self._file, self._db, self._lock = file, file.db, file.lock
        file.take()
        self._read()

    def _read(self) -> None:
        """What the file has now: nothing else is known."""
        self._tip: tuple[int, str] | None = None
        self._bytes: dict[str, int] = {}
        with self._lock, storage_errors(self.path, LedgerError):
            rows = self._db.execute("SELECT run, number FROM outbox WHERE party = ?", (self.party,))
            self._answered = {tuple(row) for row in rows}

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is stored together, or not at all."""
        try:
            with super().transaction():
                yield
        except BaseException:
            self._read()
            raise

    def append(self, entry: Entry) -> str:
        """Chain one row; returns its hash. Call inside a transaction."""
        before, digest = self.bytes_of(entry.run), super().append(entry)
        self._tip, self._bytes[entry.run] = (self._end()[0] + 1, digest), before + entry.bytes
        return digest

    def _end(self) -> tuple[int, str]:
        if self._tip is None:
            self._tip = super()._end()
        return self._tip

    def bytes_of(self, run: str) -> int:
        """All content bytes released in a run."""
        if run not in self._bytes:
            self._bytes[run] = super().bytes_of(run)
        return self._bytes[run]

    def sent(self, run: str, number: int) -> Sent | None:
        """What this order was answered with, if it was."""
        return super().sent(run, number) if (run, number) in self._answered else None

    def keep_reply(self, run: str, number: int, sent: Sent) -> None:
        """Remember an answer. Call inside a transaction."""
        super().keep_reply(run, number, sent)
        self._answered.add((run, number))

    def close(self) -> None:
        """Leave the file."""
        self._file.leave()


class MemoryLedger(Ledger):
    """One site's rows in a run without a folder."""

    def __init__(self, party: str) -> None:
        self.party, self.path, self.durable = party, None, False
        self._lock = threading.RLock()
        self._kept: list[dict[str, Any]] = []
        self._bytes: Counter[str] = Counter()
        self._refused: deque[dict[str, Any]] = deque(maxlen=KEPT_REFUSALS)
        self._last: tuple[str, int, Sent] | None = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is kept together, or not at all."""
        with self._lock:
            before = len(self._kept)
            try:
                yield
            except BaseException:
                for row in self._kept[before:]:
                    self._bytes[row["run"]] -= row["bytes"]
                del self._kept[before:]
                raise

    def _insert(self, row: dict[str, Any]) -> None:
        self._kept.append(row)
        self._bytes[row["run"]] += row["bytes"]

    def _end(self) -> tuple[int, str]:
        return (self._kept[-1]["seq"], self._kept[-1]["hash"]) if self._kept else (0, genesis(self.party))

    def bytes_of(self, run: str) -> int:
        """All content bytes released in a run."""
        return self._bytes[run]

    def charges(self, *, of_all: bool = False) -> list[Charge]:
        """All privacy that this party has spent: nobody else is in here."""
        return [charge for row in self._kept for charge in read_charges(row["event"])[0]]

    def rows(self) -> list[dict[str, Any]]:
        """This party's rows, oldest first, without their salts."""
        return [unsalted(row) for row in self._kept]

    def sent(self, run: str, number: int) -> Sent | None:
        """What the last order was answered with, if it was this one: nobody can resume the run and ask for others."""
        return self._last[2] if self._last is not None and self._last[:2] == (run, number) else None

    def keep_reply(self, run: str, number: int, sent: Sent) -> None:
        """Remember an answer, until the next."""
        self._last = run, number, sent

    def state_file(self, run: str) -> None:
        """There is none."""

    def note_refusal(self, run: str, number: int, step: str, code: str) -> None:
        """Record that an order was refused."""
        values = (self.party, now(), run[:64], number, step[:128], code)
        self._refused.append(dict(zip(("party", "time", "run", "number", "step", "code"), values, strict=True)))

    def refusals(self) -> list[dict[str, Any]]:
        """What this party refused, oldest first."""
        return list(self._refused)

    def close(self) -> None:
        """There is nothing to close."""
