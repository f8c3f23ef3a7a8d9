"""A processor core for threads of which one is at work at a time.

Each of a hundred sites in a process has a thread, and where all of them train on a GPU one thread is at work at a time.
Linux moves them from core to core, and each finds the caches of its core full of something else. On a core of their
own they take a fifth less time. (Measured with FedCT: 5 to 100 sites, on 16 cores beside an H200.)
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

ENOUGH: Final = 4
"""With fewer cores, whoever needs one could find only that of these threads left."""


class OneCore:
    """A core that no other run of this user has. It is given back with `release`, or when the process ends."""

    def __init__(self, core: int, every: set[int], lock: int) -> None:
        self._core, self._every, self._lock = core, every, lock

    @classmethod
    def claim(cls) -> OneCore | None:
        """One of those that this process may use; None if they are few or all taken, or threads cannot be kept there.

        A core is taken by a lock on a file, so that two runs on one machine do not share one.
        """
        if not hasattr(os, "sched_setaffinity"):
            return None
        every = os.sched_getaffinity(0)
        if len(every) < ENOUGH:
            return None
        for core in random.SystemRandom().sample(sorted(every), len(every)):
            with suppress(OSError):  # taken, or there is no folder for such files
                return cls(core, every, _locked_file(core))
        return None

    def stay(self) -> None:
        """This thread is on that core from now on, until it is given back."""
        if self._lock >= 0:
            _keep_on({self._core})

    @contextmanager
    def left(self) -> Iterator[None]:
        """A block in which others of these threads may be at work, and this one is on any core."""
        _keep_on(self._every)
        try:
            yield
        finally:
            self.stay()

    def release(self) -> None:
        """Let another run have it. This process's threads are on any core again."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1  # who is still at work does not come back to the core
        for thread in _threads():  # those that libraries began in one of ours live on, and began on its core
            if _cores_of(thread) == {self._core}:
                _keep_on(self._every, thread)
        _unlock(lock)


def _threads() -> list[int]:
    with suppress(OSError):
        return [int(each.name) for each in Path("/proc/self/task").iterdir()]
    return []


# There is no OneCore where these are not, but types are checked for other systems, too.
def _cores_of(thread: int) -> set[int]:
    with suppress(OSError):  # it has ended
        return os.sched_getaffinity(thread) if hasattr(os, "sched_getaffinity") else set()
    return set()


def _keep_on(cores: set[int], thread: int = 0) -> None:
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # cores that were taken from this process meanwhile: it is on those that it has
            os.sched_setaffinity(thread, cores)


def _locked_file(core: int) -> int:
    """The open file of a core that nobody has; an OSError if somebody has it."""
    import fcntl

    path = Path(tempfile.gettempdir()) / f"collegium-{os.getuid()}-core-{core}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def _unlock(file: int) -> None:
    """Also where a child process has the file, too."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)
