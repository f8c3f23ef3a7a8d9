"""The parts of a hospital's page, out of what its kit says. Every text that others wrote is escaped on its way in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from collegium.console.page import Markup, element, join
from collegium.flare.agreement.journal import Decision
from collegium.flare.agreement.orders import PendingOrder
from collegium.flare.agreement.plan import Plan
from collegium.flare.operations.certificates import Certificate
from collegium.flare.site.export_page import budget_chart
from collegium.flare.site.overview import STATES, DecidedPlan, SiteRun
from collegium.flare.site.pause import Pause
from collegium.flare.site.spending import Spending
from collegium.flare.supervise.standing import Standing
from collegium.privacy.claims import UNPROTECTED
from collegium.reports import style
from collegium.reports.refusals import CODES, UNKNOWN
from collegium.reports.style import code, number
from collegium.reports.tables import bytes_text

ACTS: Final = {
    "approved": "approved a plan",
    "denied": "denied a plan",
    "withdrawn": "took a decision back",
    "order approved": "approved an order",
    "order denied": "denied an order",
    "paused": "paused the site",
    "resumed": "resumed the site",
    "run ended": "ended a run",
}


def badge(text: str, kind: str) -> Markup:
    """A state in one or two words."""
    return element("span", text, class_=f"state {kind}".strip())


def state_line(joined: bool, told: Standing | None, pause: Pause | None) -> Markup:
    """Is the site there, and does it take part?"""
    if not joined:
        connection = badge("not joined", "warn")
        words = "No coordinator can reach this site: `collegium site join` is not running."
    elif told is None or not told.connected:
        connection = badge("not connected", "bad")
        words = (told.trouble if told is not None else "") or "The site is trying to reach the server."
    else:
        connection = badge("connected", "good live")
        words = "The site takes part." if pause is None else "The site is connected, and answers that it is paused."
    parts = [connection, *([badge("paused", "bad")] if pause is not None else [])]
    return element("p", join([*(join([part, " "]) for part in parts), words]), id="state")


def certificate_line(found: Certificate | str | None, kit: object) -> Markup:
    """How long the site's certificate lasts, and what to do when that is not long."""
    if found is None:
        return Markup("")
    if isinstance(found, str):
        return element("p", found, class_="notice bad", id="certificate")
    day = found.until[:10]
    if found.days < 0:
        words = f"The site's certificate expired on {day}: no server lets it in. "
    else:
        words = f"The site's certificate lasts {found.days} more day{'s' if found.days != 1 else ''}, until {day}. "
    advice = f"Have it renewed: collegium site renew {kit}" if found.soon else ""
    return element("p", words + advice, class_="notice bad" if found.soon else "meta", id="certificate")


def pause_notice(pause: Pause | None) -> Markup:
    """That the site is paused, and how to end that."""
    if pause is None:
        return Markup("")
    why = f": {pause.reason}" if pause.reason else "."
    who = f" by {pause.by}" if pause.by else ""
    since = f" since {when(pause.since)} (UTC)" if pause.since else ""
    return element(
        "p", f"The site is paused{since}{who}{why} Nothing is begun, and nothing leaves.", class_="notice bad"
    )


def tiles(runs: list[SiteRun], spending: Spending, refusals: int) -> Markup:
    """The site at a glance."""
    released = [each.released for each in runs if each.released is not None]
    count, size = sum(each.releases for each in released), sum(each.bytes for each in released)
    bare = sum(each.unprotected for each in released)
    awake = sum(each.state == "open" for each in runs)
    limit = "no budget is set" if spending.limit is None else f"of {spending.limit:g} in all"
    return style.tiles(
        [
            ("open runs", str(awake), f"of {len(runs)} known here"),
            ("releases", f"{count:,}", f"{bare:,} without differential privacy" if count else "nothing has left"),
            ("sent", bytes_text(size), "in all runs"),
            ("epsilon spent", f"{spending.spent:.4g}", f"{limit}, at delta {spending.delta:g}"),
            ("refusals", f"{refusals:,}", "see below"),
        ]
    )


def waiting(plans: list[Plan], orders: list[PendingOrder]) -> Markup:
    """What somebody has to decide on."""
    if not plans and not orders:
        return style.paragraph("Nothing waits for a decision.", class_="meta")
    cards = [
        element(
            "div",
            join(
                [
                    element("h3", join(["Plan for the study ", element("q", plan.study)])),
                    style.paragraph(f"Method {plan.algorithm['name']}. Nothing of it has run here.", class_="meta"),
                    element("p", element("a", "Read it and decide", href=f"/plans/{plan.digest}", class_="button")),
                ]
            ),
            class_="notice",
        )
        for plan in plans
    ]
    cards += [
        element(
            "div",
            join(
                [
                    element("h3", f"Order {order.number} of run {order.run[:12]}"),
                    style.paragraph(f"{order.kinds[-1]} would leave, by {order.steps[-1]}.", class_="meta"),
                    element("p", element("a", "Decide", href=f"/orders/{order.run}/{order.number}", class_="button")),
                ]
            ),
            class_="notice",
        )
        for order in orders
    ]
    return join(cards)


def decided(plans: list[DecidedPlan]) -> Markup:
    """Plans that were approved or denied, and what is left of them."""
    rows: list[list[object]] = []
    for each in plans:
        if each.denial is not None:
            state, left = badge("denied", "bad"), each.denial.reason
        elif each.approval is not None:
            used = f"{each.left} of {each.approval.runs} runs left, until {each.approval.until.isoformat()}"
            state, left = badge("approved", "good" if each.left else "warn"), used
        link = element("a", each.plan.digest[:12], href=f"/plans/{each.plan.digest}")
        rows.append([link, element("q", each.plan.study), each.plan.algorithm["name"], state, left])
    heads = ["plan", "study (the coordinator's words)", "method", "decision", "reason, or what is left"]
    return _table(heads, rows, "Plans that were decided on", "No plan was decided on yet.")


def run_table(runs: list[SiteRun]) -> Markup:
    """Runs: open, asleep and ended."""
    kinds = {"open": "good live", "asleep": "", "ending": "warn", "ended": "bad", "over": ""}
    rows: list[list[object]] = [
        [
            element("a", each.run[:12], href=f"/runs/{each.run}"),
            element("q", each.study) if each.study else "",
            each.lead,
            element("span", each.state, class_=f"state {kinds[each.state]}".strip(), title=STATES[each.state]),
            when(each.heard or (each.released.last if each.released else "")),
            number(str(each.released.releases if each.released else 0)),
            number(bytes_text(each.released.bytes if each.released else 0)),
        ]
        for each in runs
    ]
    heads = ["run", "study (the coordinator's words)", "lead", "state", "last heard of (UTC)", "releases", "sent"]
    return _table(heads, rows, "Runs", "No run has begun here.")


def budget(spending: Spending) -> Markup:
    """Epsilon over time."""
    chart = budget_chart([asdict(point) for point in spending.points], spending.limit)
    if spending.limit is None:
        words = (
            f"This site has no privacy budget. Spent so far: epsilon {spending.spent:.4g}, delta {spending.delta:g}."
        )
    else:
        words = (
            f"Epsilon {spending.spent:.4g} of {spending.limit:g} is spent, {spending.left:.4g} is left, at delta "
            f"{spending.delta:g}. When it is used up, nothing more leaves."
        )
    if chart is None:
        return style.paragraph(words, "No release with differential privacy has left.")
    problem = element("p", spending.problem, class_="notice bad") if spending.problem else ""
    return join([problem, style.figure("epsilon", "Epsilon spent", words, chart)])


def releases(rows: list[dict[str, Any]]) -> Markup:
    """What left: kinds, sizes, costs and hashes; never what was in it."""
    cells: list[list[object]] = [
        [
            when(row["time"]),
            element("a", row["run"][:12], href=f"/runs/{row['run']}"),
            number(str(row["round"])),
            row["step"],
            row["kind"],
            number(bytes_text(row["bytes"])),
            row["claim"] or badge(UNPROTECTED, "warn"),
            code(row["sha256"][:16]),
        ]
        for row in rows
    ]
    heads = ["time (UTC)", "run", "round", "step", "kind", "bytes", "privacy", "hash"]
    return _table(heads, cells, "Releases", "Nothing has left this site.")


def refusals(rows: list[dict[str, Any]]) -> Markup:
    """What was asked for and not given, in plain words."""
    cells: list[list[object]] = [
        [when(row["time"]), row["run"][:12], row["step"], row["code"], CODES.get(row["code"], UNKNOWN)] for row in rows
    ]
    return _table(["time (UTC)", "run", "asked for", "code", "meaning"], cells, "Refusals", "Nothing was refused.")


def decisions(entries: list[Decision]) -> Markup:
    """The journal, the last decision first."""
    rows: list[list[object]] = [
        [
            when(each.time),
            ACTS[each.act],
            code(each.about[:16]) if each.about else "",
            each.reason,
            each.by,
            "; ".join(_term(key, value) for key, value in each.terms.items() if key != "order"),
        ]
        for each in reversed(entries)
    ]
    heads = ["time (UTC)", "decision", "about", "reason", "by", "terms"]
    return _table(heads, rows, "Decisions", "Nothing was decided yet.")


def _term(key: str, value: Any) -> str:
    if key == "told":
        return "the coordinator is told why" if value else "the coordinator is not told why"
    return f"{key} {value}"


def when(moment: str) -> str:
    """A time (UTC) as people read it."""
    return moment.replace("T", " ").removesuffix("+00:00")


def exports() -> Markup:
    """Files to take away."""
    kinds = {"html": "Page (HTML)", "json": "JSON", "csv": "Tables (CSV in a zip)"}
    links = join(element("a", text, href=f"/export/{form}", class_="button quiet") for form, text in kinds.items())
    return join(
        [
            style.paragraph(
                "Decisions, releases, refusals and the budget in one file, signed with this site's key. It has no row "
                "of data. Whoever gets it can check that no byte was changed:",
                code("collegium site verify-export FILE"),
            ),
            element("p", links, class_="actions"),
        ]
    )


def _table(heads: list[str], rows: list[list[object]], title: str, empty: str) -> Markup:
    return style.table(heads, rows, title=title) if rows else style.paragraph(empty, class_="meta")
