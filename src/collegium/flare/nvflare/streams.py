"""What NVFlare holds for each message: less than it would, so that a long session takes no more than a short one."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

_LEAST_CHUNK: Final = 1 << 17  # NVFlare warns of shorter ones


class Forgetting:
    """Forgets received messages when their time is over.

    NVFlare keeps the number of a message for a minute, to confirm it again to a sender that has not heard, and starts
    a thread that waits for the end of that minute: a busy session had a thousand. Here the next message forgets those
    whose time is over.
    """

    def __init__(self, at_most: float = math.inf) -> None:
        self._at_most = at_most
        self._due: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()

    def later(self, task: Any, seconds: float | None = None) -> None:
        """In place of `RxTask._schedule_remove_task`."""
        now, over = time.monotonic(), []
        wait = min(self._at_most, task.completed_task_ttl if seconds is None else seconds)
        with self._lock:
            heapq.heappush(self._due, (now + wait, next(self._order), task))
            while self._due[0][0] <= now:
                over.append(heapq.heappop(self._due)[2])
        for each in over:
            each._remove_task()


@cache
def hold_little(seconds: float = math.inf) -> None:
    """For this whole process: no thread for a message that came, no megabyte for each that goes.

    `seconds`: how long a message that came is remembered, at most.
    """
    from nvflare.fuel.f3.streaming.byte_receiver import RxTask
    from nvflare.fuel.f3.streaming.byte_streamer import TxTask

    forgetting = Forgetting(seconds)
    RxTask._schedule_remove_task = lambda task, ttl=None: forgetting.later(task, ttl)
    TxTask.__init__ = _with_small_buffer(TxTask.__init__)


def _with_small_buffer(make: Callable[..., None]) -> Callable[..., None]:
    """NVFlare takes a buffer of a megabyte for every message, however short, and keeps it until it is confirmed."""

    def make_small(
        task: Any, cell: Any, chunk: int, channel: str, topic: str, target: str, headers: Any, stream: Any, *rest: Any
    ) -> None:
        if stream.get_size() > 0:  # not a stream of unknown length
            chunk = min(chunk, max(stream.get_size(), _LEAST_CHUNK))
        make(task, cell, chunk, channel, topic, target, headers, stream, *rest)

    return make_small
