"""Threads for sites that meet, and what they have answered.

With a hundred sites in a process, what costs most beside the sites' work is threads that wake each other. So a thread
is woken only when there is a place for it, and who waits for answers only when no site waits for a place: as long as
sites are about to answer, the answers lie in a row, unless that is a long one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from collegium.core.meeting import Places, locked

T = TypeVar("T")
_MUCH: Final = 1 << 20
"""Bytes of answers: to read them takes long, and most of that leaves Python to the sites."""


class _Attendant:
    """A thread that does one task after the other, each when there is a place for it."""

    def __init__(self) -> None:
        self.turn = locked()
        self.task: Callable[[], None] | None = None


class Attendants:
    """As many threads as there are tasks at a time; each begins when there is a place, and then gives that back."""

    def __init__(self, places: Places, begin: Callable[[], None]) -> None:
        """`begin` is called in each thread, once."""
        self._places, self._begin = places, begin
        self._idle: list[_Attendant] = []
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Do this when there is a place; what is not begun when the threads are closed is cancelled."""
        future: Future[T] = Future()

        def task() -> None:
            if self._closed:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args))
            except BaseException as error:  # raised where it is waited for
                future.set_exception(error)

        self._give(task)
        return future

    def _give(self, task: Callable[[], None]) -> None:
        with self._lock:
            attendant = self._idle.pop() if self._idle else None
        if attendant is None:
            attendant = _Attendant()
            threading.Thread(target=self._attend, args=(attendant,), daemon=True).start()
        attendant.task = task
        self._places.call(attendant.turn)

    def _attend(self, own: _Attendant) -> None:
        self._begin()
        stays = True
        while stays:
            own.turn.acquire()
            if own.task is not None:
                own.task()
            own.task = None  # and with it what it answered
            with self._lock:
                stays = not self._closed
                if stays:
                    self._idle.append(own)
            self._places.give_back()

    def close(self) -> None:
        """End the threads: those at work when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            self._places.call(each.turn)


class Inbox(Generic[T]):
    """Results of so many futures, in the order in which they come.

    Whoever takes them out is woken when all are there, or when nobody `is_busy` with more, or when there is much to do:
    `size` says how many bytes a result has.
    """

    def __init__(self, expected: int, is_busy: Callable[[], bool], size: Callable[[T], int]) -> None:
        self._expected, self._is_busy, self._size = expected, is_busy, size
        self._came: deque[Future[T]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._ready = locked()
        self._called = False

    def put(self, future: Future[T]) -> None:
        """A future is done."""
        failed = future.cancelled() or future.exception() is not None
        with self._lock:
            self._came.append(future)
            self._bytes += 0 if failed else self._size(future.result())
            enough = len(self._came) == self._expected or self._bytes >= _MUCH
            if not self._called and (enough or not self._is_busy()):
                self._called = True
                self._ready.release()

    def drained(self, seconds: float | None = None) -> Iterator[T]:
        """All results; a TimeoutError when so many seconds have passed."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._expected:
            if not self._ready.acquire(timeout=-1 if until is None else max(0.0, until - time.monotonic())):
                raise TimeoutError
            with self._lock:
                self._called, self._bytes = False, 0
                came, self._came = self._came, deque()
                self._expected -= len(came)
            while came:  # they are passed on, not kept
                yield came.popleft().result()
