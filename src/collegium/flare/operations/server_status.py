"""How a federation's server is doing, for whoever runs it and for programs: which sites are there, which studies run.

`collegium server status --json` prints it. Within a `format` names and meanings stay; there may be more of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from collegium import __version__
from collegium.flare.coordinator.installations import Installations
from collegium.flare.coordinator.progress import Progress
from collegium.flare.coordinator.register import coordinators
from collegium.flare.kits.kit import read_kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.operations.certificates import Certificate, certificate_of
from collegium.flare.operations.health import Check, health, is_well
from collegium.flare.operations.site_status import described
from collegium.flare.supervise.standing import is_running, read_standing

FORMAT: Final = 1


@dataclass(frozen=True)
class StudyStatus:
    """A study that is run on this machine, or was when its process ended without saying so."""

    process: int
    study: str
    folder: str
    since: str
    alive: bool
    begun: float
    """When the process was started, in seconds since 1970."""
    progress: Progress | None
    """How far it has come; null before its first round."""


@dataclass(frozen=True)
class ServerStatus:
    """A server. Moments are in ISO 8601 with their offset from UTC."""

    federation: str
    version: str
    """Of Collegium, as this program has it."""
    address: str
    """HOST:PORT, as sites dial it."""
    running: bool
    certificate: Certificate
    connected: tuple[str, ...]
    """The sites that are connected, as the server's log says."""
    shut_out: tuple[str, ...]
    """Sites of which another installation has answered: `collegium server confirm` decides."""
    revoked: tuple[str, ...]
    """Names and serial numbers that `collegium server revoke` has put on the list."""
    studies: tuple[StudyStatus, ...]
    checks: tuple[Check, ...]
    well: bool
    """Whether all checks are good."""
    sites: dict[str, str | None] | None = None
    """With a lead's kit: when the server itself last heard of each site; null otherwise."""

    def to_plain(self) -> dict[str, Any]:
        """As plain data: what `schema` describes."""
        return {"format": FORMAT, **asdict(self)}


def server_status(kit: str | Path, lead: str | Path | None = None) -> ServerStatus:
    """How the server of a kit on this machine is doing; with a lead's kit, the server itself is asked for its sites."""
    server = read_kit(kit, "server", valid=False)
    told, checks = read_standing(server.folder), health(server.folder)
    return ServerStatus(
        federation=server.federation,
        version=__version__,
        address=server.address,
        running=is_running(server.folder),
        certificate=certificate_of(server),
        connected=() if told is None else told.sites,
        shut_out=tuple(Installations(server.folder / "coordinator").waiting()) if _has_book(server.folder) else (),
        revoked=tuple(Revoked(server.folder).words()),
        studies=tuple(
            StudyStatus(each.process, each.study, each.folder, each.since, each.alive, each.begun, each.progress)
            for each in coordinators(server.folder)
        ),
        checks=checks,
        well=is_well(checks),
        sites=None if lead is None else _asked(lead),
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of `ServerStatus.to_plain`."""
    return described(TypeAdapter(ServerStatus), FORMAT)


def _has_book(kit: Path) -> bool:
    return (kit / "coordinator").is_dir()


def _asked(lead: str | Path) -> dict[str, str | None]:
    from collegium.flare.nvflare.admin import connection, registered_sites

    with connection(read_kit(lead, "lead")) as opened:
        seen = registered_sites(opened)
    found: dict[str, str | None] = {}
    for name, when in sorted(seen.items()):
        found[name] = None
        with suppress(ValueError, OverflowError, OSError):
            found[name] = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return found
