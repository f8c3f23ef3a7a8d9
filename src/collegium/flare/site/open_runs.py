"""The runs that are open at a site. Those that nobody asks for are put to sleep; the owner can see and end all of them.

A run that sleeps has no thread and no model in memory. All that it needs is on disk: the coordinator's next order finds
it not open, opens it again, and it goes on where it was. What the owner sees is a small file in the run's folder, and
ending a run is another one, so that both work while the agent is running and while it is not.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from collegium.errors import ConfigError, Refused, StorageError
from collegium.flare.kits.identity import AGENT, RUN_ENDED, write_private
from collegium.site.ledger import storage_errors

if TYPE_CHECKING:
    from collegium.flare.site.engagement import Engagement

MOST_RUNS: Final = 32
"""Open at the same time, those that wait for their owner or for the public set included."""
_OPEN: Final = "open.json"
_RUN: Final = re.compile(r"[0-9a-f]{32}")
_HEARD_SECONDS: Final = 10.0
State = Literal["open", "asleep", "ending"]


@dataclass(frozen=True)
class OpenRun:
    """A run that was begun at a site and is not over."""

    run: str
    study: str
    plan: str
    since: datetime
    heard: datetime
    """When the coordinator last said something about it."""
    state: State
    """``ending``: its owner ended it, and the agent has yet to see that."""


def open_runs(kit: str | Path) -> list[OpenRun]:
    """The runs that are open at the site of this kit, the one that was begun first first."""
    found = (_read(folder) for folder in _folders(Path(kit) / AGENT / "runs"))
    return sorted((run for run in found if run is not None), key=lambda run: run.since)


def end_run(kit: str | Path, run: str) -> None:
    """End a run for good: no order of it is answered any more, whoever asks, and its keys and state are removed.

    A step that is running is finished, but what it would release does not leave.
    """
    require_open(kit, run)
    file = Path(kit) / AGENT / "runs" / run / RUN_ENDED
    write_private(file, _now().isoformat(timespec="seconds").encode())


def require_open(kit: str | Path, run: str) -> None:
    """An error if a run is not open at the site of this kit."""
    if not _RUN.fullmatch(run) or _read(Path(kit) / AGENT / "runs" / run) is None:
        raise ConfigError(f"No run {run!r} is open here: `collegium site status` lists those that are.")


class OpenRuns:
    """An agent's own table of them. `left` is called with the name of each run that is no longer in it."""

    def __init__(self, folder: Path, idle_seconds: float, left: Callable[[str], None]) -> None:
        self._folder = folder / "runs"
        self._idle = idle_seconds
        self._left = left
        self._runs: OrderedDict[str, tuple[Engagement | None, float]] = OrderedDict()
        self._lock = threading.RLock()
        for each in _folders(self._folder):  # those of a process that is gone
            _write_state(each, "asleep")
        self.tidy()

    def __len__(self) -> int:
        """How many are awake."""
        with self._lock:  # every connection asks, while others are heard
            return sum(engagement is not None for engagement, _ in self._runs.values())

    def get(self, run: str) -> Engagement | None:
        """The run if it is awake. Whoever asks has been heard. Refused if its owner has ended it."""
        self._require_not_ended(run)
        with self._lock:
            engagement = self._runs.get(run, (None, 0.0))[0]
            if run in self._runs:
                self._hear(run, engagement)
            return engagement

    def ask(self, run: str) -> None:
        """A run asks to be opened: it has a place from now on. Refused if all places are taken by runs at work."""
        self._require_not_ended(run)
        with self._lock:
            if run not in self._runs and len(self._runs) >= MOST_RUNS and not any(map(self._leave, list(self._runs))):
                raise Refused("too-many-runs", f"{MOST_RUNS} runs are open, and all of them are at work.")
            self._hear(run, self._runs.get(run, (None, 0.0))[0])

    def open(self, run: str, engagement: Engagement) -> None:
        """It is open, and its owner can see it."""
        facts = {"study": engagement.plan.study, "plan": engagement.plan.digest}
        before = _read(engagement.folder)
        since = _now() if before is None else before.since
        try:
            _write(engagement.folder, facts | {"since": since.isoformat(timespec="seconds"), "state": "open"})
        except StorageError:
            engagement.sleep()
            raise
        with self._lock:
            self._hear(run, engagement)

    def close(self, run: str) -> None:
        """The coordinator says that it is over."""
        with self._lock:
            engagement = self._runs.pop(run, (None, 0.0))[0]
        if engagement is not None:
            _write_state(engagement.folder, "asleep")  # in case it cannot be ended: it can still be opened again
            engagement.end()
        (self._folder / run / _OPEN).unlink(missing_ok=True)
        self._left(run)

    def abandon(self, run: str, engagement: Engagement) -> None:
        """What a run did could not be stored: as after a crash, it is opened again from what could."""
        with self._lock:
            if self._runs.get(run, (None, 0.0))[0] is engagement:
                del self._runs[run]
        engagement.abandon()

    def tidy(self) -> None:
        """Put runs to sleep that were not heard of for long, and end those that their owner has ended."""
        with self._lock:
            for run, (_, heard) in list(self._runs.items()):
                if time.monotonic() - heard > self._idle:
                    self._leave(run)
        for folder in _folders(self._folder):
            if (folder / RUN_ENDED).is_file():
                self.close(folder.name)
                for state in folder.glob("state-*.pkl"):  # with the run's keys in it
                    state.unlink(missing_ok=True)

    def _hear(self, run: str, engagement: Engagement | None) -> None:
        before = self._runs.get(run, (None, 0.0))
        if engagement is not None and time.monotonic() - before[1] > _HEARD_SECONDS:
            with suppress(OSError):
                os.utime(engagement.folder / _OPEN)
        self._runs[run] = engagement, time.monotonic()
        self._runs.move_to_end(run)

    def _leave(self, run: str) -> bool:
        """Take a run out of the table, unless it is at work."""
        engagement = self._runs[run][0]
        if engagement is not None:
            if not engagement.sleep():
                return False
            _write_state(engagement.folder, "asleep")
        del self._runs[run]
        self._left(run)
        return True

    def _require_not_ended(self, run: str) -> None:
        if (self._folder / run / RUN_ENDED).is_file():
            raise Refused("run-ended", f"The owner of this site has ended run {run}.")


def _folders(runs: Path) -> Iterator[Path]:
    with storage_errors(runs, StorageError):
        folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return (folder for folder in folders if (folder / _OPEN).is_file())


def _read(folder: Path) -> OpenRun | None:
    """What the agent wrote of a run; None if it is not open."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        file = folder / _OPEN
        facts, heard = json.loads(file.read_bytes()), datetime.fromtimestamp(file.stat().st_mtime, UTC)
        state: State = "open" if facts["state"] == "open" else "asleep"
        if (folder / RUN_ENDED).is_file():
            state = "ending"
        since = datetime.fromisoformat(facts["since"])
        return OpenRun(folder.name, str(facts["study"]), str(facts["plan"]), since, heard, state)
    return None


def _write(folder: Path, facts: dict[str, str]) -> None:
    write_private(folder / _OPEN, json.dumps(facts).encode())


def _write_state(folder: Path, state: State) -> None:
    """Change what is said of a run, and leave when it was heard of last."""
    found = _read(folder)
    if found is not None:
        facts = {"study": found.study, "plan": found.plan, "since": found.since.isoformat(timespec="seconds")}
        with suppress(StorageError, OSError):  # what is said of a run must not decide what becomes of it
            _write(folder, facts | {"state": state})
            os.utime(folder / _OPEN, (found.heard.timestamp(),) * 2)


def _now() -> datetime:
    return datetime.now(UTC)
