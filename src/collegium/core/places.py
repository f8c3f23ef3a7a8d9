"""How many threads are at work at a time: who wants to work waits for a place, and is called when there is one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from collegium.core.one_core import OneCore


def locked() -> threading.Lock:
    """A lock that somebody else releases: the least that a thread can wait for."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Turn(Protocol):
    """What is released when there is a place: usually a lock that a thread waits for."""

    def release(self) -> None: ...


class Places:
    """So many threads are at work at a time. Who waits is called when there is a place for it, and not before."""

    def __init__(self, number: int, core: OneCore | None = None) -> None:
        """`core`: where these threads are, but for blocks in which they have left their place."""
        self.number = number
        """How many there are."""
        self.core = core
        self._free = number
        self._queue: deque[Turn] = deque()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Wait for a place."""
        turn = locked()
        self.call(turn)
        turn.acquire()

    def call(self, turn: Turn) -> None:
        """Release this when there is a place for it."""
        with self._lock:
            if self._free <= 0:
                self._queue.append(turn)
                return
            self._free -= 1  # so nobody waits
        turn.release()

    def give_back(self) -> None:
        """Let somebody else have one's place."""
        with self._lock:
            if not self._queue or self._free < 0:
                self._free += 1
                return
            turn = self._queue.popleft()
        turn.release()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let somebody else have one's place during a block. Who comes back does not wait, and is one too many.

        Otherwise two could wait for each other: one for a place, and the other, who has it, for what the one holds.
        """
        self.give_back()
        try:
            with nullcontext() if self.core is None else self.core.left():
                yield
        finally:
            with self._lock:
                self._free -= 1

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """The same for who waits in the block, and for a place after it."""
        self.give_back()
        try:
            yield
        finally:
            self.take()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._queue)
