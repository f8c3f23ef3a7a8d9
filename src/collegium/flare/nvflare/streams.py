"""What NVFlare remembers of messages that it has received: without a thread for each of them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import Any


class Forgetting:
    """Forgets received messages when their time is over.

    NVFlare keeps the number of a message for a minute, to confirm it again to a sender that has not heard, and starts
    a thread that waits for the end of that minute: a busy session had a thousand. Here the next message forgets those
    whose time is over.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()

    def later(self, task: Any, seconds: float | None = None) -> None:
        """In place of `RxTask._schedule_remove_task`."""
        now, wait = time.monotonic(), task.completed_task_ttl if seconds is None else seconds
        over = []
        with self._lock:
            heapq.heappush(self._due, (now + wait, next(self._order), task))
            while self._due[0][0] <= now:
                over.append(heapq.heappop(self._due)[2])
        for each in over:
            each._remove_task()


def forget_in_one_place() -> None:
    """For this whole process."""
    from nvflare.fuel.f3.streaming.byte_receiver import RxTask

    forgetting = Forgetting()
    RxTask._schedule_remove_task = lambda task, ttl=None: forgetting.later(task, ttl)
