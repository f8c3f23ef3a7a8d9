"""Orders as they travel: all that a coordinator asks of one site in one exchange, in one frame.

A site reads a frame once, strictly: what is not exactly an order is a WireError, and nothing of it runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from collegium import wire
from collegium.core.labels import Labels
from collegium.errors import WireError
from collegium.wire.limits import ORDERS

_EXACT: Final = ConfigDict(extra="forbid")
_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
_Name = Annotated[str, Field(strict=True, min_length=1, max_length=256)]
_Hash = Annotated[str, Field(strict=True, max_length=128)]


@dataclass(frozen=True)
class Mask:
    """What a site's gate needs for hiding its release among those of others, so that only their sum can be read."""

    __pydantic_config__ = _EXACT

    protocol: _Name
    """The registered way of masking."""
    circle: _Name
    """The sites that have exchanged keys under this name."""
    round: _Name
    participants: list[_Name]
    again: _Name | None = None
    """The round whose release is masked again, without the site that dropped out of it: no step runs again."""


@dataclass(frozen=True)
class Request:
    """One order of one run: which step, with which arguments, and what its answer must pass at the gate."""

    __pydantic_config__ = _EXACT

    run: _Hash
    public_sha256: _Hash | None
    number: _Number
    round: _Number
    step: _Name
    digest: _Hash
    args: dict[str, Any]
    mechanism: dict[str, Any] | None = None
    """The noise that the site's gate puts on the release, as plain data."""
    mask: Mask | None = None

    @property
    def labels(self) -> list[Labels]:
        """The labels among its arguments."""
        return [value for value in self.args.values() if isinstance(value, Labels)]


@dataclass(frozen=True)
class Header:
    """What a frame of orders says before any of them is read: enough to know whether it was answered before."""

    __pydantic_config__ = _EXACT

    run: Annotated[str, Field(strict=True, max_length=64)]
    last: _Number
    """The number of the last order, which identifies them all."""
    public: _Hash | None


_FIXED: Final = (Labels, np.ndarray, str, int, float, type(None))
_MOST_KEPT: Final = 1 << 30
"""Bytes of orders that sites of a process read once for all, and keep until the next: those of a language model."""
_COMMON: Final = ("run", "public_sha256")
"""What a frame's orders share: its header says it for all of them."""
_HEADER: Final = TypeAdapter(Header)
_REQUESTS: Final = TypeAdapter(Annotated[list[Request], Field(min_length=1)])


def write_orders(requests: Sequence[Request], reference: Labels | None = None) -> bytes:
    """Orders without their header: sites that are asked the same get the same bytes."""
    return wire.pack({"orders": [_to_plain(request) for request in requests]}, reference, ORDERS).data


def with_header(last: Request, orders: bytes) -> bytes:
    """The frame of orders that end with `last`."""
    return wire.join({"run": last.run, "last": last.number, "public": last.public_sha256}, orders)


def read_header(frame: bytes) -> tuple[Header, memoryview]:
    """A frame's header, and its orders where they lie."""
    plain, orders = wire.cut_view(frame)
    try:
        return _HEADER.validate_python(plain), orders
    except ValidationError:
        raise WireError("A frame of orders has no valid header.") from None


def read_orders(header: Header, orders: bytes | memoryview, known: wire.KnownLabels | None = None) -> list[Request]:
    """The orders behind a header, at least one."""
    plain = wire.unpack(orders, known, ORDERS, frozen=True)
    common = dict(zip(_COMMON, (header.run, header.public), strict=True))
    try:
        if set(plain) != {"orders"}:
            raise WireError("A message holds something other than orders.")
        requests = _REQUESTS.validate_python([{**each, **common} for each in plain["orders"]])
    except (ValidationError, TypeError):
        raise WireError("A message holds something that is not a valid order.") from None
    if requests[-1].number != header.last:
        raise WireError("The number of the last order is not the one in the header.")
    return requests


class OrderReader:
    """Reads frames of orders. With `shares`, what sites of one process are sent alike is read once.

    Those sites remember the latest labels only. Each has tables and lists of its own; arrays cannot be changed.
    """

    def __init__(self, *, shares: bool) -> None:
        self._shares = shares
        self._begun: tuple[bytes, str, Header, memoryview] | None = None
        self._read: tuple[memoryview, Labels | None, list[Request], bool] | None = None
        """Orders, the labels that were known, what they say, and whether no step could change anything of that."""

    def begin(self, frame: bytes) -> tuple[str, Header, memoryview]:
        """A frame's hash, its header, and its orders where they lie."""
        begun = self._begun
        if begun is None or begun[0] is not frame:
            begun = frame, hashlib.sha256(frame).hexdigest(), *read_header(frame)
            if self._shares and len(frame) < _MOST_KEPT:
                self._begun = begun
        return begun[1:]

    def forget(self) -> None:
        """Give back what was kept: the next order is read anew."""
        self._begun = self._read = None

    def orders(self, header: Header, orders: memoryview, known: wire.KnownLabels) -> list[Request]:
        """The orders behind a header that `begin` has read."""
        read, latest = self._read, known.latest
        if read is not None and read[0] is orders and read[1] is latest:
            return read[2] if read[3] else _own_copies(read[2])
        requests = read_orders(header, orders, known)
        if not self._shares or len(orders) >= _MOST_KEPT or any(each.mask is not None for each in requests):
            return requests
        fixed = all(isinstance(value, _FIXED) for each in requests for value in each.args.values())
        self._read = orders, latest, requests, fixed
        return requests if fixed else _own_copies(requests)


def _own_copies(requests: Sequence[Request]) -> list[Request]:
    return [replace(each, args=_own(each.args)) for each in requests]


def _own(value: Any) -> Any:
    """The same with tables and lists that may be changed."""
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    return [_own(item) for item in value] if isinstance(value, list) else value


def _to_plain(request: Request) -> dict[str, Any]:
    """What the header does not say, without what is not there."""
    plain = {name: value for name, value in vars(request).items() if name not in _COMMON and value is not None}
    return plain if request.mask is None else plain | {"mask": asdict(request.mask)}
