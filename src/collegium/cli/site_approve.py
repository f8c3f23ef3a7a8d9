"""``collegium site approve``: a person reads what is proposed, and signs it."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from collegium.cli.options import AsJson, KitFolder
from collegium.cli.site import show_review
from collegium.errors import ConfigError
from collegium.flare.agreement.approvals import DAYS, Approvals, PendingOrder, today
from collegium.flare.agreement.consent import COORDINATOR, Consent, consent
from collegium.flare.agreement.planning import Plan, review
from collegium.flare.kits.identity import AGENT, read_keys
from collegium.flare.site.agreed import public_set
from collegium.flare.site.file import SITE_FILE, SiteFile
from collegium.reports.tables import frame_table

_FEWEST_DIGITS = 8
_REHEARSAL_SECONDS = 120.0


def approve(
    kit: KitFolder,
    digest: Annotated[str | None, typer.Argument(help="A plan's hash, or its first digits.")] = None,
    order: Annotated[str | None, typer.Option(help="One order.", metavar="RUN:NUMBER")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="How many runs of the plan may begin (default 1).")] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help=f"The last day (UTC) of the approval (default: in {DAYS} days)."),
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the plan's approval back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a proposed plan in plain words and sign it; without a plan, list those that are waiting or signed."""
    if digest is not None and order is not None:
        raise ConfigError("Give a plan or --order, not both.")
    if withdraw and digest is None:
        raise ConfigError("--withdraw needs the hash of a plan.")
    if (runs, until) != (None, None) and (digest is None or withdraw):
        raise ConfigError("--runs and --until belong to the approval of a plan: give its hash.")
    file = SiteFile.from_toml(kit / SITE_FILE)
    approvals = Approvals(kit / AGENT, read_keys(kit / AGENT, file.name))
    if order is not None:
        _approve_order(approvals, _chosen(order, approvals), yes=yes, as_json=as_json)
    elif digest is None:
        _list(approvals, as_json=as_json)
    elif withdraw:
        whole = _whole(digest, [plan.digest for plan in approvals.plans()])
        approvals.withdraw(whole)
        _end({"withdrawn": whole}, f"The approval of plan {whole} is withdrawn.", as_json=as_json)
    else:
        plan = approvals.plan(_whole(digest, [plan.digest for plan in approvals.plans()]))
        _approve_plan(kit, approvals, plan, file, (runs, until and until.date()), yes=yes, as_json=as_json)


def _list(approvals: Approvals, *, as_json: bool) -> None:
    plans, orders, signed = approvals.pending(), approvals.pending_orders(), signed_plans(approvals)
    if as_json:
        waiting = [{"digest": plan.digest, "study": plan.study, "algorithm": plan.algorithm["name"]} for plan in plans]
        typer.echo(json.dumps({"plans": waiting, "orders": [vars(order) for order in orders], "signed": signed}))
        return
    console = Console()
    if not plans and not orders:
        console.print("Nothing is waiting for a decision.")
    if plans:
        study = f"study ({COORDINATOR})"
        rows = [{"plan": p.digest[:12], study: repr(p.study), "algorithm": p.algorithm["name"]} for p in plans]
        console.print(frame_table(rows, "Waiting plans"))
    if orders:
        lines = [{"order": f"{o.run}:{o.number}", "steps": _shown(o.steps), "releases": o.kinds[-1]} for o in orders]
        console.print(frame_table(lines, "Waiting orders"))
    if signed:
        shown = [{**each, "plan": each["plan"][:12]} for each in signed]
        console.print(frame_table(shown, "Signed plans, and what is left of each approval"))


def signed_plans(approvals: Approvals) -> list[dict[str, Any]]:
    """What was signed, and how much of it is left."""
    found = ((plan, approvals.approval(plan.digest)) for plan in approvals.plans())
    return [
        {
            "plan": plan.digest,
            "study": plan.study,
            "runs": approval.runs,
            "left": approvals.runs_left(approval),
            "until": approval.until.isoformat(),
        }
        for plan, approval in found
        if approval is not None
    ]


def _approve_plan(
    kit: Path,
    approvals: Approvals,
    plan: Plan,
    file: SiteFile,
    terms: tuple[int | None, date | None],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    if approvals.approved(plan.digest) and terms == (None, None):
        _end({"approved": plan.digest}, f"Plan {plan.digest} is already signed.", as_json=as_json)
        return
    runs, until = terms[0] or 1, terms[1] or today() + timedelta(days=DAYS)
    verdict = review(plan, file)
    if verdict.known:
        terms_text = f"{runs} run{'s' if runs > 1 else ''}, to begin and end by {until.isoformat()} (UTC)"
        if not as_json:
            typer.echo(f"Rehearsing the plan with made-up rows, for at most {_REHEARSAL_SECONDS:.0f} s.")
        found = consent(plan, file, public_set(kit, file, plan), terms_text, seconds=_REHEARSAL_SECONDS)
        if not as_json:
            _explain(found)
        if yes and found.warnings:
            raise ConfigError(f"Not signed, look at it without --yes: {' '.join(found.warnings)}")
    if not as_json:
        show_review(plan, verdict)
    _ask("Sign this plan?", yes=yes)
    approvals.approve(plan.digest, runs=runs, until=until)
    facts = {"approved": plan.digest, "runs": runs, "until": until.isoformat()}
    _end(facts, f"Signed plan {plan.digest} for {runs} run(s), until {until.isoformat()}.", as_json=as_json)


def _explain(found: Consent) -> None:
    """A plan in plain words, and what an approval of it would cover."""
    rows = [{"what": each.what, "proposed": each.words, "who says so": each.source} for each in found.lines]
    console = Console()
    console.print(frame_table(rows, "What is proposed"))
    for warning in found.warnings:
        console.print(f"Warning: {warning}", markup=False)


def _approve_order(approvals: Approvals, order: PendingOrder, *, yes: bool, as_json: bool) -> None:
    name = f"{order.run}:{order.number}"
    if not as_json:
        typer.echo(f"Order {name} runs {_shown(order.steps)} here; {order.kinds[-1]} would leave.")
    _ask("Sign this order?", yes=yes)
    approvals.approve_order(order.run, order.number, order.sha256)
    _end({"approved": name}, f"Signed order {name}.", as_json=as_json)


def _chosen(text: str, approvals: Approvals) -> PendingOrder:
    for order in approvals.pending_orders():
        if text == f"{order.run}:{order.number}":
            return order
    raise ConfigError(f"--order {text}: no such order is waiting; `collegium site approve KIT` lists those that are.")


def _whole(beginning: str, known: list[str]) -> str:
    """The one hash that begins so."""
    found = [digest for digest in known if digest.startswith(beginning.lower())]
    if len(beginning) < _FEWEST_DIGITS or len(found) != 1:
        what = "more than one plan" if len(found) > 1 else "no plan"
        raise ConfigError(
            f"{beginning}: {what} here starts with it. Give at least {_FEWEST_DIGITS} digits; `collegium site approve "
            "KIT` lists the waiting plans."
        )
    return found[0]


def _shown(steps: tuple[str, ...]) -> str:
    return ", ".join(step if step.isprintable() else repr(step) for step in steps)


def _ask(question: str, *, yes: bool) -> None:
    if not yes and not typer.confirm(question, default=False):
        typer.echo("Nothing was signed.", err=True)
        raise typer.Exit(1)


def _end(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(facts) if as_json else text)
