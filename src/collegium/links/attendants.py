"""Threads for sites that meet, and what they have answered.

With a hundred sites in a process, threads that wake each other would cost more than what they do. So an order is begun
only when there is a place for it, by the same thread as the one before if that one is done; and who waits for answers
is woken only when no site waits for a place: while sites are about to answer, answers lie in a row, unless it is long.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from collegium.core.places import Places, locked

T = TypeVar("T")
_MUCH: Final = 1 << 20
"""Bytes of answers: to read them takes long, and most of that leaves Python to the sites."""


class _Attendant:
    """A thread that does one task after the other."""

    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] | None = task
        self.turn = locked()
        """Released with the next task, or without one at the end."""


class _Turn(NamedTuple):
    """A task that begins when there is a place for it."""

    release: Callable[[], None]


class Attendants:
    """Threads that do tasks, each of which begins when there is a place; there are as many as tasks have begun."""

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

        self._places.call(_Turn(partial(self._give, task, future)))
        return future

    def _give(self, task: Callable[[], None], future: Future[Any]) -> None:
        """Begin: in the thread that has become idle last, which may be the one that gives its place to this task."""
        with self._lock:
            attendant = self._idle.pop() if self._idle else None
        if attendant is not None:
            attendant.task = task
            attendant.turn.release()
            return
        try:
            threading.Thread(target=self._attend, args=(_Attendant(task),), daemon=True).start()
        except RuntimeError as error:  # there are as many threads as the system allows
            future.set_exception(error)

    def _attend(self, own: _Attendant) -> None:
        self._begin()
        while own.task is not None:
            own.task()
            own.task = None  # and with it what it answered
            with self._lock:
                stays = not self._closed
                if stays:
                    self._idle.append(own)
            self._places.give_back()
            if stays:
                own.turn.acquire()

    def close(self) -> None:
        """End the threads: those at work when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.turn.release()


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
            enough = failed or len(self._came) == self._expected or self._bytes >= _MUCH
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
