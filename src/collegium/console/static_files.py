"""Scripts and style sheets of the console: files of this package, read once. Nothing comes from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from collegium.reports import style

_KINDS: Final = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
REPORT_SHEET: Final = "report.css"
"""The look that pages share with reports."""


@cache
def content(name: str) -> bytes | None:
    """A file that pages may load, by its name."""
    if name == REPORT_SHEET:
        return style.sheet().encode()
    folder = resources.files("collegium.console") / "static"
    known = {each.name for each in folder.iterdir()}
    return (folder / name).read_bytes() if name in known and name.rpartition(".")[2] in _KINDS else None


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = content(name)
    if found is None:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(found, media_type=_KINDS[name.rpartition(".")[2]])


STATIC: Final = Route("/static/{name}", _static)
