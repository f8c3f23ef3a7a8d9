"""A plan on a page: what would leave, how often, at what epsilon, what the budget would be after, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from collegium.console.access import Visit
from collegium.console.page import Markup, button, element, form, join
from collegium.console.site_explaining import SECONDS, Explanation
from collegium.flare.agreement.approvals import DAYS, today
from collegium.flare.agreement.disclosure import COORDINATOR, Leaving
from collegium.flare.agreement.forecast import Forecast
from collegium.flare.agreement.journal import MOST_REASON
from collegium.flare.agreement.plan import Plan
from collegium.reports import style
from collegium.reports.style import code, number
from collegium.reports.tables import bytes_text

_ABOUT: Final = ("algorithm", "settings", "sites", "classes", "public set", "metrics on held-out rows")
"""What of a plan is shown without asking."""


def rehearsing(plan: Plan) -> Markup:
    """What is shown until the explanation is there; the page asks for it by itself."""
    text = (
        "This site is rehearsing the plan with made-up rows, to find out what would leave. That takes seconds, as a "
        f"rule, and at most {2 * SECONDS / 60:.0f} minutes."
    )
    inner = join([element("p", text, class_="notice"), element("progress", "", aria_label="Rehearsing the plan")])
    attributes = {"hx_get": f"/plans/{plan.digest}/explained", "hx_trigger": "every 1s", "hx_swap": "outerHTML"}
    return element("div", inner, id="explained", aria_live="polite", **attributes)


def explained(found: Explanation, ahead: Markup) -> Markup:
    """The plan in words an officer can read; `ahead` is what becomes of the budget."""
    plan, told = found.plan, found.consent
    if told is None:
        why = "; ".join(each.why for each in found.review.refusals)
        return element(
            "div", element("p", f"This plan cannot run at this site: {why}.", class_="notice bad"), id="explained"
        )
    doubts = join(element("li", each) for each in found.doubts)
    warned = join([element("h2", "Read this first"), element("ul", doubts, class_="notice bad")]) if doubts else ""
    about = [(each.what, f"{each.words} ({each.source})") for each in told.lines if each.what in _ABOUT]
    lines = [[each.what, each.words, each.source] for each in told.lines]
    every = style.table(["what", "proposed", "who says so"], lines, title="All that was found out")
    parts = [
        warned,
        style.section("short", "In short", *(style.paragraph(text) for text in _short(found))),
        style.section("leaves", "What would leave this site", _leaves(told.leaves, dict(found.cost.claims))),
        style.section("learns", "Who would learn what", style.facts(told.learns)),
        style.section("ahead", "What it costs, and what is left after", ahead),
        style.section("about", "What is proposed, and who says so", style.facts(about)),
        style.details("Everything that was found out about this plan", every),
        style.details("The plan itself, as it is signed", element("pre", plan.to_json(), tabindex=0)),
    ]  # fmt: skip
    return element("div", join(parts), id="explained")


def _short(found: Explanation) -> Iterator[str]:
    """A plan in a few sentences."""
    leaves = _leaves_of(found)
    if not leaves:
        yield "Nothing would leave this site but that it has done its work."
        return
    total = sum(each.most for each in leaves)
    yield (
        f"If you approve, the coordinator may ask this site up to {total:,} times in each run for something that "
        "leaves. Anything else, or more of it, is refused here."
    )
    claims = dict(found.cost.claims)
    for each in leaves:
        often = "once" if each.most == 1 else f"up to {each.most:,} times"
        bare = "with nothing that protects single records at the gate"
        how = f"with noise, {claims[each.step]} each time" if each.step in claims else bare
        yield f"{each.kind}, {often}, {how}: {each.what[:1].lower()}{each.what[1:]}"


def _leaves_of(found: Explanation) -> tuple[Leaving, ...]:
    return () if found.consent is None else found.consent.leaves


def _leaves(leaves: tuple[Leaving, ...], claims: Mapping[str, str]) -> Markup:
    if not leaves:
        return Markup("")
    rows: list[list[object]] = [
        [
            join([element("strong", each.kind), element("br"), each.what]),
            number(f"{each.most:,}"),
            number("" if each.bytes is None else f"about {bytes_text(each.bytes)}"),
            _protection(each, claims),
            each.note or (each.source if each.source == COORDINATOR else ""),
            each.step,
        ]
        for each in leaves
    ]
    heads = ["what", "times in a run, at most", "size of each", "protection at the gate", "note", "step"]
    return style.table(heads, rows, title="What would leave")


def _protection(each: Leaving, claims: Mapping[str, str]) -> str:
    noise = f"noise: {each.noise}" if each.noise else "none"
    return f"{noise}; each time {claims[each.step]}" if each.step in claims else noise


def ahead(found: Explanation, forecast: Forecast | None, runs: int) -> Markup:
    """The budget now, and after so many runs."""
    if found.cost.problem:
        text = f"What it would cost is not known: {found.cost.problem}"
        return element("div", element("p", text, class_="notice bad"), id="after")
    if forecast is None:
        return element(
            "div", element("p", "The charges of this site cannot be added up.", class_="notice bad"), id="after"
        )
    bare = not found.cost.protected
    times = "one run" if runs == 1 else f"{runs} runs"
    pairs = [
        ("spent now", f"epsilon {forecast.spent:.4g}"),
        (f"after {times}", f"epsilon {forecast.after:.4g}, if the plan asks for all that it may ask for"),
        ("budget", "none is set at this site" if forecast.limit is None else f"epsilon {forecast.limit:g}"),
        ("delta", f"{forecast.delta:g}"),
    ]
    if forecast.limit is not None:
        pairs.insert(3, ("left after", f"epsilon {max(0.0, forecast.limit - forecast.after):.4g}"))
    notes = []
    if bare:
        notes.append("Nothing of it has differential privacy: what leaves is protected by the policy alone.")
    elif uncounted := sorted({each.kind for each in _leaves_of(found) if each.step not in dict(found.cost.claims)}):
        notes.append(f"Not in these numbers, since nothing protects it at the gate: {', '.join(uncounted)}.")
    if not forecast.enough:
        notes.append("That is more than the budget: the site would stop answering when the budget is used up.")
    said = join(element("p", note, class_="notice bad" if not forecast.enough else "notice") for note in notes)
    return element("div", join([style.facts(pairs), said]), id="after")


def decide(found: Explanation, visit: Visit, problem: str = "") -> Markup:
    """The two forms. They carry the hash of the plan, and of all that was shown of it."""
    if not visit.may_act:
        return style.paragraph("Only the owner of this site can decide.", class_="meta")
    digest, last = found.plan.digest, today() + timedelta(days=DAYS)
    bound = [
        element("input", type="hidden", name="plan", value=digest),
        element("input", type="hidden", name="seen", value=found.seen),
    ]
    read = _tick("read", "I have read the warnings above", required=True) if found.doubts else ""
    runs = {"hx_get": f"/plans/{digest}/after", "hx_target": "#after", "hx_swap": "outerHTML", "hx_trigger": "change"}
    approve = form(
        f"/plans/{digest}/approve", visit, *bound,
        element("h3", "Approve"),
        _labelled("runs", "How many runs may begin", type="number", min=1, max=1000, value=1, **runs),
        _labelled("until", "Last day (UTC)", type="date", value=last.isoformat(), min=today().isoformat()),
        _who("approve"), read, element("p", button("Approve and sign")),
        hx_post=None, class_="decision",
    )  # fmt: skip
    deny = form(
        f"/plans/{digest}/deny", visit, *bound,
        element("h3", "Deny"), _who("deny"),
        _tick("tell", "Tell the coordinator this reason"),
        element("p", "Otherwise it learns only that the plan is denied.", class_="meta"),
        element("p", button("Deny and sign", kind="danger")),
        hx_post=None, class_="decision",
    )  # fmt: skip
    shown = element("p", problem, class_="notice bad", role="alert") if problem else ""
    return join([shown, element("div", join([approve, deny]), class_="decisions")])


def reason_form(action: str, visit: Visit, label: str, *hidden: Markup, kind: str = "", needed: bool = True) -> Markup:
    """A form that asks who decides and why."""
    return form(
        action, visit, *hidden, _who(label, needed=needed), element("p", button(label, kind=kind)), hx_post=None
    )


def _who(prefix: str, *, needed: bool = True) -> Markup:
    key = "".join(letter for letter in prefix.lower() if letter.isalpha())
    required = "required" if needed else None
    reason = element(
        "textarea", "", id=f"{key}-reason", name="reason", maxlength=MOST_REASON, rows=3, required=required
    )
    return join(
        [
            element("label", "Reason", for_=f"{key}-reason"),
            reason,
            element("label", "Your name", for_=f"{key}-by"),
            element("input", id=f"{key}-by", name="by", maxlength=100, autocomplete="name", required=required),
        ]
    )


def _labelled(name: str, label: str, **attributes: object) -> Markup:
    return join(
        [element("label", label, for_=name), element("input", id=name, name=name, required="required", **attributes)]
    )


def _tick(name: str, label: str, *, required: bool = False) -> Markup:
    box = element("input", type="checkbox", name=name, value="yes", required="required" if required else None)
    return element("label", join([box, " ", label]))


def plan_head(plan: Plan, decision: Markup) -> Markup:
    """What a plan's page begins with."""
    return join(
        [
            element("p", element("a", "Back to the site", href="/")),
            element("h1", join(["A plan for the study ", element("q", plan.study)])),
            style.paragraph(
                "The name is the coordinator's. This page says what this site found out itself.", class_="meta"
            ),
            element("p", join([decision, " Plan ", code(plan.digest)])),
        ]
    )
