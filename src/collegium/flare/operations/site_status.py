"""How a site is doing, for its owner and for programs: connection, what has left, what is spent, what waits.

`collegium site status --json` prints it. Within a `format` names and meanings stay; there may be more of them.
Nothing in it is about rows.
"""

from __future__ import annotations

import math
import os
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from collegium import __version__
from collegium.errors import Refused
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT
from collegium.flare.kits.kit import read_kit
from collegium.flare.operations.certificates import Certificate, certificate_of
from collegium.flare.operations.health import Check, health, is_well
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.file import LEDGER
from collegium.flare.site.open_runs import open_runs
from collegium.flare.site.overview import decided_plans, installation_of, ledger_of, moment
from collegium.flare.site.pause import Pause
from collegium.flare.supervise.standing import is_running, read_standing
from collegium.privacy.budget import spent_claim
from collegium.site.ledger import Ledger, verify_ledger

FORMAT: Final = 1
_DELTA: Final = 1e-5
_REFUSALS: Final = 5


@dataclass(frozen=True)
class Privacy:
    """Differential privacy that was spent, in all runs; `budget` and `left` are null where there is no limit."""

    epsilon: float | None
    """Null where it is not finite, or charges cannot be composed."""
    delta: float
    budget: float | None
    left: float | None


@dataclass(frozen=True)
class OpenRunStatus:
    """A run that is not over."""

    run: str
    study: str
    state: str
    """open, asleep or ending"""
    since: str
    heard: str
    """When the coordinator last said something about it."""


@dataclass(frozen=True)
class RunStatus:
    """What has left in a run."""

    run: str
    releases: int
    bytes: int
    last: str
    round: int
    step: str


@dataclass(frozen=True)
class RefusalStatus:
    """Something that was refused."""

    party: str
    time: str
    run: str
    number: int
    step: str
    code: str


@dataclass(frozen=True)
class SignedPlan:
    """A plan that the owner has signed, and what is left of that."""

    plan: str
    study: str
    runs: int
    left: int
    until: str


@dataclass(frozen=True)
class SiteStatus:
    """A site. Moments are in ISO 8601 with their offset from UTC."""

    name: str
    version: str
    """Of Collegium, as this program has it."""
    joined: bool
    """Whether a supervisor runs (`collegium site join`)."""
    connected: bool
    """Whether it is connected to the server."""
    server: str | None
    """HOST:PORT, as the kit has it; null where the kit has no certificate."""
    agent: int | None
    """The agent's process."""
    installation: str
    certificate: Certificate | None
    privacy: Privacy
    open: tuple[OpenRunStatus, ...]
    runs: tuple[RunStatus, ...]
    """What has left, the run that released last at the end."""
    refusals: tuple[RefusalStatus, ...]
    """The latest five."""
    plans: tuple[str, ...]
    """Plans that wait for the owner, by hash."""
    orders: tuple[str, ...]
    """Orders that wait for the owner, as RUN:NUMBER."""
    signed: tuple[SignedPlan, ...]
    denied: tuple[str, ...]
    """Plans that the owner has denied, by hash."""
    paused: Pause | None
    """Whether the owner has paused the site, since when and why."""
    checks: tuple[Check, ...]
    well: bool
    """Whether all checks are good."""

    def to_plain(self) -> dict[str, Any]:
        """As plain data: what `schema` describes."""
        return {"format": FORMAT, **asdict(self)}


def site_status(kit: str | Path) -> SiteStatus:
    """How the site of a kit is doing. A ledger that was changed is an error."""
    folder, desk = Path(kit), open_desk(kit)
    file, approvals = desk.file, desk.approvals
    certified = read_kit(folder, "site", valid=False) if (folder / "startup").is_dir() else None
    runs, refusals, privacy = _left(desk)
    told, checks = read_standing(folder), health(folder)
    return SiteStatus(
        name=file.name,
        version=__version__,
        joined=is_running(folder),
        connected=told is not None and told.connected,
        server=None if certified is None else certified.address,
        agent=_living(folder / AGENT / "agent.pid"),
        installation=installation_of(desk),
        certificate=None if certified is None else certificate_of(certified),
        privacy=privacy,
        open=tuple(
            OpenRunStatus(each.run, each.study, each.state, moment(each.since), moment(each.heard))
            for each in open_runs(folder)
        ),
        runs=runs,
        refusals=refusals,
        plans=tuple(plan.digest for plan in approvals.pending()),
        orders=tuple(order.name for order in approvals.orders.pending()),
        signed=signed_plans(approvals),
        denied=tuple(each.plan.digest for each in decided_plans(approvals) if each.denial is not None),
        paused=desk.pause,
        checks=checks,
        well=is_well(checks),
    )


def signed_plans(approvals: Approvals) -> tuple[SignedPlan, ...]:
    """What was signed, and how much of it is left."""
    return tuple(
        SignedPlan(each.plan.digest, each.plan.study, each.approval.runs, each.left, each.approval.until.isoformat())
        for each in decided_plans(approvals)
        if each.approval is not None
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of `SiteStatus.to_plain`."""
    return described(TypeAdapter(SiteStatus), FORMAT)


def described(adapter: TypeAdapter[Any], number: int) -> dict[str, Any]:
    """The JSON Schema of a status, with the number of its format."""
    found = adapter.json_schema()
    found["properties"]["format"] = {"const": number}
    found["required"] = ["format", *found["required"]]
    return found


def _left(desk: Desk) -> tuple[tuple[RunStatus, ...], tuple[RefusalStatus, ...], Privacy]:
    """What has left by run, what was refused last, and what was spent."""
    path, file, limit = desk.kit / LEDGER, desk.file, desk.file.budget
    delta = _DELTA if limit is None else limit.delta
    budget = None if limit is None else limit.epsilon
    if not path.is_file():
        return (), (), Privacy(0.0, delta, budget, budget)
    verify_ledger(path)
    pages = ledger_of(desk)
    names = [field.name for field in fields(RunStatus)]
    runs = tuple(RunStatus(**{name: getattr(each, name) for name in names}) for each in pages.runs())
    latest = reversed(pages.newest("refusal", _REFUSALS))
    refusals = tuple(
        RefusalStatus(**{field.name: row[field.name] for field in fields(RefusalStatus)}) for row in latest
    )
    with closing(Ledger(file.name, path)) as ledger:
        epsilon = _epsilon(ledger, delta)
    left = None if budget is None or epsilon is None else max(0.0, budget - epsilon)
    return runs, refusals, Privacy(epsilon, delta, budget, left)


def _living(pid_file: Path) -> int | None:
    """The process that a file names, if there is one."""
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text(encoding="ascii"))
        os.kill(pid, 0)
        return pid
    return None


def _epsilon(ledger: Ledger, delta: float) -> float | None:
    try:
        claim = spent_claim(ledger.charges(of_all=True), delta)
    except Refused:  # charges of two relations
        return None
    epsilon = 0.0 if claim is None else claim.epsilon
    return epsilon if math.isfinite(epsilon) else None
