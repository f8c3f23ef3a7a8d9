"""A site as its owner sees it: plain values from its kit, for `collegium site status`, the site's page and exports.

Nothing here reads a row of data, nor what a release held: the ledger has sizes, kinds, hashes and costs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from collegium.errors import LedgerError
from collegium.flare.agreement.approvals import Approval, Approvals, Denial
from collegium.flare.agreement.plan import Plan
from collegium.flare.kits.identity import AGENT, RUN_ENDED, RUN_LEAD, Installation, instance, read_turn
from collegium.flare.site.desk import Desk
from collegium.flare.site.file import LEDGER
from collegium.flare.site.open_runs import open_runs
from collegium.site.ledger import verify_ledger
from collegium.site.ledger_pages import LedgerPages, RunReleases

State = Literal["open", "asleep", "ending", "ended", "over"]
STATES: dict[State, str] = {
    "open": "open: the coordinator may ask",
    "asleep": "asleep on disk until the coordinator asks again",
    "ending": "ended by you; the agent is closing it",
    "ended": "ended by you, for good",
    "over": "over",
}


@dataclass(frozen=True)
class SiteRun:
    """A run, as a site knows it."""

    run: str
    state: State
    study: str
    """The coordinator's name for it; empty where nothing of it is left here."""
    plan: str
    """The hash of its plan."""
    lead: str
    """Who gives its orders."""
    since: str | None
    heard: str | None
    """When it began, and when the coordinator last said something about it, while it is open."""
    released: RunReleases | None
    """None where nothing has left."""


@dataclass(frozen=True)
class DecidedPlan:
    """A plan that was approved, or denied, or both: the denial holds then."""

    plan: Plan
    approval: Approval | None
    left: int
    """How many runs may still begin."""
    denial: Denial | None


def ledger_of(desk: Desk) -> LedgerPages:
    """What has left the site, and what it refused."""
    return LedgerPages(desk.kit / LEDGER)


def ledger_problem(desk: Desk) -> str:
    """Why a site's ledger cannot be relied on; empty where its chain is intact."""
    path = desk.kit / LEDGER
    try:
        if path.exists():
            verify_ledger(path)
    except LedgerError as error:
        return str(error)
    return ""


def installation_of(desk: Desk) -> str:
    """What the lead asks for on the telephone."""
    return Installation(desk.keys.identity, instance(desk.kit), read_turn(desk.agent)).name


def decided_plans(approvals: Approvals) -> list[DecidedPlan]:
    """The plans that were decided on and are still here, oldest first."""
    found = []
    for plan in approvals.plans():
        approval, denial = approvals.approval(plan.digest), approvals.denial(plan.digest)
        if approval is not None or denial is not None:
            left = 0 if approval is None or denial is not None else approvals.runs_left(approval)
            found.append(DecidedPlan(plan, approval, left, denial))
    return found


def site_runs(desk: Desk) -> list[SiteRun]:
    """Every run that something is known of here: those that are open first, then those that released last."""
    awake = {each.run: each for each in open_runs(desk.kit)}
    released = {each.run: each for each in ledger_of(desk).runs()}
    studies = {plan.digest: plan.study for plan in desk.approvals.plans()}
    runs = []
    for run in [*awake, *(run for run in reversed(released) if run not in awake)]:
        here = awake.get(run)
        plan = here.plan if here is not None else desk.approvals.usage.plan_of(run) or ""
        runs.append(
            SiteRun(
                run=run,
                state=here.state if here is not None else _how_it_ended(desk.kit, run),
                study=here.study if here is not None else studies.get(plan, ""),
                plan=plan,
                lead=_lead(desk.kit, run),
                since=None if here is None else moment(here.since),
                heard=None if here is None else moment(here.heard),
                released=released.get(run),
            )
        )
    return runs


def moment(when: datetime) -> str:
    """A time, as people and programs read it."""
    return when.isoformat(timespec="seconds")


def _how_it_ended(kit: Path, run: str) -> State:
    return "ended" if (kit / AGENT / "runs" / run / RUN_ENDED).is_file() else "over"


def _lead(kit: Path, run: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (kit / AGENT / "runs" / run / RUN_LEAD).read_text(encoding="utf-8")
    return ""
