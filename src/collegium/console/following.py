"""Follows the trail of a run, which a process may be writing: through its end, its kill, and its continuation."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Final, Literal

from collegium.console.history import History
from collegium.console.inspection import trail_of
from collegium.errors import StorageError
from collegium.runs import locks
from collegium.runs.trail import FILE

State = Literal["waiting", "running", "finished", "interrupted", "failed", "killed"]
LOG: Final = "resumed.log"
"""What a run that was continued from the page prints."""
CHUNK: Final = 1 << 20
"""Bytes that are read at once, so that pages are served in between."""
_LOOK_AT_LOCK: Final = 0.5


def is_run(folder: Path) -> bool:
    """Does a folder hold a run, or has one begun in it?"""
    return any((folder / name).is_file() for name in (FILE, "run.json", "record"))


class Follower:
    """What is known of the run in a folder. `look` reads what is new."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.history = History(str(folder))
        self.holder: int | None = None
        """The process that writes at present."""
        self.problem = ""
        """Why the run cannot be shown, in one line."""
        self.count = 0
        """How often something was new."""
        self.continued: subprocess.Popen[bytes] | None = None
        """The process that was started from the page to go on with the run."""
        self.continued_at = 0.0
        self._file: IO[bytes] | None = None
        self._inode = 0
        self._rest = b""
        self._looked = -math.inf
        self._told_tables = False

    @property
    def state(self) -> State:
        """Where the run stands."""
        how = self.history.how
        if how in ("finished", "interrupted", "failed"):
            return how  # type: ignore[return-value]
        if self.holder is not None:
            return "running"
        return "waiting" if self.history.process is None else "killed"

    @property
    def lasted(self) -> float:
        """Seconds that the run has gone on in its present process; infinity if it does not."""
        if self.state == "waiting":
            return 0.0
        return time.time() - self.history.opened if self.state == "running" else math.inf

    @property
    def is_starting(self) -> bool:
        """Has a process that was started from the page not come to the run yet?"""
        waited_for = self.continued is not None and self.continued.poll() is None
        return waited_for and not self.history.opened >= self.continued_at

    def last_words(self) -> str | None:
        """What the process that was started from the page said last, if it ended without running; None if not."""
        if self.continued is None or self.continued.poll() in (None, 0) or self.state == "running":
            return None
        try:
            lines = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:500]

    def look(self) -> bool:
        """Read what was written since; True if there may be more."""
        opened = self.history.opened
        try:
            more = self._read()
        except StorageError as error:
            self._complain(str(error))
            more = False
        except OSError as error:  # a disk or a share that fails: whoever watches other runs goes on
            self._forget()
            self._complain(f"Cannot read {self.folder}: {error.strerror}.")
            more = False
        now = time.monotonic()
        # A process that has just begun would be taken for one that is no more.
        begun = self.history.process is not None and self.history.opened != opened
        if begun or (not more and now - self._looked >= _LOOK_AT_LOCK):
            self._looked = now
            # Asking for the lock closes a handle of the file: harmless here, since this process never locks it.
            holder = locks.holder(self.folder / FILE)
            if holder != self.holder:
                self.holder = holder
                self.count += 1
        return more

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.count += 1

    def _read(self) -> bool:
        if not self._open():
            return False
        assert self._file is not None  # noqa: S101
        data = self._file.read(CHUNK)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        self.count += 1
        return len(data) == CHUNK

    def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except ValueError:  # half a line of a process that was killed
            return
        if isinstance(told, dict):
            self.history.take(told)

    def _open(self) -> bool:
        """The trail, if there is one; another one in its place is another run."""
        path = self.folder / FILE
        try:
            found = path.stat()
        except OSError:
            self._forget()
            self._read_tables()
            return False
        if self._file is not None and (found.st_ino != self._inode or found.st_size < self._file.tell()):
            self._forget()
        if self._file is None:
            try:
                self._file = path.open("rb")
            except OSError as error:
                raise StorageError(f"Cannot read {path}: {error.strerror}.") from None
            self._inode = os.fstat(self._file.fileno()).st_ino
            self.history, self._rest, self.problem = History(str(self.folder)), b"", ""
        return True

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._rest, self.history = None, b"", History(str(self.folder))
            self._told_tables = False
            self.count += 1

    def _read_tables(self) -> None:
        """Of a run that has left no trail, what its tables tell."""
        if self._told_tables or not (self.folder / "run.json").is_file():
            return
        self._told_tables = True
        lines: list[dict[str, Any]] = trail_of(self.folder)
        for line in lines:
            self.history.take(line)
        self.count += 1
