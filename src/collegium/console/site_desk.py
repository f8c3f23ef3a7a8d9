"""Pages on which an owner decides on orders, runs and the site itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from collegium.console import site_parts as parts
from collegium.console.access import visit_of
from collegium.console.page import Markup, element, join, page
from collegium.console.site_plan import reason_form
from collegium.console.site_view import SiteView
from collegium.errors import ConfigError
from collegium.flare.agreement.journal import required_reason
from collegium.flare.agreement.orders import PendingOrder
from collegium.flare.site.overview import ledger_of, site_runs
from collegium.reports import style

_SHOWN: Final = 500


class DeskPages:
    """One page each for an order, a run, and the pause."""

    def __init__(self, view: SiteView) -> None:
        self._view = view

    @property
    def routes(self) -> list[BaseRoute]:
        """All of them."""
        return [
            Route("/orders/{run}/{number:int}", self._order),
            Route("/orders/{run}/{number:int}/{what}", self._decide_order, methods=["POST"]),
            Route("/runs/{run}", self._run),
            Route("/runs/{run}/end", self._end_run, methods=["POST"]),
            Route("/pause", self._pause),
            Route("/pause/{what}", self._change_pause, methods=["POST"]),
        ]

    def _order(self, request: Request) -> Response:
        visit, order = visit_of(request), self._waiting_order(request)
        head = join([back(), element("h1", f"Order {order.number} of run {order.run[:12]}")])
        words = style.facts(
            [("runs here", ", ".join(order.steps)), ("would leave", order.kinds[-1]), ("order", order.sha256)]
        )
        hidden, path = element("input", type="hidden", name="order", value=order.sha256), request.url.path
        forms = [reason_form(f"{path}/approve", visit, "Approve this order", hidden),
                 reason_form(f"{path}/deny", visit, "Deny this order", hidden, kind="danger")]  # fmt: skip
        return page("Order", head, join([words, *(forms if visit.may_act else [])]), visit, foot=foot())

    def _decide_order(self, request: Request) -> Response:
        fields, orders = visit_of(request).fields, self._view.desk.approvals.orders
        decide_on = {"approve": orders.approve, "deny": orders.deny}.get(request.path_params["what"])
        if decide_on is None:
            raise ConfigError("An order is approved or denied.")
        run, number = request.path_params["run"], request.path_params["number"]
        reason = required_reason(fields.get("reason", ""))
        decide_on(run, number, fields.get("order", ""), reason=reason, by=named(fields))
        return RedirectResponse("/", 303)

    def _waiting_order(self, request: Request) -> PendingOrder:
        run, number = request.path_params["run"], request.path_params["number"]
        for order in self._view.desk.approvals.orders.pending():
            if (order.run, order.number) == (run, number):
                return order
        raise ConfigError("This order does not wait any more.")

    def _run(self, request: Request) -> Response:
        visit, desk, run = visit_of(request), self._view.desk, request.path_params["run"]
        found = next((each for each in site_runs(desk) if each.run == run), None)
        if found is None:
            raise ConfigError("Nothing is known of this run here.")
        ledger = ledger_of(desk)
        body = [
            parts.run_table([found]),
            style.section("releases", "Releases", parts.releases(ledger.newest("ledger", _SHOWN, run=run))),
            style.section("refusals", "Refusals", parts.refusals(ledger.newest("refusal", _SHOWN, run=run))),
        ]
        if visit.may_act and found.state in ("open", "asleep"):
            words = style.paragraph("No order of it is answered any more, whoever asks. This cannot be undone.")
            ending = reason_form(f"/runs/{run}/end", visit, "End this run for good", kind="danger")
            body.append(style.section("end", "End this run", words, ending))
        return page("Run", join([back(), element("h1", f"Run {run[:12]}")]), join(body), visit, foot=foot())

    def _end_run(self, request: Request) -> Response:
        fields = visit_of(request).fields
        self._view.desk.end_run(request.path_params["run"], reason=fields.get("reason", ""), by=named(fields))
        return RedirectResponse("/", 303)

    def _pause(self, request: Request) -> Response:
        visit, desk = visit_of(request), self._view.desk
        if desk.pause is None:
            words = (
                "Nothing is begun and nothing leaves until you resume the site, also after a restart. What a step is "
            )
            words += "doing now is finished and kept. Coordinators learn that the site is paused, and not why."
            title, shown = "Pause the site", reason_form("/pause/begin", visit, "Pause the site", kind="danger")
        else:
            words, title = "The site takes part again, and runs go on where they were.", "Resume the site"
            shown = reason_form("/pause/end", visit, "Resume the site", needed=False)
        body = join([parts.pause_notice(desk.pause), style.paragraph(words), shown if visit.may_act else ""])
        return page(title, join([back(), element("h1", title)]), body, visit, foot=foot())

    def _change_pause(self, request: Request) -> Response:
        fields, what = visit_of(request).fields, request.path_params["what"]
        change = {"begin": self._view.desk.pause_site, "end": self._view.desk.resume_site}.get(what)
        if change is None:
            raise ConfigError("A pause begins or ends.")
        change(reason=fields.get("reason", ""), by=named(fields))
        return RedirectResponse("/", 303)


def named(fields: Mapping[str, str]) -> str:
    """Who decides, as they gave their name."""
    return fields.get("by", "")


def back() -> Markup:
    """To where everything is."""
    return element("p", element("a", "Back to the site", href="/"))


def foot() -> Markup:
    """What every page of a site ends with."""
    return style.paragraph("This page holds no row of data: it shows what the gate let out, and what was decided.")
