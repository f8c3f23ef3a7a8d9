"""Which of a site's runs compute: all of them, or so many at the same time, in the order in which they asked.

Every run has a thread of its own. Where there is one GPU, or little memory, its owner lets them take turns; a
coordinator that waits hears that the site is busy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """At most `at_once` runs compute at the same time; `waits` is called with a run that waits, and how many do not."""

    def __init__(
        self, at_once: int | None = None, waits: Callable[[str, int], None] = lambda run, at_work: None
    ) -> None:
        self._at_once, self._waits = at_once, waits
        self._queue: deque[object] = deque()
        self._at_work = 0
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, run: str) -> Iterator[None]:
        """Compute inside, when it is this run's turn."""
        if self._at_once is None:
            yield
            return
        own = object()
        with self._changed:
            self._queue.append(own)
            if not self._is_next(own):
                self._waits(run, self._at_work)
            self._changed.wait_for(lambda: self._is_next(own))
            self._queue.popleft()
            self._at_work += 1
            self._changed.notify_all()  # there may be room for one more
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _is_next(self, own: object) -> bool:
        return self._queue[0] is own and self._at_work < (self._at_once or 0)
