"""Where the time goes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager


class Stopwatch:
    """Seconds spent, by activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, activity: str) -> AbstractContextManager[None]:
        """Add the time of a block to an activity."""
        return _Block(self.seconds, activity)


class _Block(AbstractContextManager[None]):
    """A class of its own: every step has some of these, and a generator takes several times as long."""

    def __init__(self, seconds: dict[str, float], activity: str) -> None:
        self._seconds, self._activity = seconds, activity

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *raised: object) -> None:
        spent = time.perf_counter() - self._start
        self._seconds[self._activity] = self._seconds.get(self._activity, 0.0) + spent
