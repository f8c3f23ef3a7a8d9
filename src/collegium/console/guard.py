"""What stands before every page: the right name, the right browser, and for every change the right form.

Nothing in here is left to an endpoint, so none can forget it.
"""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from collegium.console.access import Access, Visit, keep
from collegium.console.hosts import Hosts

MOST_BYTES: Final = 64 * 1024
"""A form is no longer than this."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer a browser would send `Origin: null` with our own forms; to others this one tells nothing either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_READING: Final = ("GET", "HEAD")
_FORM: Final = "application/x-www-form-urlencoded"
_ENTERED: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Collegium</title>'
    '<link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0;url=/"></head><body><p><a href="/">Open the page</a></p></body></html>'
)
"""Not a redirect: after a link on another website, browsers keep a strict cookie from the request that follows it."""


class Guard:
    """Lets a request through to the pages, or answers it with one plain line.

    Args:
        app: The pages.
        access: Who may see them.
        hosts: Under which names.
        command: What prints a new link: an answer to a browser without one names it.
        cookie: The cookie's name. Browsers give one to every port of a host, so it should have the port in it.
    """

    def __init__(self, app: ASGIApp, access: Access, hosts: Hosts, command: str, cookie: str) -> None:
        self._app, self._access, self._hosts = app, access, hosts
        self._command, self._cookie = command, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return  # nothing else is spoken here: the server closes the connection

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = await self._check(scope, receive)
        if isinstance(answer, Response):
            await answer(scope, receive, headed)
            return
        visit, body = answer
        keep(scope, visit)
        await self._app(scope, receive if body is None else _replayed(body, receive), headed)

    async def _check(self, scope: Scope, receive: Receive) -> Response | tuple[Visit, bytes | None]:
        """Who is there and what was sent with it, or why there is no answer."""
        headers = Headers(scope=scope)
        if not self._hosts.allow(headers.getlist("host")):
            return _line("This console does not answer to that name. Open the link as it was printed.", 421)
        token = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        visit = self._access.visit(cookie_parser(headers.get("cookie", "")).get(self._cookie))
        if token is not None and scope["method"] == "GET":
            return self._enter(token, headers, visit)
        if visit is None:
            return _line(f"This page opens with the link that `{self._command}` prints; each works once.", 403)
        if _from_elsewhere(headers):
            return _line("Another website asked for this page: open it by itself.", 403)
        if scope["method"] in _READING:
            return visit, None
        return await self._check_form(visit, headers, receive)

    def _enter(self, token: str, headers: Headers, visit: Visit | None) -> Response:
        ahead = "prefetch" in headers.get("sec-purpose", headers.get("purpose", ""))  # nobody has opened it yet
        cookie = None if ahead else self._access.enter(token)
        if cookie is not None:
            response = HTMLResponse(_ENTERED)
            response.set_cookie(self._cookie, cookie, httponly=True, samesite="strict", path="/")
            return response
        if visit is not None:  # the same link again, in the browser that has opened it
            return RedirectResponse("/", 303)
        return _line(f"This link has been used, or is not whole. For a new one, run `{self._command}` again.", 403)

    async def _check_form(self, visit: Visit, headers: Headers, receive: Receive) -> Response | tuple[Visit, bytes]:
        if not visit.may_act:
            return _line("This link is for looking only: ask its owner to act.", 403)
        origin = urlsplit(headers.get("origin", ""))
        if origin.scheme not in ("http", "https") or origin.netloc.lower() != headers["host"].strip().lower():
            return _line("This form was not sent from this page: open the page and send it there.", 403)
        if headers.get("content-type", "").partition(";")[0].strip() != _FORM:
            return _line("Send this as a form of the page does.", 415)
        body = await _read(receive)
        if body is None:
            return _line("That is more than a form of this page can hold: shorten the text.", 413)
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not hmac.compare_digest(fields.get("csrf", "").encode(), visit.csrf.encode()):
            return _line("This form is not of this visit: reload the page and send it again.", 403)
        return visit.sent(fields), body


def _from_elsewhere(headers: Headers) -> bool:
    """Did a page of another origin ask, other than by a link to us? Other ports of this host have the cookie, too."""
    other = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
    return other and headers.get("sec-fetch-mode") != "navigate"


def _line(text: str, status: int) -> Response:
    return PlainTextResponse(f"{text}\n", status)


async def _read(receive: Receive) -> bytes | None:
    """The body of a request, if it is short."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body to whoever asks for it next."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again
