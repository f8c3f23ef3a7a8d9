"""The layout that pages share, out of the parts of reports: what is not mark-up already is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from starlette.responses import HTMLResponse

from collegium.console.access import Visit
from collegium.reports.style import Markup, element, join, text

_SHEETS: Final = ("report.css", "uPlot.min.css", "console.css")
_SCRIPTS: Final = ("htmx.min.js", "console.js")
_HTMX: Final = (
    '{"includeIndicatorCSS": false, "history": false, "defaultTimeout": 120000, "noSwap": [204, 304, "4xx", "5xx"]}'
)
"""An answer that refuses is a line of text: it is shown as one (console.js), and never becomes a part of the page."""


def page(
    title: str,
    head: object,
    body: object,
    visit: Visit,
    *,
    sections: Iterable[tuple[str, str]] = (),
    scripts: Sequence[str] = (),
    foot: object = "",
    **data: object,
) -> HTMLResponse:
    """A whole page. `scripts` are further files of `static/`; `data` becomes ``data-`` attributes of its body.

    The element ``status`` is read out by screen readers when its text changes: ``collegium.say(text)`` in scripts.
    """
    links = join(element("li", element("a", name, href=f"#{key}")) for key, name in sections)
    nav = element("nav", element("ul", links), aria_label="Contents") if links else Markup("")
    sheets = join(element("link", rel="stylesheet", href=f"/static/{name}") for name in _SHEETS)
    loaded = join(element("script", "", src=f"/static/{name}", defer="defer") for name in (*_SCRIPTS, *scripts))
    role = "owner" if visit.may_act else "guest"
    looking = "" if visit.may_act else element("p", "You can look at this page, not act on it.", class_="meta")
    inner = join(
        [
            element("a", "Skip to the content", href="#main", class_="skip"),
            element("header", join([head, looking, nav])),
            element("p", "", id="status", role="status", aria_live="polite", class_="visually-hidden"),
            element("p", "", id="complaint", role="alert", class_="notice bad", hidden="hidden"),
            element("main", body, id="main", tabindex="-1"),
            element("footer", foot),
        ]
    )
    attributes = {f"data_{key}": value for key, value in data.items()}
    return HTMLResponse(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"{element('meta', name='htmx-config', content=_HTMX)}{element('title', title)}"
        f'<link rel="icon" href="/static/icon.svg">{sheets}{loaded}</head>\n'
        f"{element('body', inner, data_role=role, **attributes)}</html>\n"
    )


def fragment(*parts: object) -> HTMLResponse:
    """A part of a page, which htmx puts in its place."""
    return HTMLResponse(join(parts))


def form(action: str, visit: Visit, *content: object, confirm: str | None = None, **attributes: object) -> Markup:
    """A form that changes something: sent by htmx where scripts run, and by the browser itself where not."""
    hidden = element("input", type="hidden", name="csrf", value=visit.csrf)
    inner = join([hidden, *content])
    given = {"hx_post": action, "hx_confirm": confirm} | attributes
    return element("form", inner, method="post", action=action, **given)


def button(label: str, *, kind: str = "", **attributes: object) -> Markup:
    """What sends a form."""
    return element("button", label, type="submit", class_=f"button {kind}".strip(), **attributes)


__all__ = ["Markup", "button", "element", "form", "fragment", "join", "page", "text"]
