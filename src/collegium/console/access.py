"""Who may see a page, and who may act on it: links that work once, and the browsers that opened them."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from starlette.requests import HTTPConnection
from starlette.types import Scope

Role = Literal["owner", "guest"]
"""An owner may act; a guest may look."""
_BYTES: Final = 32
_KEY: Final = "collegium.visit"


@dataclass(frozen=True)
class Visit:
    """A request of a browser that has opened one of the links."""

    role: Role
    csrf: str
    """What a form of this browser's pages must send back: another website cannot know it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The fields of the form that was sent, if one was."""

    @property
    def may_act(self) -> bool:
        """May this browser change anything?"""
        return self.role == "owner"

    def sent(self, fields: Mapping[str, str]) -> Visit:
        """The same visit, with a form."""
        return replace(self, fields=fields)


class Access:
    """The links of one console, and the browsers that hold its cookies. All of it is gone when the process ends."""

    def __init__(self) -> None:
        self._links: dict[str, Role] = {}
        self._visits: dict[str, Visit] = {}

    def link(self, role: Role) -> str:
        """A new token for a link; the first browser that opens it gets a cookie, and the token is dead."""
        token = secrets.token_urlsafe(_BYTES)
        self._links[token] = role
        return token

    def enter(self, token: str) -> str | None:
        """The cookie for a token that nobody has used yet."""
        for known in list(self._links):
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                role, cookie = self._links.pop(known), secrets.token_urlsafe(_BYTES)
                self._visits[cookie] = Visit(role, secrets.token_urlsafe(_BYTES))
                return cookie
        return None

    def visit(self, cookie: str | None) -> Visit | None:
        """Who has this cookie."""
        return None if cookie is None else self._visits.get(cookie)


def keep(scope: Scope, visit: Visit) -> None:
    """Let the endpoint of a request know who is there."""
    scope[_KEY] = visit


def visit_of(request: HTTPConnection) -> Visit:
    """Who sent a request; the guard lets nobody else through."""
    visit = request.scope[_KEY]
    assert isinstance(visit, Visit)  # noqa: S101
    return visit
