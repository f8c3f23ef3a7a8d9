"""Limits on wall-clock time that are sharp on an idle machine and hold on a busy one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def seconds(idle: float) -> float:
    """So many seconds of an idle machine; more in proportion to the processes that share its cores."""
    return idle * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def until(condition: Callable[[], Found], idle: float = 60.0, every: float = 0.05) -> Found:
    """What the condition gives as soon as it holds."""
    start = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - start < seconds(idle), "it did not come"
        time.sleep(every)
    return found
