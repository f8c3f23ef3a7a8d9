"""The runs that a page shows, and the one task that follows them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from collegium.console.following import Follower, is_run
from collegium.console.inspection import Inspection
from collegium.errors import ConfigError

_QUICKEST, _SLOWEST = 0.2, 0.47
"""Seconds between looks while somebody watches."""
_SHARE: Final = 0.004
"""Of one core, as far as the slowest pace allows: what is left belongs to the run."""
_IDLE: Final = 1.0
_SEARCH: Final = 2.0
_DEEP: Final = ("*", "*/*")
"""Where the runs of a folder of runs are: runs/demo, runs/grid/fedct/seed-0."""
MOST_RUNS: Final = 50
_MADE_BY: Final = "`collegium run` or `collegium coordinate` has made, such as runs/demo"


class Gathering:
    """Runs in folders, and in folders of folders; those that begin later join in.

    Args:
        folders: What was named.
        wait: Whether a folder that has no run yet is waited for; else it is an error.
    """

    def __init__(self, folders: Sequence[Path], *, wait: bool = False) -> None:
        self._named, self._wait = list(folders), wait
        self.runs: list[Follower] = []
        self.inspections: list[Inspection] = []
        self.watching = 0
        """How many browsers listen."""
        self.left = time.monotonic()
        """When the last one left."""
        self._known: set[Path] = set()
        self._changed = asyncio.Condition()
        self._is_read = False
        """Has everything been read that was there at first?"""
        self._task: asyncio.Task[None] | None = None
        self._searched = 0.0
        for folder in self._named:
            self._require(folder)
        self._search()

    @property
    def is_one(self) -> bool:
        """Is it about one run, and no more to come?"""
        return len(self._named) == 1 and len(self.runs) == 1 and self.runs[0].folder == self._named[0]

    @property
    def is_over(self) -> bool:
        """Is no run going on?"""
        return all(run.state != "running" for run in self.runs)

    def _require(self, folder: Path) -> None:
        if self._wait or is_run(folder):
            return
        if not folder.exists():
            raise ConfigError(f"There is no folder {folder}: name one that {_MADE_BY}.")
        if not folder.is_dir() or not _runs_in(folder):
            raise ConfigError(f"{folder} holds no run: name a folder that {_MADE_BY}.")

    def _search(self) -> None:
        """Take in runs that have begun since."""
        self._searched = time.monotonic()
        for folder in self._named:
            alone = is_run(folder) or (self._wait and not _runs_in(folder))
            for place in [folder] if alone else _runs_in(folder):
                if place not in self._known and len(self.runs) < MOST_RUNS:
                    self._known.add(place)
                    name = place.name if alone else str(place.relative_to(folder))
                    self.runs.append(Follower(place, name or str(place.resolve().name)))
                    self.inspections.append(Inspection(place))

    def look(self) -> bool:
        """Read what is new in every run; True if there may be more."""
        if time.monotonic() - self._searched >= _SEARCH:
            self._search()
        more = [run.look() for run in self.runs]
        return any(more)

    @property
    def count(self) -> int:
        """Changes whenever something is new."""
        return sum(run.count for run in self.runs) + len(self.runs)

    async def news(self, after: int) -> int:
        """Wait until something is new."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_read and self.count != after)
        return self.count

    async def _follow(self) -> None:
        before, spent = -1, time.process_time()
        while True:
            more = self.look()
            if self.count != before or (not more and not self._is_read):
                before, self._is_read = self.count, self._is_read or not more
                async with self._changed:
                    self._changed.notify_all()
            cost, spent = time.process_time() - spent, time.process_time()
            await asyncio.sleep(0 if more else pace(cost) if self.watching else _IDLE)

    def enter(self) -> None:
        """A browser listens."""
        self.watching += 1

    def leave(self) -> None:
        """A browser has left."""
        self.watching -= 1
        self.left = time.monotonic()


def pace(cost: float) -> float:
    """Seconds until the next look, by the seconds of processor time that were spent since the one before."""
    return min(_SLOWEST, max(_QUICKEST, cost / _SHARE))


def _runs_in(folder: Path) -> list[Path]:
    """The runs in the folders of a folder."""
    found: list[Path] = []
    for depth in _DEEP:
        with suppress(OSError):  # folders that are deleted in this moment: the next search tells
            found += [place for place in sorted(folder.glob(depth)) if place.is_dir() and is_run(place)]
    return found
