"""What a supervisor and an agent say of themselves, each in a small file of the kit: `status`, `health` and metrics are
other programs.

A file is written when something changes, and touched every few seconds, so that others see that it still counts. It is
light: a supervisor runs for months, and a probe asks several times a minute.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from collegium.flare.kits.kit import Kind, kind_of

FILE: Final = "supervisor.json"
AGENT_FILE: Final = "agent/agent.json"
STILL_SECONDS: Final = 30.0
"""A supervisor that has not been heard of for so long stands still."""
_TOUCH_SECONDS: Final = 5.0
_LOCKS: Final[dict[Kind, str]] = {"server": "server.lock", "site": "agent/join.lock"}


@dataclass(frozen=True)
class Part:
    """One program that a supervisor keeps running."""

    process: int | None
    """None while it is not running."""
    restarts: int = 0


@dataclass(frozen=True)
class Standing:
    """A supervisor, as it sees itself. Moments are seconds since 1970."""

    process: int
    version: str
    started: float
    expires: float
    """When its kit's certificate does."""
    connected: bool
    """A site: to the server. A server: it takes connections."""
    since: float
    """Since when it has been connected, or has not."""
    trouble: str = ""
    """Why it is not connected, where that is known."""
    sites: tuple[str, ...] = ()
    """Who is connected to a server, as its log says."""
    parts: dict[str, Part] = field(default_factory=dict)
    heard: float = 0.0
    """When the file was touched last."""


@dataclass(frozen=True)
class Spent:
    """What a ledger says was spent: the epsilon of all differential privacy, at this delta."""

    epsilon: float
    delta: float
    budget: float | None = None
    """All the epsilon that may ever be spent, where there is a limit."""


@dataclass(frozen=True)
class AgentStanding:
    """An agent, as it sees itself."""

    process: int
    started: float
    orders: int = 0
    seconds: float = 0.0
    trouble: str = ""
    """Why it cannot store what it does; empty where it can."""
    spent: Spent | None = None
    waiting: dict[str, int] | None = None
    """How many plans and orders wait for the owner."""


class ToldFile:
    """Where a program says how it is. A full disk must not end what it does, so errors are left aside."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: Any = None
        self._touched = 0.0

    def tell(self, said: Any) -> None:
        """Write a dataclass if it has changed; say otherwise, now and then, that it still holds."""
        now = time.monotonic()
        with suppress(OSError):
            if said != self._last:
                beside = self._file.with_name(f".{self._file.name}")
                beside.unlink(missing_ok=True)
                with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                    json.dump(asdict(said), stream)
                beside.replace(self._file)
                self._last, self._touched = said, now
            elif now - self._touched >= _TOUCH_SECONDS:
                os.utime(self._file)
                self._touched = now


def read_standing(kit: Path) -> Standing | None:
    """What the supervisor of a kit says; None if none is running, or it has not said anything yet."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = kit / FILE
        plain = json.loads(file.read_bytes())
        parts = {str(name): Part(**part) for name, part in plain.pop("parts").items()}
        told = Standing(**plain | {"sites": tuple(plain["sites"]), "parts": parts, "heard": file.stat().st_mtime})
        return told if is_held(_lock(kit), told.process) else None
    return None


def read_agent_standing(kit: Path) -> AgentStanding | None:
    """What the agent of a site said last; None if it never said anything."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        plain = json.loads((kit / AGENT_FILE).read_bytes())
        spent = plain.pop("spent")
        return AgentStanding(**plain, spent=None if spent is None else Spent(**spent))
    return None


def is_running(kit: Path) -> bool:
    """Does a supervisor have this kit?"""
    return is_held(_lock(kit))


def _lock(kit: Path) -> Path:
    return kit / _LOCKS[kind_of(kit) or "site"]


def is_held(lock: Path, process: int | None = None) -> bool:
    """Does a process hold this lock; with `process`, is it that one?"""
    try:
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return process is None or file.read().strip() == str(process).encode()
    except OSError:
        return False
    return False
