"""Which coordinators are at work on a server's machine: one small file for each, in the server's kit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from collegium.errors import ConfigError, MissingExtra, StorageError
from collegium.flare.coordinator.progress import Progress

try:
    import psutil
except ImportError:  # it comes with NVFlare
    raise MissingExtra("flare", "A federation") from None


@dataclass(frozen=True)
class Coordinator:
    """A study that is being run, or was when its process ended without saying so."""

    process: int
    begun: float
    """When the process was started, by the system's clock: its number may be given to another one later."""
    study: str
    folder: str
    since: str
    progress: Progress | None = None

    @property
    def alive(self) -> bool:
        """Is the process still there?"""
        with suppress(psutil.Error):
            return bool(abs(psutil.Process(self.process).create_time() - self.begun) < 1.0)
        return False


@contextmanager
def registered(server: Path, study: str, folder: Path) -> Iterator[Callable[[Progress], None]]:
    """Be listed while a study is run; what is given says how far it has come."""
    # not for those who read: a server's supervisor stays small
    from collegium.flare.kits.identity import write_private
    from collegium.site.ledger import storage_errors

    place = _place(server)
    with storage_errors(place, StorageError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    own, now = os.getpid(), datetime.now(UTC).isoformat(timespec="seconds")
    about = Coordinator(own, psutil.Process(own).create_time(), study, str(folder.resolve()), now)
    file = place / f"{own}.json"

    def tell(progress: Progress | None) -> None:
        write_private(file, json.dumps(asdict(replace(about, progress=progress))).encode())

    tell(None)
    try:
        yield tell
    finally:
        file.unlink(missing_ok=True)
    for each in _listed(server):  # of a run that is finished now, nothing is left to be resumed
        if each.folder == about.folder and not each.alive:
            (place / f"{each.process}.json").unlink(missing_ok=True)


def coordinators(server: Path) -> list[Coordinator]:
    """Those that are at work, and those that ended without saying so and were not resumed, oldest first."""
    found = _listed(server)
    at_work = {each.folder for each in found if each.alive}
    return [each for each in found if each.alive or each.folder not in at_work]


def _listed(server: Path) -> list[Coordinator]:
    found = []
    for file in _place(server).glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            plain = json.loads(file.read_text(encoding="utf-8"))
            told = plain.get("progress")
            found.append(Coordinator(**plain | {"progress": None if told is None else Progress(**told)}))
    return sorted(found, key=lambda each: each.since)


def end_coordinator(server: Path, process: int) -> Coordinator:
    """Ask a coordinator to end; its run can be resumed. One that is no longer there is taken off the list."""
    for each in _listed(server):
        if each.process == process:
            if each.alive:
                os.kill(process, signal.SIGTERM)
            else:
                (_place(server) / f"{process}.json").unlink(missing_ok=True)
            return each
    raise ConfigError(f"No coordinator runs as process {process} here: `collegium server status KIT` lists them.")


def _place(server: Path) -> Path:
    return server / "coordinator" / "runs"
