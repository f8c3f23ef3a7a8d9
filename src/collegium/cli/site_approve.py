"""``collegium site approve`` and ``deny``, ``pause`` and ``resume``: a person decides, and signs that."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from collegium.cli.options import AsJson, By, KitFolder, Reason
from collegium.cli.site import show_review
from collegium.errors import ConfigError
from collegium.flare.agreement.approvals import DAYS, Approvals, today
from collegium.flare.agreement.consent import consent
from collegium.flare.agreement.disclosure import COORDINATOR, Consent
from collegium.flare.agreement.journal import required_reason, this_user
from collegium.flare.agreement.orders import PendingOrder
from collegium.flare.agreement.planning import Plan, review
from collegium.flare.operations.site_status import signed_plans
from collegium.flare.site.agreed import public_set
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.overview import decided_plans
from collegium.reports.tables import frame_table

_FEWEST_DIGITS = 8
_REHEARSAL_SECONDS = 120.0


class _Words(NamedTuple):
    """What the journal keeps of a decision beside what was decided."""

    reason: str
    by: str


def approve(
    kit: KitFolder,
    digest: Annotated[str | None, typer.Argument(help="A plan's hash, or its first digits.")] = None,
    order: Annotated[str | None, typer.Option(help="One order.", metavar="RUN:NUMBER")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="How many runs of the plan may begin (default 1).")] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help=f"The last day (UTC) of the approval (default: in {DAYS} days)."),
    ] = None,
    reason: Reason = "",
    by: By = None,
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
    desk = open_desk(kit)
    approvals, words = desk.approvals, _Words(reason, this_user() if by is None else by)
    if order is not None:
        _approve_order(approvals, chosen_order(order, approvals), words, yes=yes, as_json=as_json)
    elif digest is None:
        _list(approvals, as_json=as_json)
    elif withdraw:
        whole = chosen_plan(digest, approvals)
        approvals.withdraw(whole, reason=words.reason, by=words.by)
        end({"withdrawn": whole}, f"The approval of plan {whole} is withdrawn.", as_json=as_json)
    else:
        plan = approvals.plan(chosen_plan(digest, approvals))
        _approve_plan(desk, plan, (runs, until and until.date()), words, yes=yes, as_json=as_json)


def deny(
    kit: KitFolder,
    digest: Annotated[str | None, typer.Argument(help="A plan's hash, or its first digits.")] = None,
    order: Annotated[str | None, typer.Option(help="One order.", metavar="RUN:NUMBER")] = None,
    reason: Reason = "",
    tell: Annotated[bool, typer.Option("--tell", help="Tell the coordinator the reason, too.")] = False,
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deny a plan or an order, signed and with a reason; a run of the plan that has begun stops here."""
    if (digest is None) == (order is None):
        raise ConfigError("Give the hash of a plan, or --order.")
    if tell and order is not None:
        raise ConfigError("--tell belongs to the denial of a plan.")
    approvals, words = open_desk(kit).approvals, _Words(reason, this_user() if by is None else by)
    required_reason(words.reason)
    if order is not None:
        found = chosen_order(order, approvals)
        _ask(f"Deny order {found.name}?", yes=yes)
        approvals.orders.deny(found.run, found.number, found.sha256, reason=words.reason, by=words.by)
        end({"denied": found.name}, f"Denied order {found.name}.", as_json=as_json)
        return
    plan = approvals.plan(chosen_plan(str(digest), approvals))
    _ask(f"Deny plan {plan.digest} of the study {plan.study!r}?", yes=yes)
    approvals.deny(plan.digest, reason=words.reason, tell=tell, by=words.by)
    told = "The coordinator is told the reason." if tell else "The coordinator is told no reason."
    end({"denied": plan.digest, "told": tell}, f"Denied plan {plan.digest}. {told}", as_json=as_json)


def pause(kit: KitFolder, reason: Reason = "", by: By = None, as_json: AsJson = False) -> None:
    """Pause the site: nothing is begun and nothing leaves until `collegium site resume`, whatever is restarted."""
    desk = open_desk(kit)
    made = desk.pause_site(reason=reason, by=this_user() if by is None else by)
    end(asdict(made), f"{desk.file.name} is paused: nothing leaves until you resume it.", as_json=as_json)


def resume(kit: KitFolder, reason: Reason = "", by: By = None, as_json: AsJson = False) -> None:
    """Let a paused site take part again."""
    desk = open_desk(kit)
    desk.resume_site(reason=reason, by=this_user() if by is None else by)
    end({"resumed": desk.file.name}, f"{desk.file.name} takes part again.", as_json=as_json)


def _list(approvals: Approvals, *, as_json: bool) -> None:
    plans, orders = approvals.pending(), approvals.orders.pending()
    signed = [asdict(each) for each in signed_plans(approvals)]
    decided = ((each.plan, each.denial) for each in decided_plans(approvals))
    denied = [
        {"plan": plan.digest, "study": plan.study, "reason": denial.reason, "told": denial.told}
        for plan, denial in decided
        if denial is not None
    ]
    if as_json:
        waiting = [{"digest": plan.digest, "study": plan.study, "algorithm": plan.algorithm["name"]} for plan in plans]
        listed = {"plans": waiting, "orders": [vars(order) for order in orders], "signed": signed, "denied": denied}
        typer.echo(json.dumps(listed))
        return
    console = Console()
    if not plans and not orders:
        console.print("Nothing is waiting for a decision.")
    if plans:
        study = f"study ({COORDINATOR})"
        rows = [{"plan": p.digest[:12], study: repr(p.study), "algorithm": p.algorithm["name"]} for p in plans]
        console.print(frame_table(rows, "Waiting plans"))
    if orders:
        lines = [{"order": o.name, "steps": _shown(o.steps), "releases": o.kinds[-1]} for o in orders]
        console.print(frame_table(lines, "Waiting orders"))
    if signed:
        shown = [{**each, "plan": each["plan"][:12]} for each in signed]
        console.print(frame_table(shown, "Signed plans, and what is left of each approval"))
    if denied:
        console.print(frame_table([{**each, "plan": str(each["plan"])[:12]} for each in denied], "Denied plans"))


def _approve_plan(
    desk: Desk, plan: Plan, terms: tuple[int | None, date | None], words: _Words, *, yes: bool, as_json: bool
) -> None:
    approvals, file = desk.approvals, desk.file
    if approvals.approved(plan.digest) and terms == (None, None):
        end({"approved": plan.digest}, f"Plan {plan.digest} is already signed.", as_json=as_json)
        return
    runs, until = terms[0] or 1, terms[1] or today() + timedelta(days=DAYS)
    verdict = review(plan, file)
    if verdict.known:
        terms_text = f"{runs} run{'s' if runs > 1 else ''}, to begin and end by {until.isoformat()} (UTC)"
        if not as_json:
            typer.echo(f"Rehearsing the plan with made-up rows, for at most {_REHEARSAL_SECONDS:.0f} s.")
        found = consent(plan, file, public_set(desk.kit, file, plan), terms_text, seconds=_REHEARSAL_SECONDS)
        if not as_json:
            _explain(found)
        if yes and found.warnings:
            raise ConfigError(f"Not signed, look at it without --yes: {' '.join(found.warnings)}")
    if not as_json:
        show_review(plan, verdict)
    _ask("Sign this plan?", yes=yes)
    approvals.approve(plan.digest, runs=runs, until=until, reason=words.reason, by=words.by)
    facts = {"approved": plan.digest, "runs": runs, "until": until.isoformat()}
    end(facts, f"Signed plan {plan.digest} for {runs} run(s), until {until.isoformat()}.", as_json=as_json)


def _explain(found: Consent) -> None:
    """A plan in plain words, and what an approval of it would cover."""
    rows = [{"what": each.what, "proposed": each.words, "who says so": each.source} for each in found.lines]
    console = Console()
    console.print(frame_table(rows, "What is proposed"))
    for warning in found.warnings:
        console.print(f"Warning: {warning}", markup=False)


def _approve_order(approvals: Approvals, order: PendingOrder, words: _Words, *, yes: bool, as_json: bool) -> None:
    name = order.name
    if not as_json:
        typer.echo(f"Order {name} runs {_shown(order.steps)} here; {order.kinds[-1]} would leave.")
    _ask("Sign this order?", yes=yes)
    approvals.orders.approve(order.run, order.number, order.sha256, reason=words.reason, by=words.by)
    end({"approved": name}, f"Signed order {name}.", as_json=as_json)


def chosen_order(text: str, approvals: Approvals) -> PendingOrder:
    """The waiting order of that name."""
    for order in approvals.orders.pending():
        if text == order.name:
            return order
    raise ConfigError(f"--order {text}: no such order is waiting; `collegium site approve KIT` lists those that are.")


def chosen_plan(beginning: str, approvals: Approvals) -> str:
    """The hash of the one plan whose hash begins so."""
    return whole_digest(beginning, [plan.digest for plan in approvals.plans()])


def whole_digest(beginning: str, known: list[str]) -> str:
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


def end(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    """What a command says last, to people or to programs."""
    typer.echo(json.dumps(facts) if as_json else text)
