"""Replies as they travel. Whatever a site sends is read once, into a `Reply` or a `Refusal`; anything else is an error.

A reply says what its row in the site's ledger says, so that the coordinator can show later what a site has sent.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as json_text
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from collegium import wire
from collegium.errors import WireError
from collegium.wire.limits import REPLY_HEADER

REFUSAL: Final = "Refusal"
"""The kind, in ledgers, of a refusal that reveals something about the data and was paid for."""
UNREAD: Final = -1
"""The number of a refusal that answers no order in particular: the site could not read what it was sent."""
_EXACT: Final = ConfigDict(extra="forbid")
_SHA256: Final = re.compile(r"^[0-9a-f]{64}\Z")
_Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
_Hash = Annotated[str, Field(strict=True, pattern=_SHA256)]


@dataclass(frozen=True)
class Row:
    """What a site's ledger says about something that left."""

    __pydantic_config__ = _EXACT

    kind: Annotated[str, Field(strict=True, min_length=1, max_length=128)]
    bytes: _Count
    """How many bytes are contents; the others are structure."""
    sha256: _Hash
    entry: _Hash | None
    """The row's own hash; None if nothing was written, since only the fact that a step finished left."""
    privacy: Annotated[str, Field(strict=True)] | None
    """The charges, as JSON; None if nothing protects it."""


@dataclass(frozen=True)
class Reply:
    """A site's answer to an order: a release, sealed by its gate."""

    number: int
    row: Row
    payload: bytes | memoryview


@dataclass(frozen=True)
class Refusal:
    """A site did not do what it was asked, or did not release it."""

    __pydantic_config__ = _EXACT

    number: Annotated[int, Field(strict=True, ge=UNREAD, lt=1 << 63)]
    code: Annotated[str, Field(strict=True, pattern=r"^[a-z0-9-]{1,64}$", validation_alias="refused")]
    step: Annotated[str, Field(strict=True, max_length=256)]
    row: Row | None = None
    """If the refusal itself reveals something about the data and was paid for."""


@dataclass(frozen=True)
class _Answered:
    __pydantic_config__ = _EXACT

    number: _Count
    row: Row


_REFUSED: Final = TypeAdapter(Refusal)
_ANSWERED: Final = TypeAdapter(_Answered)


def write_reply(reply: Reply) -> bytes:
    """A reply's frame."""
    return write_release(reply.number, reply.row, wire.Packed([reply.payload], 0))


def write_release(number: int, row: Row, payload: wire.Packed) -> bytes:
    """The same for a payload that is still in parts: it is copied only once."""
    # As `wire.join` would write it, in a fraction of the time: sites write one for every order.
    entry, privacy = ("null" if text is None else json_text(text) for text in (row.entry, row.privacy))
    told = f'"kind":{json_text(row.kind)},"bytes":{row.bytes:d},"sha256":{json_text(row.sha256)}'
    return wire.join_words(f'{{"number":{number:d},"row":{{{told},"entry":{entry},"privacy":{privacy}}}}}', payload)


def write_refusal(refusal: Refusal) -> bytes:
    """A refusal's frame."""
    header: dict[str, Any] = {"number": refusal.number, "refused": refusal.code, "step": refusal.step}
    return wire.join(header if refusal.row is None else header | {"row": vars(refusal.row)}, b"")


def read_reply(frame: bytes) -> Reply | Refusal:
    """What a frame says; anything but a reply or a refusal, whole and consistent, is a WireError."""
    plain, payload = wire.cut_view(frame, REPLY_HEADER)
    try:
        header = (_REFUSED if "refused" in plain else _ANSWERED).validate_python(plain)
    except ValidationError:
        raise WireError("A frame is neither a reply nor a refusal.") from None
    row = header.row
    if row is not None and row.privacy is not None:  # it is structure itself, and will be parsed
        REPLY_HEADER.check_head(row.privacy.encode())
    if row is not None and hashlib.sha256(payload).hexdigest() != row.sha256:
        raise WireError("A reply does not match its hash.")
    if isinstance(header, _Answered):
        if header.row.bytes > len(payload):
            raise WireError("A reply has fewer bytes than it declares.")
        return Reply(header.number, header.row, payload)
    if payload or (row is not None and (row.kind != REFUSAL or row.bytes)):
        raise WireError("A refusal must not carry anything.")
    return header
