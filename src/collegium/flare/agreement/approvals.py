"""What a site's owner has agreed to: plans, and where the site wants that, single orders.

An approval is a file with a signature by the site's identity key, for a number of runs and until a day. Whoever can
write into the folder but does not have the key can take an approval away, and cannot give one.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from collegium.errors import CollegiumError, ConfigError, Refused, StorageError
from collegium.flare.agreement.planning import Plan
from collegium.flare.agreement.usage import SPENT, Usage
from collegium.flare.kits.identity import write_private
from collegium.protocols import primitives
from collegium.protocols.keys import SiteKeys
from collegium.protocols.primitives import bind
from collegium.site.ledger import storage_errors

MOST_PENDING: Final = 64
DAYS: Final = 30
"""For how long an approval holds where its owner does not say."""
EXPIRED: Final = "approval-expired"
_MOST_BYTES: Final = 1 << 16
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RUN: Final = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class PendingOrder:
    """An order that waits for a person: what would run, and what would leave."""

    run: str
    number: int
    sha256: str
    """Of the order's bytes, arguments and all: another order under the same number needs another approval."""
    steps: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Approval:
    """What an owner signed: a plan, for so many runs, until the end of a day (UTC)."""

    plan: str
    runs: int
    until: date
    name: str
    """Tells this signature from an earlier one under the same plan."""

    @property
    def expired(self) -> bool:
        """Is that day over?"""
        return today() > self.until


class Announce(Protocol):
    """Hears of what begins to wait for the owner."""

    def plan_waits(self, digest: str) -> None:
        """A plan does."""

    def order_waits(self, run: str, number: int) -> None:
        """An order does."""


class Approvals:
    """The plans and orders in an agent's folder, and which of them its owner signed."""

    def __init__(self, folder: Path, keys: SiteKeys, announce: Announce | None = None) -> None:
        self._keys = keys
        self._announce = announce
        self._plans, self._orders, self._signed = (folder / name for name in ("plans", "orders", "approvals"))
        for each in (self._plans, self._orders, self._signed):
            with storage_errors(each, StorageError):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.usage = Usage(self._signed / "usage.db")
        """What has been used of them."""

    def propose(self, plan: Plan) -> None:
        """Keep a plan for the owner to decide on. Too many waiting plans are refused: nobody could read them all."""
        file = self._plans / f"{_digest(plan.digest)}.json"
        if file.exists():
            return
        if len(self.pending()) >= MOST_PENDING:
            raise Refused("approvals-full", f"{MOST_PENDING} plans are already waiting for approval.")
        write_private(file, plan.to_json().encode())
        if self._announce is not None:
            self._announce.plan_waits(plan.digest)

    def pending(self) -> list[Plan]:
        """Plans that nobody has signed, oldest first."""
        return [plan for plan in self.plans() if self.approval(plan.digest) is None]

    def plans(self) -> list[Plan]:
        """All plans that were proposed, oldest first."""
        found = (_read_plan(file) for file in _files(self._plans))
        return [plan for plan in found if plan is not None]

    def plan(self, digest: str) -> Plan:
        """A plan that was proposed."""
        found = _read_plan(self._plans / f"{_digest(digest)}.json")
        if found is None:
            raise ConfigError(f"Plan {digest} not found: `collegium site approve KIT` lists the plans that wait.")
        return found

    def approve(self, digest: str, *, runs: int = 1, until: date | None = None) -> Approval:
        """Sign a plan: so many new runs of it may then be answered within its limits, as far as the policy goes."""
        self.plan(digest)
        last = today() + timedelta(days=DAYS) if until is None else until
        if runs < 1:
            raise ConfigError(f"An approval is for at least one run, not {runs}.")
        if last < today():
            raise ConfigError(f"An approval cannot end in the past ({last.isoformat()}).")
        approval = Approval(digest, runs, last, secrets.token_hex(8))
        self._sign(self._signed / f"{digest}.json", asdict(approval) | {"until": last.isoformat()})
        return approval

    def approval(self, digest: str) -> Approval | None:
        """What the owner signed for this plan, be it used up or over. A file that was tampered with counts as none."""
        said = self._said(self._signed / f"{_digest(digest)}.json")
        try:  # what is signed by this site was written above, or by an earlier version, which signed less
            approval = Approval(said["plan"], int(said["runs"]), date.fromisoformat(said["until"]), said["name"])
        except (KeyError, TypeError, ValueError):
            return None
        return approval if approval.plan == digest else None

    def runs_left(self, approval: Approval) -> int:
        """How many new runs may still begin under it."""
        return 0 if approval.expired else max(0, approval.runs - self.usage.runs(approval.name))

    def approved(self, digest: str) -> bool:
        """May another run of this plan begin?"""
        approval = self.approval(digest)
        return approval is not None and self.runs_left(approval) > 0

    def require(self, plan: Plan, run: str) -> str:
        """The name of the approval under which a run may begin or go on; Refused if its owner has given none."""
        approval = self.approval(plan.digest)
        if approval is None:
            self.propose(plan)
            raise Refused("waiting", f"Plan {plan.digest} waits for this site's approval.")
        if approval.expired:
            raise Refused(EXPIRED, f"The approval of plan {plan.digest} ended on {approval.until.isoformat()}.")
        if self.usage.plan_of(run) is None and not self.runs_left(approval):
            raise Refused(SPENT, f"All {approval.runs} approved runs of plan {plan.digest} have begun.")
        return approval.name

    def withdraw(self, digest: str) -> None:
        """Take an approval back, and forget the plan. Proposed again, it waits again."""
        for folder in (self._signed, self._plans):
            with storage_errors(folder, StorageError):
                (folder / f"{_digest(digest)}.json").unlink(missing_ok=True)

    def propose_order(self, run: str, number: int, sha256: str, *, steps: Sequence[str], kinds: Sequence[str]) -> None:
        """Keep an order for the owner to decide on."""
        file = self._order_file(run, number)
        order = PendingOrder(run, number, _digest(sha256), tuple(steps), tuple(kinds))
        known = _read_order(file)
        if known is not None and known != order:
            raise Refused("other-order", f"A different order {number} of run {run} is waiting for approval.")
        if known is None and len(self.pending_orders()) >= MOST_PENDING:
            raise Refused("approvals-full", f"{MOST_PENDING} orders are already waiting for approval.")
        if known is None:
            write_private(file, json.dumps(asdict(order)).encode())
            if self._announce is not None:
                self._announce.order_waits(run, number)

    def pending_orders(self) -> list[PendingOrder]:
        """Orders that wait, oldest first."""
        found = (_read_order(file) for file in _files(self._orders))
        return [order for order in found if order is not None]

    def approve_order(self, run: str, number: int, sha256: str) -> None:
        """Sign one order, as it was shown: `sha256` says which."""
        file = self._order_file(run, number)
        order = _read_order(file)
        if order is None or order.sha256 != _digest(sha256):
            raise ConfigError(f"Order {number} of run {run} is not waiting for approval, or has changed.")
        self._sign(self._signed / file.name, _words(run, number, sha256))
        with storage_errors(file, StorageError):
            file.unlink(missing_ok=True)

    def order_approved(self, run: str, number: int, sha256: str) -> bool:
        """Has the owner signed exactly this order?"""
        said = self._said(self._signed / self._order_file(run, number).name)
        return said == _words(run, number, _digest(sha256))

    def _order_file(self, run: str, number: int) -> Path:
        if not isinstance(run, str) or not _RUN.fullmatch(run):
            raise ConfigError("A run's id must be 8 to 64 hexadecimal digits.")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise ConfigError("An order's number must be a non-negative integer.")
        return self._orders / f"{run}-{number}.json"

    def _sign(self, file: Path, words: dict[str, Any]) -> None:
        said = {**words, "site": self._keys.party, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        signature = primitives.sign(self._keys.secret, _message(said)).hex()
        write_private(file, json.dumps({**said, "signature": signature}).encode())

    def _said(self, file: Path) -> dict[str, Any]:
        """What this site signed in a file; nothing if it did not."""
        said = _read_json(file)
        try:
            signature = bytes.fromhex(said.pop("signature"))
        except (KeyError, TypeError, ValueError, AttributeError):
            return {}
        signed = primitives.is_signed(bytes.fromhex(self._keys.identity), signature, _message(said))
        if not signed or said.get("site") != self._keys.party:
            return {}
        return {key: value for key, value in said.items() if key not in ("site", "time")}


def today() -> date:
    """The day by which approvals end, the same everywhere."""
    return datetime.now(UTC).date()


def _words(run: str, number: int, sha256: str) -> dict[str, Any]:
    return {"run": run, "number": number, "order": sha256}


def _message(said: dict[str, Any]) -> bytes:
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return bind("collegium approval v1", hashlib.sha256(canonical.encode()).digest())


def _digest(text: str) -> str:
    """A hash becomes part of a path, so nothing else may pass for one."""
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise ConfigError("A plan or order is identified by its hash: 64 hexadecimal digits.")
    return text


def _files(folder: Path) -> list[Path]:
    dated = []
    with storage_errors(folder, StorageError):
        for file in folder.glob("[0-9a-f]*.json"):
            with suppress(FileNotFoundError):  # decided on by somebody else, just now
                dated.append((file.stat().st_mtime_ns, file.name))
    return [folder / name for _, name in sorted(dated)]


def _read_json(file: Path) -> dict[str, Any]:
    """A small table from a file; an empty one where the file is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= _MOST_BYTES:
            read = json.loads(file.read_bytes())
            return read if isinstance(read, dict) else {}
    return {}


def _read_plan(file: Path) -> Plan | None:
    with suppress(OSError, CollegiumError):
        plan = Plan.from_json(file.read_bytes())
        return plan if plan.digest == file.stem else None
    return None


def _read_order(file: Path) -> PendingOrder | None:
    said = _read_json(file)
    with suppress(KeyError, TypeError, ValueError):
        steps, kinds = (tuple(str(each) for each in said[name]) for name in ("steps", "kinds"))
        order = PendingOrder(str(said["run"]), int(said["number"]), _digest(said["sha256"]), steps, kinds)
        return order if file.stem == f"{order.run}-{order.number}" else None
    return None
