"""The ledger of a simulated run: one file, or memory, for all sites of a process, and quick.

While a run lasts, nobody but this process writes the rows of its sites: the run's folder belongs to one process at a
time. So where the chain of a site ends, how many bytes it has released and which orders it has answered is read once
and known from then on. Sites share one connection, and wait for each other's transactions in a queue instead of asking
the file again and again. What is written is what `Ledger` writes, and in the same transactions. A ledger that others
may write to, such as that of a budget that outlives a run, is never one of these.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from collegium.errors import LedgerError
from collegium.site.ledger import Entry, Ledger, Sent, open_ledger, storage_errors


class LedgerFile:
    """A ledger's file, open for several sites at once; the last of them closes it."""

    def __init__(self, path: Path | None) -> None:
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
    """One site's rows in the ledger of a simulated run."""

    def __init__(self, party: str, file: LedgerFile, *, keep_replies: bool) -> None:
        self.party, self.path, self.durable = party, file.path, False
        self._file, self._db, self._lock = file, file.db, file.lock
        self._keep_replies = keep_replies and file.path is not None
        self._last: tuple[str, int, Sent] | None = None
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
        if self._last is not None and self._last[:2] == (run, number):
            return self._last[2]
        return super().sent(run, number) if (run, number) in self._answered else None

    def keep_reply(self, run: str, number: int, sent: Sent) -> None:
        """Remember an answer. Call inside a transaction."""
        if self._keep_replies:
            super().keep_reply(run, number, sent)
            self._answered.add((run, number))
        else:  # for as long as nothing else is asked: nobody can resume the run
            self._last = run, number, sent

    def close(self) -> None:
        """Leave the file."""
        self._file.leave()
