"""Stop a run, and continue one: what its owner may do from the page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from collegium.console.following import LOG, Follower
from collegium.errors import ConfigError
from collegium.runs.trail import FILE, STOP

_COMMANDS: Final = ("run", "coordinate")


def stop(follower: Follower) -> str:
    """Ask a run to end: it does so as by Ctrl-C, and can be continued."""
    if follower.state != "running":
        raise ConfigError("The run is not running: there is nothing to stop.")
    file = follower.folder / STOP
    try:
        file.touch()
    except OSError as error:
        raise ConfigError(f"Cannot write to {follower.folder}: {error.strerror}. Stop its process instead.") from None
    return "The run was asked to stop."


def resume(follower: Follower) -> str:
    """Start the command that continues the run, as the process that began it has written it down."""
    if follower.state not in ("interrupted", "failed", "killed"):
        raise ConfigError("There is nothing to continue: the run is going on, or is finished.")
    if follower.is_starting:
        raise ConfigError("The run is being continued already: it is starting.")
    command = continuation(follower)
    if command is None:
        raise ConfigError(
            "This run was started by a program: continue it there, with cg.run(..., out=..., resume=True)."
        )
    with (follower.folder / LOG).open("ab") as log:
        follower.continued = subprocess.Popen(
            [sys.executable, "-m", "collegium", *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    follower.continued_at = time.time()
    follower.count += 1
    return f"The run is being continued. What it prints is in {follower.folder / LOG}."


def continuation(follower: Follower) -> list[str] | None:
    """The command that continues a run, without `collegium`; None if none is known, or if somebody else wrote it."""
    command = follower.history.command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    if not command or command[0] not in _COMMANDS or not _is_ours(follower.folder / FILE):
        return None
    return command


def _is_ours(path: Path) -> bool:
    """A file that only this user can have written: it says what to run."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
