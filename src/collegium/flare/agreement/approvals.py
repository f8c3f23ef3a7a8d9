"""What a site's owner has decided on: plans, and where the site wants that, single orders.

An approval is a file with a signature by the site's identity key, for a number of runs and until a day; so is a denial,
which holds until the owner approves after all. Whoever can write into the folder but does not have the key can take an
approval away, and cannot give one.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from collegium.errors import CollegiumError, ConfigError, Refused, StorageError
from collegium.flare.agreement.journal import Journal, plain_name, plain_reason, required_reason
from collegium.flare.agreement.orders import MOST_PENDING, Announce, Orders, checked_digest, files_of, remove
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.signed_words import APPROVAL, DENIAL, read_signed, write_signed
from collegium.flare.agreement.usage import SPENT, Usage
from collegium.flare.kits.identity import write_private
from collegium.protocols.keys import SiteKeys
from collegium.site.ledger import storage_errors

DAYS: Final = 30
"""For how long an approval holds where its owner does not say."""
EXPIRED: Final = "approval-expired"
DENIED: Final = "plan-denied"


@dataclass(frozen=True)
class Approval:
    """What an owner signed: a plan, for so many runs, until the end of a day (UTC)."""

    plan: str
    runs: int
    until: date
    name: str
    """Tells this signature from an earlier one under the same plan."""
    reason: str = ""
    by: str = ""

    @property
    def expired(self) -> bool:
        """Is that day over?"""
        return today() > self.until


@dataclass(frozen=True)
class Denial:
    """What an owner does not agree to, and why."""

    plan: str
    reason: str
    by: str
    told: bool
    """Whether the coordinator is told the reason, and not only that the plan is denied."""


class PlanDenied(Refused):
    """The owner does not agree. `reason` is for the coordinator: empty unless the owner wants it told."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(DENIED, f"This site's owner has denied plan {digest}.")
        self.reason = reason


class Approvals:
    """The plans and orders in an agent's folder, and which of them its owner signed."""

    def __init__(self, folder: Path, keys: SiteKeys, announce: Announce | None = None) -> None:
        self._keys = keys
        self._announce = announce
        self._plans, self._signed, self._denied = (folder / name for name in ("plans", "approvals", "denials"))
        for each in (self._plans, self._signed, self._denied, folder / "orders"):
            with storage_errors(each, StorageError):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.usage = Usage(self._signed / "usage.db")
        """What has been used of them."""
        self.journal = Journal(self._signed / "decisions.db", keys)
        """All that was decided, with reasons."""
        self.orders = Orders(folder, keys, self.journal, announce)

    def propose(self, plan: Plan) -> None:
        """Keep a plan for the owner to decide on. Too many waiting plans are refused: nobody could read them all."""
        file = self._plans / f"{checked_digest(plan.digest)}.json"
        if file.exists():
            return
        if len(self.pending()) >= MOST_PENDING:
            raise Refused("approvals-full", f"{MOST_PENDING} plans are already waiting for approval.")
        write_private(file, plan.to_json().encode())
        if self._announce is not None:
            self._announce.plan_waits(plan.digest)

    def pending(self) -> list[Plan]:
        """Plans that nobody has decided on, oldest first."""
        undecided = (plan for plan in self.plans() if self.approval(plan.digest) is None)
        return [plan for plan in undecided if self.denial(plan.digest) is None]

    def plans(self) -> list[Plan]:
        """All plans that were proposed, oldest first."""
        found = (_read_plan(file) for file in files_of(self._plans))
        return [plan for plan in found if plan is not None]

    def plan(self, digest: str) -> Plan:
        """A plan that was proposed."""
        found = _read_plan(self._plans / f"{checked_digest(digest)}.json")
        if found is None:
            raise ConfigError(f"Plan {digest} not found: `collegium site approve KIT` lists the plans that wait.")
        return found

    def approve(
        self, digest: str, *, runs: int = 1, until: date | None = None, reason: str = "", by: str = ""
    ) -> Approval:
        """Sign a plan: so many new runs of it may then be answered within its limits, as far as the policy goes."""
        self.plan(digest)
        last = today() + timedelta(days=DAYS) if until is None else until
        if runs < 1:
            raise ConfigError(f"An approval is for at least one run, not {runs}.")
        if last < today():
            raise ConfigError(f"An approval cannot end in the past ({last.isoformat()}).")
        approval = Approval(digest, runs, last, secrets.token_hex(8), plain_reason(reason), plain_name(by))
        self.journal.add("approved", digest, reason=reason, by=by, runs=runs, until=last.isoformat())
        words = asdict(approval) | {"until": last.isoformat()}
        write_signed(self._signed / f"{digest}.json", self._keys, APPROVAL, words)
        remove(self._denied / f"{digest}.json")  # which held until now
        return approval

    def deny(self, digest: str, *, reason: str, tell: bool = False, by: str = "") -> Denial:
        """Sign that a plan is not agreed to: it stops where it has begun. With `tell` the coordinator learns why."""
        self.plan(digest)
        denial = Denial(digest, required_reason(reason), plain_name(by), tell)
        self.journal.add("denied", digest, reason=reason, by=by, told=tell)
        write_signed(self._denied / f"{digest}.json", self._keys, DENIAL, asdict(denial))
        remove(self._signed / f"{digest}.json")
        return denial

    def denial(self, digest: str) -> Denial | None:
        """The owner's denial of this plan. It goes before an approval: of two decisions, the one that is safe."""
        said = read_signed(self._denied / f"{checked_digest(digest)}.json", self._keys, DENIAL)
        try:
            denial = Denial(said["plan"], str(said["reason"]), str(said["by"]), said["told"] is True)
        except KeyError:
            return None
        return denial if denial.plan == digest else None

    def approval(self, digest: str) -> Approval | None:
        """What the owner signed for this plan, be it used up or over. A file that was tampered with counts as none."""
        said = read_signed(self._signed / f"{checked_digest(digest)}.json", self._keys, APPROVAL)
        try:  # what is signed by this site was written above, or by an earlier version, which signed less
            last, why = date.fromisoformat(said["until"]), (str(said.get(name, "")) for name in ("reason", "by"))
            approval = Approval(said["plan"], int(said["runs"]), last, said["name"], *why)
        except (KeyError, TypeError, ValueError):
            return None
        return approval if approval.plan == digest else None

    def runs_left(self, approval: Approval) -> int:
        """How many new runs may still begin under it."""
        return 0 if approval.expired else max(0, approval.runs - self.usage.runs(approval.name))

    def approved(self, digest: str) -> bool:
        """May another run of this plan begin?"""
        approval = self.approval(digest)
        return approval is not None and self.denial(digest) is None and self.runs_left(approval) > 0

    def require_not_denied(self, plan: Plan) -> None:
        """Refuse a plan that the owner has denied, whatever the policy says."""
        denial = self.denial(plan.digest)
        if denial is not None:
            raise PlanDenied(plan.digest, denial.reason if denial.told else "")

    def require(self, plan: Plan, run: str) -> str:
        """The name of the approval under which a run may begin or go on; Refused if its owner has given none."""
        self.require_not_denied(plan)
        approval = self.approval(plan.digest)
        if approval is None:
            self.propose(plan)
            raise Refused("waiting", f"Plan {plan.digest} waits for this site's approval.")
        if approval.expired:
            raise Refused(EXPIRED, f"The approval of plan {plan.digest} ended on {approval.until.isoformat()}.")
        if self.usage.plan_of(run) is None and not self.runs_left(approval):
            raise Refused(SPENT, f"All {approval.runs} approved runs of plan {plan.digest} have begun.")
        return approval.name

    def withdraw(self, digest: str, *, reason: str = "", by: str = "") -> None:
        """Take a decision back, and forget the plan. Proposed again, it waits again."""
        files = [folder / f"{checked_digest(digest)}.json" for folder in (self._signed, self._plans, self._denied)]
        if any(file.exists() for file in files):
            self.journal.add("withdrawn", digest, reason=reason, by=by)
        for file in files:
            remove(file)


def today() -> date:
    """The day by which approvals end, the same everywhere."""
    return datetime.now(UTC).date()


def _read_plan(file: Path) -> Plan | None:
    with suppress(OSError, CollegiumError):
        plan = Plan.from_json(file.read_bytes())
        return plan if plan.digest == file.stem else None
    return None
