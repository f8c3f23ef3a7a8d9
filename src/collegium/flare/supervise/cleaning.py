"""What old runs and sessions have left in a kit, and its removal. Ledgers, keys and valid approvals stay."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.errors import StorageError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT, RUN_ENDED, RUN_LEAD, read_keys
from collegium.flare.site.file import SITE_FILE, SiteFile
from collegium.flare.supervise.children import members
from collegium.site.ledger import storage_errors

_JOB: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DAY: Final = 86400.0
_MARKS: Final = {RUN_LEAD, RUN_ENDED}


@dataclass(frozen=True)
class Leftover:
    """Something that may go."""

    path: Path
    what: str
    bytes: int
    days: float
    """How long ago anything in it was last changed."""


def site_leftovers(kit: Path, days: float, open_runs: Collection[str] = ()) -> list[Leftover]:
    """What a site can do without: runs that are over, sessions, public sets that no plan needs, rotated logs."""
    agent = kit / AGENT
    file = SiteFile.from_toml(kit / SITE_FILE)
    approvals = Approvals(agent, read_keys(agent, file.name))
    needed = [plan for plan in approvals.plans() if approvals.approved(plan.digest)]
    plans = {plan.digest for plan in needed}
    public = {plan.public_sha256 for plan in (*needed, *approvals.pending())}
    found = [
        *_old(
            (path for path in (agent / "runs").glob("*") if path.name not in open_runs and not _marked(path)),
            "run",
            days,
        ),
        *_old((path for path in (agent / "plans").glob("*.json") if path.stem not in plans), "plan", days),
        *_old((agent / "orders").glob("*.json"), "order", days),
        *_old((path for path in (agent / "public").glob("*") if path.stem not in public), "public set", days),
        *_sessions(kit, days),
    ]
    # a run that is open goes on with its public set
    return [each for each in found if not open_runs or each.what != "public set"]


def server_leftovers(kit: Path, days: float) -> list[Leftover]:
    """What a server can do without: sessions that are over, and rotated logs."""
    stores = (kit / name for name in ("jobs", "snapshots", "transfer"))
    stored = [path for store in stores if store.is_dir() for path in store.iterdir()]
    return [*_old(_not_running(kit, stored), "session", days), *_sessions(kit, days)]


def remove(leftovers: Collection[Leftover]) -> None:
    """Delete them. Of a run, whose it was and that it was ended stays: nobody else takes it up, or goes on with it."""
    for each in leftovers:
        with storage_errors(each.path, StorageError):
            if each.what == "run" and not each.path.is_symlink():
                for path in each.path.iterdir():
                    if path.name not in _MARKS:
                        _delete(path)
                if not any(each.path.iterdir()):
                    each.path.rmdir()
            else:
                _delete(each.path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _marked(run: Path) -> bool:
    """Whether nothing is left of a run but its marks."""
    names = {path.name for path in run.iterdir()}
    return bool(names) and names <= _MARKS


def _sessions(kit: Path, days: float) -> Iterator[Leftover]:
    folders = (path for path in kit.iterdir() if _JOB.fullmatch(path.name))
    yield from _old(_not_running(kit, folders), "session", days)
    yield from _old((kit / "logs").glob("*.log.*"), "log", days)


def _not_running(kit: Path, paths: Collection[Path] | Iterator[Path]) -> Iterator[Path]:
    """Without the folders of sessions that have a process."""
    commands = []
    for process in members(kit):
        with suppress(Exception):  # it has just ended
            commands.append(" ".join(process.cmdline()))
    return (path for path in paths if not any(path.name in command for command in commands))


def _old(paths: Iterator[Path], what: str, days: float) -> Iterator[Leftover]:
    for path in sorted(paths):
        with suppress(FileNotFoundError), storage_errors(path, StorageError):
            files = [path, *path.rglob("*")] if path.is_dir() else [path]
            states = [file.lstat() for file in files]
            age = (time.time() - max(state.st_mtime for state in states)) / _DAY
            if age >= days:
                yield Leftover(path, what, sum(state.st_size for state in states), age)
