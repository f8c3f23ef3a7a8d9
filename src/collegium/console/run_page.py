"""The pages of `collegium watch`, as they are before the first event: places for numbers, charts and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import HTMLResponse

from collegium.console.access import Visit
from collegium.console.following import Follower
from collegium.console.page import Markup, element, join, page
from collegium.reports import style
from collegium.reports.style import code, paragraph

_SCRIPTS: Final = ("uPlot.iife.min.js", "charts.js", "watch.js")
_TILES: Final = (
    ("round", "Round"), ("accuracy", "Mean accuracy"), ("time", "Time"), ("sent", "Left the sites"),
    ("protected", "Protected"), ("failures", "Failures"),
)  # fmt: skip
_SITES: Final = (
    ("name", "Site", ""), ("stands", "Stands", ""), ("accuracy", "Accuracy", "n"), ("gain", "Since the first", "n"),
    ("up", "Sent", "n"), ("down", "Received", "n"), ("out", "Releases", "n"), ("failures", "Failures", "n"),
    ("heard", "Last heard", "n"), ("version", "Version", ""), ("certificate", "Certificate", "n"),
)  # fmt: skip


def run_page(follower: Follower, number: int, visit: Visit, *, others: bool) -> HTMLResponse:
    """One run, live."""
    sections = (
        ("figures", "Figures"), ("sites", "Sites"), ("failures", "Failures"), ("privacy", "Privacy"),
        ("ledger", "Ledger"), ("log", "Log"),
    )  # fmt: skip
    body = join(
        [
            element("p", "", id="why", class_="notice bad", hidden="hidden"),
            element("p", "", id="link", class_="notice bad", hidden="hidden"),
            element("progress", "", id="progress", max="1", value="0", aria_label="Rounds that are over"),
            _tiles(),
            element("section", join([element("h2", "Figures"), _figures()]), id="figures"),
            element("section", join([element("h2", "Sites"), _site_table()]), id="sites"),
            style.section("failures", "Failures", _failures()),
            style.section("privacy", "Privacy", _loaded(f"/run/{number}/privacy", "privacy-now", "every 20s")),
            style.section("ledger", "Ledger", _loaded(f"/run/{number}/ledger", "ledger-now", None)),
            style.section("log", "Log", element("ol", "", id="lines", class_="log", tabindex="0", aria_label="Log")),
        ]
    )
    foot = paragraph(
        "Rounds count from 0. This page shows what the run writes to its folder,",
        Markup(f"{code(follower.folder)}."), "Nothing on it is loaded from elsewhere.",
    )  # fmt: skip
    top = _head(follower.name, number, visit, others=others)
    return page(f"{follower.name}: live", top, body, visit, sections=sections, scripts=_SCRIPTS, foot=foot, run=number)


def overview_page(visit: Visit) -> HTMLResponse:
    """Several runs side by side, live."""
    head = (
        ("name", "Run", ""), ("state", "State", ""), ("algorithm", "Method", ""), ("done", "Rounds", "n"),
        ("mean", "Mean accuracy", "n"), ("spread", "Worst to best", "n"), ("up", "Left the sites", "n"),
        ("failures", "Failures", "n"), ("spent", "Time", "n"),
    )  # fmt: skip
    body = join(
        [
            element("p", "", id="link", class_="notice bad", hidden="hidden"),
            element("div", _figure("compare", "Mean accuracy of the sites", "After each round.", wide=True)),
            element("section", join([element("h2", "Runs"), _table("runs", head, "Runs")])),
        ]
    )
    foot = paragraph("Nothing on this page is loaded from elsewhere.")
    return page("Runs: live", element("h1", "Runs"), body, visit, scripts=_SCRIPTS, foot=foot, run="all")


def _head(name: str, n: int, visit: Visit, *, others: bool) -> Markup:
    back = paragraph(element("a", "All runs", href="/")) if others else ""
    state = element("span", "", id="state", class_="state")
    load = {"hx_get": f"/run/{n}/actions", "hx_trigger": "changed", "hx_swap": "innerHTML"}
    actions = element("div", "", id="actions", class_="actions", **load)
    title = element("div", join([element("h1", name), state]), class_="title")
    papers = element("p", "", id="certificates", class_="meta", hidden="hidden")
    return join([back, title, element("p", "", id="about", class_="meta"), papers, actions])


def _tiles() -> Markup:
    places = (
        (key, name, element("span", "-", id=f"t-{key}"), element("small", "", id=f"n-{key}")) for key, name in _TILES
    )
    inner = (
        element("div", join([element("dt", name), element("dd", join([value, remark]))]), id=f"tile-{key}")
        for key, name, value, remark in places
    )
    return element("dl", join(inner), class_="tiles")


def _figures() -> Markup:
    choice = join(
        [
            element("label", "Metric", for_="metric", class_="inline"),
            element("select", "", id="metric"),
            element("button", "Whole run", type="button", id="whole", class_="button quiet", hidden="hidden"),
        ]
    )
    parts = [
        _figure("accuracy", "Each site on the test set", "", element("div", choice, class_="choice"), wide=True),
        _figure("consensus", "Consensus on the public cases", "The share of cases that have a label; of these, right."),
        _figure("changes", "Labels that changed", "Public cases whose consensus label changed in a round."),
        _figure("bytes", "Bytes per round", "All sites together, messages included."),
        _figure("seconds", "Seconds per round", "From the end of the round before."),
    ]
    return element("div", join(parts), class_="figures")


def _figure(key: str, title: str, caption: str, *extra: object, wide: bool = False) -> Markup:
    """A place for a chart. Screen readers get its name, and in words what it shows at the end."""
    inner = join(
        [
            element("h3", title),
            *extra,
            element("div", "", id=f"plot-{key}", class_="plot", role="img", aria_label=title),
            element("ul", "", id=f"legend-{key}", class_="legend"),
            element("figcaption", caption, id=f"caption-{key}"),
        ]
    )
    return element("figure", inner, id=f"fig-{key}", class_="wide" if wide else None)


def _table(key: str, head: Sequence[tuple[str, str, str]], title: str) -> Markup:
    """A table that scripts fill, and that sorts by the column that was pressed."""
    top = join(
        element(
            "th",
            element("button", name, type="button", class_="sort", data_key=column),
            scope="col", class_=kind or None, id=f"{key}-{column}",
        )
        for column, name, kind in head
    )  # fmt: skip
    inner = join([element("thead", element("tr", top)), element("tbody", "", id=f"rows-{key}")])
    return element("div", element("table", inner), class_="scroll", role="region", aria_label=title, tabindex=0)


def _site_table() -> Markup:
    more = element("p", "", id="more-sites", class_="meta", hidden="hidden")
    return join([_table("sites", _SITES, "Sites"), more])


def _failures() -> Markup:
    head = ("Site", "Step", "Code", "Times", "First round", "Last round", "Meaning")
    numeric = {"Times", "First round", "Last round"}
    top = join(element("th", name, scope="col", class_="n" if name in numeric else None) for name in head)
    inner = join([element("thead", element("tr", top)), element("tbody", "", id="rows-failures")])
    table = element("div", element("table", inner), class_="scroll", role="region", aria_label="Failures", tabindex=0)
    return join(
        [
            paragraph("No site has refused, failed or been missing.", class_="none"),
            element("div", table, class_="some", hidden="hidden"),
        ]
    )


def _loaded(url: str, key: str, when: str | None) -> Markup:
    """A place that the server fills, and fills again when it is told that something has changed."""
    trigger = ", ".join(filter(None, ["changed", when]))
    return element("div", paragraph("…"), id=key, hx_get=url, hx_trigger=trigger, hx_swap="innerHTML")
