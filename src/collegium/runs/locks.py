"""Locks on files that a process has for as long as it lives, and who has one.

They belong to the process, not to the file: workers that outlive a killed run do not keep them, and neither does one
that was copied with a folder. Closing any handle of a locked file in the process that has the lock lets go of it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import IO, Any, Final

# What F_GETLK takes and gives (struct flock): Linux begins with the kind of lock, the BSDs and macOS end with it.
_LAYOUT, _KIND, _PID = ("hhqqi4x", 0, 4) if sys.platform == "linux" else ("qqihh", 3, 2)
_QUESTION: Final = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0) if _KIND == 0 else (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)


def take(file: IO[Any]) -> bool:
    """Lock a file that is open for writing; False if another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def holder(path: Path) -> int | None:
    """The process that has locked a file; None if no other one has."""
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_LAYOUT, *_QUESTION))
    except OSError:
        return None
    found = struct.unpack(_LAYOUT, answer)
    return None if found[_KIND] == fcntl.F_UNLCK else int(found[_PID])
