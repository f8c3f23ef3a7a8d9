"""Single orders that wait for a site's owner, where the site wants that, and what was decided on each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from collegium.errors import ConfigError, Refused, StorageError
from collegium.flare.agreement.journal import Journal, required_reason
from collegium.flare.agreement.signed_words import APPROVAL, DENIAL, read_json, read_signed, write_signed
from collegium.flare.kits.identity import write_private
from collegium.protocols.keys import SiteKeys
from collegium.site.ledger import storage_errors

MOST_PENDING: Final = 64
ORDER_DENIED: Final = "order-denied"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RUN: Final = re.compile(r"[0-9a-f]{8,64}")


class Announce(Protocol):
    """Hears of what begins to wait for the owner."""

    def plan_waits(self, digest: str) -> None:
        """A plan does."""

    def order_waits(self, run: str, number: int) -> None:
        """An order does."""


@dataclass(frozen=True)
class PendingOrder:
    """An order that waits for a person: what would run, and what would leave."""

    run: str
    number: int
    sha256: str
    """Of the order's bytes, arguments and all: another order under the same number needs another approval."""
    steps: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called in commands, pages and the journal."""
        return f"{self.run}:{self.number}"


@dataclass(frozen=True)
class Orders:
    """The orders in an agent's folder."""

    folder: Path
    keys: SiteKeys
    journal: Journal
    announce: Announce | None = None

    def propose(self, run: str, number: int, sha256: str, *, steps: Sequence[str], kinds: Sequence[str]) -> None:
        """Keep an order for the owner to decide on."""
        file = self._file("orders", run, number)
        order = PendingOrder(run, number, checked_digest(sha256), tuple(steps), tuple(kinds))
        known = _read(file)
        if known is not None and known != order:
            raise Refused("other-order", f"A different order {number} of run {run} is waiting for approval.")
        if known is None and len(self.pending()) >= MOST_PENDING:
            raise Refused("approvals-full", f"{MOST_PENDING} orders are already waiting for approval.")
        if known is None:
            write_private(file, json.dumps(asdict(order)).encode())
            if self.announce is not None:
                self.announce.order_waits(run, number)

    def pending(self) -> list[PendingOrder]:
        """Orders that wait, oldest first."""
        found = (_read(file) for file in files_of(self.folder / "orders"))
        return [order for order in found if order is not None]

    def approve(self, run: str, number: int, sha256: str, *, reason: str = "", by: str = "") -> None:
        """Sign one order, as it was shown: `sha256` says which."""
        file = self._waiting(run, number, sha256)
        self.journal.add("order approved", f"{run}:{number}", reason=reason, by=by, order=sha256)
        write_signed(self._file("approvals", run, number), self.keys, APPROVAL, _words(run, number, sha256))
        remove(file)

    def deny(self, run: str, number: int, sha256: str, *, reason: str, by: str = "") -> None:
        """Sign that one order is not to be answered, as it was shown: `sha256` says which."""
        file = self._waiting(run, number, sha256)
        self.journal.add("order denied", f"{run}:{number}", reason=required_reason(reason), by=by, order=sha256)
        write_signed(self._file("denials", run, number), self.keys, DENIAL, _words(run, number, sha256))
        remove(file)

    def approved(self, run: str, number: int, sha256: str) -> bool:
        """Has the owner signed exactly this order?"""
        said = read_signed(self._file("approvals", run, number), self.keys, APPROVAL)
        return said == _words(run, number, checked_digest(sha256))

    def denied(self, run: str, number: int, sha256: str) -> bool:
        """Has the owner denied exactly this order?"""
        said = read_signed(self._file("denials", run, number), self.keys, DENIAL)
        return said == _words(run, number, checked_digest(sha256))

    def _waiting(self, run: str, number: int, sha256: str) -> Path:
        file = self._file("orders", run, number)
        order = _read(file)
        if order is None or order.sha256 != checked_digest(sha256):
            raise ConfigError(f"Order {number} of run {run} is not waiting for approval, or has changed.")
        return file

    def _file(self, kind: str, run: str, number: int) -> Path:
        if not isinstance(run, str) or not _RUN.fullmatch(run):
            raise ConfigError("A run's id must be 8 to 64 hexadecimal digits.")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise ConfigError("An order's number must be a non-negative integer.")
        return self.folder / kind / f"{run}-{number}.json"


def checked_digest(text: str) -> str:
    """A hash becomes part of a path, so nothing else may pass for one."""
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise ConfigError("A plan or order is identified by its hash: 64 hexadecimal digits.")
    return text


def files_of(folder: Path) -> list[Path]:
    """The files of plans or orders in a folder, oldest first."""
    dated = []
    with storage_errors(folder, StorageError):
        for file in folder.glob("[0-9a-f]*.json"):
            with suppress(FileNotFoundError):  # decided on by somebody else, just now
                dated.append((file.stat().st_mtime_ns, file.name))
    return [folder / name for _, name in sorted(dated)]


def remove(file: Path) -> None:
    """Take a file away, if it is there."""
    with storage_errors(file, StorageError):
        file.unlink(missing_ok=True)


def _words(run: str, number: int, sha256: str) -> dict[str, Any]:
    return {"run": run, "number": number, "order": sha256}


def _read(file: Path) -> PendingOrder | None:
    said = read_json(file)
    with suppress(KeyError, TypeError, ValueError):
        steps, kinds = (tuple(str(each) for each in said[name]) for name in ("steps", "kinds"))
        order = PendingOrder(str(said["run"]), int(said["number"]), checked_digest(said["sha256"]), steps, kinds)
        return order if file.stem == f"{order.run}-{order.number}" else None
    return None
