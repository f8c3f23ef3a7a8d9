"""What takes more than a page should load: it is worked out by a process of its own, which ends afterwards.

Epsilon needs NumPy and SciPy, and tables need pandas: they would make this process several times as large, and keep it
from answering. The other one gives way to the run that is watched.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collegium.errors import StorageError

_COMMAND: Final = (sys.executable, "-m", "collegium.console.inspecting")
_PAUSE: Final = 250.0
"""A run that goes on is inspected by itself for at most one part in so many of its time, on one core."""
_USUAL: Final = 4.0
"""Seconds of processor time that the first one is expected to take: most of them load packages."""
PATIENCE: Final = _PAUSE * _USUAL
"""Seconds that a run has gone on before it is inspected by itself."""
_LIMIT: Final = 600.0
_TABLES_LIMIT: Final = 120.0
"""Seconds to read the tables of a run that has left no trail; no page is served meanwhile."""
_LOOK: Final = 0.1


def trail_of(folder: Path) -> list[dict[str, Any]]:
    """The trail of a run that has left none, by its tables."""
    command = [*_COMMAND, "trail", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TABLES_LIMIT)
    except subprocess.TimeoutExpired:
        raise StorageError(
            f"The run in {folder} takes too long to read: `collegium report {folder}` shows it."
        ) from None
    found = _read(done.stdout, folder)
    return list(found["trail"])


def _read(text: str, folder: Path) -> dict[str, Any]:
    try:
        found = dict(json.loads(text))
    except ValueError:
        raise StorageError(f"The run in {folder} cannot be read: `collegium report {folder}` says more.") from None
    if "problem" in found:
        raise StorageError(str(found["problem"]))
    return found


@dataclass
class Inspection:
    """The privacy that a run has spent, and whether its ledger is whole, as of some moment."""

    folder: Path
    found: dict[str, Any] | None = None
    when: float = 0.0
    """By the clock on the wall."""
    problem: str = ""
    _cost: float = _USUAL
    """Seconds of processor time that the last one took."""
    _at: float = 0.0
    _of: object = None
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def is_at_work(self) -> bool:
        """Is it being worked out?"""
        return self._task is not None and not self._task.done()

    def ask(self, moment: object, lasted: float, *, now: bool = False) -> None:
        """Have it worked out if the run has come to another `moment`, and not too often (or `now`).

        `lasted` is for how many seconds the run has gone on; infinity if it is over.
        """
        is_first = self.found is None and not self.problem
        waited = lasted if is_first else time.monotonic() - self._at
        due = (is_first or self._of != moment) and waited > _PAUSE * self._cost
        if not self.is_at_work and (now or due):
            self._of = moment
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        begun = time.monotonic()
        with tempfile.TemporaryFile() as answer:
            process = subprocess.Popen(
                [*_COMMAND, "facts", str(self.folder)],
                stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                while process.poll() is None and time.monotonic() - begun < _LIMIT:
                    await asyncio.sleep(_LOOK)
            finally:  # also when the page ends
                process.kill()
                process.wait()
            answer.seek(0)
            text = answer.read().decode("utf-8", "replace")
        self._at, self.when = time.monotonic(), time.time()
        self._cost = self._at - begun  # of one that says nothing of it
        try:
            self.found, self.problem = _read(text, self.folder), ""
            self._cost = float(self.found["seconds"])
        except StorageError as error:
            self.problem = str(error)
