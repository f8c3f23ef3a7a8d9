"""A run's folder, written during the run, so that a killed run leaves a readable one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError, StorageError
from collegium.runs.results import Run
from collegium.site.ledger import storage_errors

_SECONDS_BETWEEN_SNAPSHOTS: Final = 2.0


class RunFolder:
    """Where a run keeps its record, ledger and results."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file: choose a folder for out.")
        if path.is_dir() and any(path.iterdir()) and not resume:
            raise ConfigError(
                f"{path} is not empty. Continue the run in it with resume=True, or choose another folder."
            )
        self.path = path
        self._last = 0.0
        with storage_errors(path, StorageError):
            path.mkdir(parents=True, exist_ok=True)

    def snapshot(self, run: Run, *, now: bool = False) -> None:
        """The tables so far, every few seconds (or `now`)."""
        if not now and self._last and time.monotonic() - self._last < _SECONDS_BETWEEN_SNAPSHOTS:
            return
        with storage_errors(self.path, StorageError):
            run.write_tables(self.path)
            run.write_about(self.path, {}, finished=False)
        self._last = time.monotonic()

    def finish(self, run: Run) -> None:
        """Everything, and the report."""
        run.save(self.path, overwrite=True)
        run.report(self.path / "report.html")
