"""Is a server or a site well? For probes, which ask several times a minute: nothing large is loaded for the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from collegium.flare.kits.kit import SOON_DAYS, kind_of
from collegium.flare.supervise.standing import STILL_SECONDS, Standing, read_agent_standing, read_standing

_DAY: Final = 86400


@dataclass(frozen=True)
class Check:
    """One question about a server or a site, and its answer."""

    name: str
    ok: bool
    text: str
    """In words; for what is not well, what to do."""
    alive: bool = False
    """Whether the answer is about its processes: only then may starting it anew help."""


def health(kit: str | Path) -> tuple[Check, ...]:
    """What can be said of the server or the site of this kit, as it is now."""
    folder = Path(kit)
    told = read_standing(folder)
    if told is None:
        command = "collegium server start" if kind_of(folder) == "server" else "collegium site join"
        return (Check("supervisor", False, f"not running: {command} {kit}", alive=True),)
    return (*_processes(folder, told), *_surroundings(folder, told))


def is_well(checks: tuple[Check, ...], *, alive: bool = False) -> bool:
    """Whether all answers are good; with `alive`, those about processes."""
    return all(check.ok for check in checks if check.alive or not alive)


def _processes(kit: Path, told: Standing) -> Iterator[Check]:
    still = time.time() - told.heard
    if still > STILL_SECONDS:
        yield Check("supervisor", False, f"process {told.process} has stood still for {still:.0f} s", alive=True)
    else:
        yield Check("supervisor", True, f"running as process {told.process} since {_moment(told.started)}", alive=True)
    for name, part in told.parts.items():
        again = f", restarted {part.restarts} times" if part.restarts else ""
        if part.process is None:
            yield Check(name, False, f"not running{again}: see {kit / 'logs'}", alive=True)
        elif name == "agent" and not (kit / "agent" / "agent.sock").exists():
            yield Check(name, False, f"process {part.process} is starting, or reads its data{again}", alive=True)
        else:
            yield Check(name, True, f"running as process {part.process}{again}", alive=True)


def _surroundings(kit: Path, told: Standing) -> Iterator[Check]:
    if kind_of(kit) == "site":
        since = f"since {_moment(told.since)}"
        why = told.trouble or "the connection is being made"
        yield Check("connection", told.connected, f"connected {since}" if told.connected else f"none {since}: {why}")
        agent = read_agent_standing(kit)
        trouble = "" if agent is None else agent.trouble
        yield Check("storage", not trouble, trouble or "what the agent does can be stored")
    else:
        here = f"{len(told.sites)} sites connected"
        yield Check("connection", told.connected, here if told.connected else "starting")
    days = (told.expires - time.time()) / _DAY
    soon = ": have it renewed" if days < SOON_DAYS else ""
    last = f"{_moment(told.expires)[:10]}{soon}"
    yield Check("certificate", days > 0, f"valid until {last}" if days > 0 else f"expired on {last}")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
