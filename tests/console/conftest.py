"""A console with one small page, and a browser for all tests that need one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.console.browsing import Chromium, Tab, chromium
from tests.console.site_kits import make_kit

from collegium.console.access import visit_of
from collegium.console.events import Event, event_stream, last_event
from collegium.console.page import button, element, form, page
from collegium.console.serving import Console
from collegium.console.site_pages import SitePages
from collegium.errors import ConfigError
from collegium.flare.agreement.planning import Plan
from collegium.flare.site.desk import Desk


async def shown(request: Request) -> Response:
    visit = visit_of(request)
    body = [form("/act", visit, element("input", name="what", aria_label="What"), button("Act"))]
    return page("A page", element("h1", request.query_params.get("name", "A page")), body[0], visit)


async def acted(request: Request) -> Response:
    return PlainTextResponse(f"did {visit_of(request).fields['what']}, {(await request.body()).decode()}")


async def failed(request: Request) -> Response:
    raise ConfigError("The study is not there: name another one.")


async def told(request: Request) -> Response:
    async def events() -> AsyncIterator[Event]:
        for number in range(int(last_event(request) or 0) + 1, 4):
            yield Event(f'{{"number": {number}}}', "count", str(number))
            await asyncio.sleep(0)

    return event_stream(events())


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """A console that runs."""
    routes = [
        Route("/", shown),
        Route("/act", acted, methods=["POST"]),
        Route("/fail", failed),
        Route("/events", told),
    ]
    with Console(routes, "collegium watch").in_background() as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A Chromium, started once for all tests of this process."""
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True)
def browser_is_limited(request: pytest.FixtureRequest) -> Iterator[None]:
    """A browser that does not answer any more ends its test, not the patience of whoever runs it."""
    if "browser" not in request.fixturenames:
        yield
        return
    with request.getfixturevalue("browser").limited():
        yield


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Tab]:
    """A page of a browser that nobody has used."""
    opened = Tab(browser)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Plan]:
    """The desk of a site, and a plan for it. A plan is rehearsed before it is shown: one serves all tests."""
    return make_kit(tmp_path_factory.mktemp("kits"))


@pytest.fixture(scope="session")
def site_console(made: tuple[Desk, Plan]) -> Iterator[Console]:
    """The hospital's page."""
    pages = SitePages(made[0].kit)
    with Console(pages.routes, "collegium site console north").in_background() as running:
        yield running
    pages.close()


@pytest.fixture
def plan(made: tuple[Desk, Plan]) -> Iterator[Plan]:
    """It waits, whatever the test before decided."""
    desk, waiting = made
    desk.approvals.withdraw(waiting.digest)
    desk.approvals.propose(waiting)
    yield waiting
    desk.approvals.withdraw(waiting.digest)
