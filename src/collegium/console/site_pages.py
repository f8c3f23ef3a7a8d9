"""The hospital's own page: what left, what waits, what was decided; and for its owner, to decide.

It shows what the kit's files say and holds no row of data. Decisions are taken at the site's desk, as by command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from collegium.console import site_parts as parts
from collegium.console.access import Visit, visit_of
from collegium.console.events import Event, event_stream
from collegium.console.page import Markup, element, fragment, join, page
from collegium.console.site_desk import DeskPages, foot, named
from collegium.console.site_explaining import Explanation
from collegium.console.site_plan import ahead, decide, explained, plan_head, rehearsing
from collegium.console.site_view import SiteView
from collegium.errors import CollegiumError, ConfigError, LedgerError, Refused
from collegium.flare.agreement.forecast import forecast
from collegium.flare.agreement.journal import required_reason
from collegium.flare.site.export import SUFFIXES, Form, export
from collegium.flare.site.overview import decided_plans, ledger_of, site_runs
from collegium.flare.supervise.standing import is_running, read_standing
from collegium.reports import style

_SHOWN: Final = 50
_LOOK_SECONDS: Final = 0.25
_KINDS: Final[dict[Form, str]] = {"json": "application/json", "html": "text/html", "csv": "application/zip"}
_SECTIONS: Final = (
    ("waiting", "Waiting for you"), ("runs", "Runs"), ("budget", "Privacy budget"), ("plans", "Decided plans"),
    ("releases", "Releases"), ("refusals", "Refusals"), ("decisions", "Decisions"), ("exports", "Export"),
)  # fmt: skip


class SitePages:
    """The pages of the site that has this kit."""

    def __init__(self, kit: Path) -> None:
        self._view = SiteView(kit)

    @property
    def routes(self) -> list[BaseRoute]:
        """All of them."""
        return [
            Route("/", self._home),
            Route("/live", self._live),
            Route("/events", self._events),
            Route("/plans/{digest}", self._plan),
            Route("/plans/{digest}/explained", self._explained),
            Route("/plans/{digest}/after", self._after),
            Route("/plans/{digest}/approve", self._approve, methods=["POST"]),
            Route("/plans/{digest}/deny", self._deny, methods=["POST"]),
            Route("/export/{form}", self._export),
            *DeskPages(self._view).routes,
        ]

    def close(self) -> None:
        """Begin nothing more."""
        self._view.close()

    # What is shown.

    def _home(self, request: Request) -> Response:
        visit, name = visit_of(request), self._view.desk.file.name
        head = element("h1", f"{name}: what leaves, and what you decide")
        body = element("div", self._parts(visit), id="live")
        return page(name, head, body, visit, sections=_SECTIONS, scripts=["site.js"], foot=foot())

    def _live(self, request: Request) -> Response:
        return fragment(self._parts(visit_of(request)))

    def _parts(self, visit: Visit) -> Markup:
        desk, approvals = self._view.desk, self._view.desk.approvals
        ledger, runs = ledger_of(desk), site_runs(desk)
        try:
            entries, damaged = approvals.journal.entries(), self._view.ledger_problem()
        except LedgerError as error:
            entries, damaged = [], str(error)
        spending = self._view.spending()
        shown = {
            "waiting": parts.waiting(approvals.pending(), approvals.orders.pending()),
            "runs": parts.run_table(runs),
            "budget": parts.budget(spending),
            "plans": parts.decided(decided_plans(approvals)),
            "releases": _part_of(parts.releases(ledger.newest("ledger", _SHOWN)), ledger.count("ledger")),
            "refusals": _part_of(parts.refusals(ledger.newest("refusal", _SHOWN)), ledger.count("refusal")),
            "decisions": parts.decisions(entries),
            "exports": parts.exports(),
        }
        word = "Resume the site" if desk.pause is not None else "Pause the site"
        link = element("a", word, href="/pause", class_="button quiet") if visit.may_act else ""
        top = [
            parts.state_line(is_running(desk.kit), read_standing(desk.kit), desk.pause),
            parts.certificate_line(self._view.certificate(), desk.kit),
            parts.pause_notice(desk.pause),
            element("p", damaged, class_="notice bad", role="alert") if damaged else "",
            parts.tiles(runs, spending, ledger.count("refusal")),
            element("p", link, class_="actions"),
        ]
        return join([*top, *(style.section(key, title, shown[key]) for key, title in _SECTIONS)])

    async def _events(self, request: Request) -> Response:
        async def changes() -> AsyncIterator[Event]:
            before = None
            while True:
                now = await run_in_threadpool(self._view.stamp)
                if now != before:
                    before = now
                    yield Event(json.dumps({"waiting": await run_in_threadpool(self._waiting)}), "changed")
                await asyncio.sleep(_LOOK_SECONDS)

        return event_stream(changes())

    def _waiting(self) -> int:
        try:
            approvals = self._view.desk.approvals
            return len(approvals.pending()) + len(approvals.orders.pending())
        except CollegiumError:  # a folder that is being changed: the next look tells
            return 0

    # Plans.

    def _plan(self, request: Request) -> Response:
        return self._plan_page(request)

    def _plan_page(self, request: Request, problem: str = "", status: int = 200) -> Response:
        visit, desk = visit_of(request), self._view.desk
        plan = desk.approvals.plan(request.path_params["digest"])
        denial, approval = desk.approvals.denial(plan.digest), desk.approvals.approval(plan.digest)
        decision = (
            parts.badge("denied", "bad") if denial is not None
            else parts.badge("approved", "good") if approval is not None
            else parts.badge("waiting", "warn")
        )  # fmt: skip
        body = self._explanation(plan.digest, visit, problem) or rehearsing(plan)
        answer = page(f"Plan {plan.digest[:12]}", plan_head(plan, decision), body, visit, foot=foot())
        answer.status_code = status
        return answer

    def _explanation(self, digest: str, visit: Visit, problem: str = "") -> Markup | None:
        found = self._view.explained(digest)
        if found is None:
            return None
        shown = explained(found, self._cost(found, 1))
        return element("div", join([shown, style.section("decide", "Your decision", decide(found, visit, problem))]))

    def _explained(self, request: Request) -> Response:
        digest = request.path_params["digest"]
        found = self._explanation(digest, visit_of(request))
        return fragment(rehearsing(self._view.desk.approvals.plan(digest)) if found is None else found)

    def _after(self, request: Request) -> Response:
        found = self._view.explained(request.path_params["digest"])
        if found is None:
            raise ConfigError("The plan is still being rehearsed: wait until it is.")
        return fragment(self._cost(found, _whole(request.query_params.get("runs", "1"))))

    def _cost(self, found: Explanation, runs: int) -> Markup:
        spending, budget = self._view.spending(), self._view.desk.file.budget
        limit = None if budget is None else (budget.epsilon, budget.delta)
        try:
            return ahead(found, forecast(spending.charges, found.cost, runs, limit), runs)
        except Refused:
            return ahead(found, None, runs)

    def _approve(self, request: Request) -> Response:
        fields = visit_of(request).fields
        try:
            found = self._as_shown(request)
            if found.doubts and fields.get("read") != "yes":
                raise ConfigError("Read the warnings first, and say that you have.")
            last = _day(fields.get("until", ""))
            reason, runs = required_reason(fields.get("reason", "")), _whole(fields.get("runs", "1"))
            self._view.desk.approvals.approve(found.plan.digest, runs=runs, until=last, reason=reason, by=named(fields))
        except ConfigError as error:
            return self._plan_page(request, str(error), 409)
        return RedirectResponse("/", 303)

    def _deny(self, request: Request) -> Response:
        fields = visit_of(request).fields
        try:
            found, tell = self._as_shown(request), fields.get("tell") == "yes"
            reason = fields.get("reason", "")
            self._view.desk.approvals.deny(found.plan.digest, reason=reason, tell=tell, by=named(fields))
        except ConfigError as error:
            return self._plan_page(request, str(error), 409)
        return RedirectResponse("/", 303)

    def _as_shown(self, request: Request) -> Explanation:
        """The plan that was read: a decision is about that, whatever has come in its place."""
        fields, digest = visit_of(request).fields, request.path_params["digest"]
        found = self._view.explained(digest)
        if found is None or (fields.get("plan"), fields.get("seen")) != (digest, found.seen):
            raise ConfigError("This plan, or what this site says of it, has changed since you read it: read it again.")
        return found

    # Files.

    def _export(self, request: Request) -> Response:
        form = request.path_params["form"]
        if form not in SUFFIXES:
            raise ConfigError("An export is HTML, JSON or CSV.")
        name = f"{self._view.desk.file.name}-records{SUFFIXES[form]}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(export(self._view.desk, form), media_type=_KINDS[form], headers=headers)


def _part_of(table: Markup, count: int) -> Markup:
    if count <= _SHOWN:
        return table
    return join(
        [table, style.paragraph(f"The latest {_SHOWN} of {count:,}; an export has all of them.", class_="meta")]
    )


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise ConfigError("The number of runs must be a whole number from 1 to 1000.")
    return int(text)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError("The last day must be a date, such as 2027-03-31.") from None
