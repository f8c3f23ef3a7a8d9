"""`collegium watch`: the routes of its pages."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from collegium.console import controls, parts, run_page
from collegium.console.access import visit_of
from collegium.console.curves import Grid, Table, told
from collegium.console.events import Event, event_stream
from collegium.console.following import Follower
from collegium.console.gathering import Gathering
from collegium.console.history import ACCURACY
from collegium.console.page import element
from collegium.console.telling import Teller, clock, curves, head
from collegium.errors import ConfigError

_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


class Watch:
    """The pages of some runs."""

    def __init__(self, gathering: Gathering) -> None:
        self._runs = gathering

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/", self._first),
            Route("/events", self._all_events),
            Route("/run/{n:int}", self._run),
            Route("/run/{n:int}/events", self._events),
            Route("/run/{n:int}/range", self._range),
            Route("/run/{n:int}/actions", self._actions),
            Route("/run/{n:int}/privacy", self._privacy, methods=["GET", "POST"]),
            Route("/run/{n:int}/ledger", self._ledger),
            Route("/run/{n:int}/report", self._report),
            Route("/run/{n:int}/stop", self._stop, methods=["POST"]),
            Route("/run/{n:int}/resume", self._resume, methods=["POST"]),
        ]

    def _follower(self, request: Request) -> tuple[int, Follower]:
        n = int(request.path_params["n"])
        if n >= len(self._runs.runs):
            raise ConfigError("There is no such run on this page: go back to the list of runs.")
        return n, self._runs.runs[n]

    async def _first(self, request: Request) -> Response:
        if self._runs.is_one:
            return run_page.run_page(self._runs.runs[0], 0, visit_of(request), others=False)
        return run_page.overview_page(visit_of(request))

    async def _run(self, request: Request) -> Response:
        n, follower = self._follower(request)
        return run_page.run_page(follower, n, visit_of(request), others=not self._runs.is_one)

    async def _events(self, request: Request) -> Response:
        _, follower = self._follower(request)
        teller = Teller(follower, request.query_params.get("metric", ACCURACY))
        return event_stream(self._told(teller.news))

    async def _all_events(self, request: Request) -> Response:
        before: list[Any] = []

        def news() -> dict[str, Any]:
            found = self._compared()
            if before == [found]:
                return {}
            before[:] = [found]
            return found

        return event_stream(self._told(news))

    async def _told(self, news: Any) -> AsyncIterator[Event]:
        """What is new, whenever something is; the first event is all there is."""
        self._runs.enter()
        try:
            count, number = -1, 0
            while True:
                count = await self._runs.news(count)
                if found := news():
                    number += 1
                    found |= {"clock": clock(), "all": number == 1}
                    yield Event(_ENCODE(found), "news", str(number))
        finally:
            self._runs.leave()

    def _compared(self) -> dict[str, Any]:
        """All runs: their numbers, and their mean accuracies on one grid of rounds."""
        runs = self._runs.runs
        tables = [run.history.metrics.get(ACCURACY) for run in runs]
        grid = Grid.over(0, max((table.length for table in tables if table is not None), default=0))
        rounds = grid.rounds()
        lines = [None if table is None else _mean_line(table, rounds) for table in tables]
        heads = []
        for run in runs:
            own = head(run)
            own["algorithm"] = own["algorithm"].partition("(")[0]
            heads.append(own)
        return {"heads": heads, "x": rounds, "lines": lines}

    async def _range(self, request: Request) -> Response:
        """A part of the rounds, as finely as it can be shown."""
        _, follower = self._follower(request)
        asked = request.query_params
        try:
            first, end = max(0, int(asked["first"])), int(asked["end"])
        except (KeyError, ValueError):
            return PlainTextResponse("Ask for first and end, which are rounds.\n", 400)
        history = follower.history
        metric = asked.get("metric", ACCURACY)
        length = max([history.done, *(table.length for name, table in history.metrics.items() if name == metric)])
        return JSONResponse(curves(history, metric, Grid.over(first, max(first, min(end, length)))))

    async def _actions(self, request: Request) -> Response:
        n, follower = self._follower(request)
        return parts.controls(follower, n, visit_of(request))

    async def _privacy(self, request: Request) -> Response:
        n, follower = self._follower(request)
        inspection = self._runs.inspections[n]
        now = request.method == "POST" or _is_new_end(follower, inspection)
        inspection.ask(_moment(follower), follower.lasted, now=now)
        return parts.privacy_part(inspection, n, visit_of(request))

    async def _ledger(self, request: Request) -> Response:
        n, follower = self._follower(request)
        inspection, asked = self._runs.inspections[n], request.query_params
        inspection.ask(_moment(follower), follower.lasted)
        after = int(asked["after"]) if asked.get("after", "").isdecimal() else 0
        return parts.ledger_part(follower, inspection, n, after, asked.get("party", ""))

    async def _report(self, request: Request) -> Response:
        _, follower = self._follower(request)
        file = follower.folder / "report.html"
        if not file.is_file():
            raise ConfigError("There is no report yet: it is written when the run is finished.")
        return FileResponse(file, filename="report.html", media_type="text/html")  # to be saved, not shown

    async def _stop(self, request: Request) -> Response:
        return self._acted(request, controls.stop)

    async def _resume(self, request: Request) -> Response:
        return self._acted(request, controls.resume)

    def _acted(self, request: Request, act: Any) -> Response:
        n, follower = self._follower(request)
        try:
            said, kind = act(follower), "meta"
        except ConfigError as error:
            said, kind = str(error), "meta bad"
        if "hx-request" not in request.headers:  # a browser without scripts
            return RedirectResponse(f"/run/{n}", 303)
        return parts.controls(follower, n, visit_of(request), element("span", said, class_=kind))


def _mean_line(table: Table, rounds: list[int]) -> list[float | None]:
    """The mean accuracy of a run's sites in some rounds; nothing beyond its own."""
    own = rounds[: bisect(rounds, table.length - 1)]
    return told(table.means(own), 100.0) + [None] * (len(rounds) - len(own))


def _moment(follower: Follower) -> object:
    """Where a run stands, as far as its privacy and ledger are concerned."""
    return (follower.state, sum(follower.history.totals.out))


def _is_new_end(follower: Follower, inspection: Any) -> bool:
    """Has the run ended since it was inspected? Then it is worked out once more, however long that takes."""
    ended = follower.state != "running" and follower.history.latest > inspection.when
    return ended and inspection.found is not None
