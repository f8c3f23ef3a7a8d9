"""Where the time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds spent, by activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, activity: str) -> Iterator[None]:
        """Add the time of a block to an activity."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - start
