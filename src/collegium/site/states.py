"""A site's state in a file: what must survive a crash, and how often it is written.

The ledger names the file, in the transaction that stores the reply to the order after which it was written. So a site
that writes its state with every order has, after a kill at any moment, either done an order or not.

Where states are large and orders are quick, most of a run's time would go there. But a simulated site can do orders
again: the randomness of an order follows from the seed and the order's number. With a `Pace` it therefore writes its
state with some orders only. When it is opened after a kill, it knows by its ledger which orders it has answered since
(`Agent.behind`); the coordinator's replay sends those again (`links.replay`), and the site runs their steps without
writing a row, charging anything or making a new reply: what was sent then stays the answer. What cannot be done again
is stored each time, pace or not: private fits, whose cost is in the ledger, and keys and masks, of which each is for
one use. A real site has no pace.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

import cloudpickle

from collegium.errors import StorageError
from collegium.site.ledger import storage_errors

_PAUSE: Final = 20.0
"""States take at most one part in so many of a run's time."""


class Pace:
    """After which orders the sites of one process write their states.

    All of them after the same ones, so that orders done again are done together with the same others as they were.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: int | None = None
        self._due = False
        self._since = 0.0
        self._spent = 0.0

    def due(self, order: int) -> bool:
        """Whether to write a state after this order: the first time, and when the pause has been long enough."""
        with self._lock:
            if order != self._order:
                now = time.monotonic()
                self._due = self._order is None or now - self._since > _PAUSE * self._spent
                self._order = order
                if self._due:
                    self._since, self._spent = now, 0.0
            return self._due

    def spent(self, seconds: float) -> None:
        """A site has written its state in so much time."""
        with self._lock:
            self._spent += seconds


class StateFiles:
    """The states of one site, of which it keeps the last."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    def write(self, name: str, content: tuple[Any, ...]) -> tuple[str, str]:
        """Store a state; returns its file's name and hash, for the ledger."""
        data = cloudpickle.dumps(content)
        path = self._folder / name
        with storage_errors(path, StorageError), path.open("wb") as file:
            file.write(data)
            if self._durable:  # before the transaction that names it
                file.flush()
                os.fsync(file.fileno())
        return name, hashlib.sha256(data).hexdigest()

    def read(self, name: str, sha256: str, fields: int) -> tuple[Any, ...]:
        """The state in a file that the ledger names."""
        path = self._folder / name
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StorageError(f"The stored state {path} is damaged or missing: restore it, or start a new run.")
        try:
            content: tuple[Any, ...] = cloudpickle.loads(data)
            if len(content) != fields:
                raise ValueError
        except Exception as error:  # classes that have moved or changed since raise anything
            raise StorageError(
                f"The stored state {path} was written by another version of Collegium, or of a package that it uses "
                f"({type(error).__name__}): resume with that version, or start a new run."
            ) from None
        return content

    def drop(self, name: str) -> None:
        """Remove the file of a state that another one has replaced."""
        (self._folder / name).unlink(missing_ok=True)
