"""A run's folder, written during the run, so that a killed run leaves a readable one."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from collegium.core.labels import shorten
from collegium.errors import ConfigError, StorageError
from collegium.runs import locks, trail
from collegium.runs.record import is_record
from collegium.runs.results import Run
from collegium.runs.run_files import files_of_resumed, name_of, others_files
from collegium.site.ledger import storage_errors

_SECONDS_BETWEEN_SNAPSHOTS: Final = 2.0
_PAUSE: Final = 20.0
"""Snapshots take at most one part in so many of a run's time."""
_LOCK: Final = "lock"
_TRACES: Final = {_LOCK, trail.FILE, trail.STOP}
"""What a run leaves that came to nothing."""


class RunFolder:
    """Where a run keeps its record, ledger and results. One process at a time has it, for as long as it lives.

    A `private` one is for this user's eyes only.
    """

    def __init__(self, path: Path, *, resume: bool, overwrite: bool = False, private: bool = False) -> None:
        if overwrite and not resume:
            remove_earlier_run(path)
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file: choose a folder for out.")
        if has_files(path) and not resume:
            raise ConfigError(not_empty(path, "resume=True", "overwrite=True", "choose another folder"))
        if has_files(path) and not holds_a_run(path):
            raise ConfigError(f"{path} holds files, but no run that could be resumed: choose another folder.")
        self.path = path
        self._files = files_of_resumed(path)  # before this run has written anything
        self.trail = trail.Trail(path)
        """What is written for whoever watches the run."""
        self._next = 0.0
        with storage_errors(path, StorageError):
            path.mkdir(parents=True, exist_ok=True)
            if private:
                path.chmod(0o700)
            self._lock = (path / _LOCK).open("a+", encoding="ascii")
            self._take()

    def _take(self) -> None:
        if not locks.take(self._lock):
            self._lock.seek(0)
            pid = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise ConfigError(
                f"{self.path} is being run by process {pid}: wait for it, or stop it (kill {pid}) and resume."
            )
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def earlier(self) -> dict[str, Any]:
        """What the run that is continued here wrote about itself; nothing if it wrote nothing."""
        with suppress(OSError, ValueError, KeyError):
            return dict(json.loads((self.path / "run.json").read_text(encoding="utf-8"))["about"])
        return {}

    def close(self) -> None:
        """Let other processes have it. Where nothing came of the run, the folder is left as it was."""
        self._lock.close()
        with suppress(OSError):
            if {file.name for file in self.path.iterdir()} <= _TRACES:
                for name in _TRACES:
                    (self.path / name).unlink(missing_ok=True)

    def snapshot(self, so_far: Callable[[], Run], *, now: bool = False) -> None:
        """The tables so far, every few seconds (or `now`), and more seldom where they have become long."""
        start = time.monotonic()
        if not now and start < self._next:
            return
        run = so_far()
        with storage_errors(self.path, StorageError):
            run.write_tables(self.path)
            run.write_about(self.path, {}, own=self._files, finished=False)
        end = time.monotonic()
        self._next = end + max(_SECONDS_BETWEEN_SNAPSHOTS, _PAUSE * (end - start))

    def finish(self, run: Run) -> None:
        """Everything, and the report."""
        run.write(self.path, self._files)
        run.report(self.path / "report.html")
        self.trail.finish()


def has_files(folder: Path) -> bool:
    """Whether there is anything in a folder; hidden files do not count."""
    return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())


def holds_a_run(folder: Path) -> bool:
    """Whether a run was begun in this folder; one that came to nothing leaves nothing but traces."""
    if name_of(folder) is not None or is_record(folder / "record"):
        return True
    return has_files(folder) and not (folder / "record").exists() and not others_files(folder)


def not_empty(folder: Path, resume: str, replace: str, another: str) -> str:
    """What to do where there are files already."""
    if not holds_a_run(folder):
        return f"{folder} is not empty, and holds no run: {another}."
    if others_files(folder):  # a run that is replaced takes nothing of others with it
        return f"{folder} is not empty. Continue the run in it with {resume}, or {another}."
    return f"{folder} is not empty. Continue the run in it with {resume}, replace it with {replace}, or {another}."


def remove_earlier_run(folder: Path) -> None:
    """Remove an earlier run; anything else that is in the way is left alone."""
    if not has_files(folder):
        return
    if not holds_a_run(folder):
        raise ConfigError(f"{folder} is not empty and not a run, so it is not removed: choose another folder.")
    if others := others_files(folder):
        raise ConfigError(
            f"{folder} has files that no run wrote there ({shorten(np.array(others))}), so it is not removed: move "
            "them, or choose another folder."
        )
    RunFolder(folder, resume=True).close()  # an error while a process runs it
    shutil.rmtree(folder)
