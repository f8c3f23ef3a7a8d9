"""A link that answers from the coordinator's record first, and then goes live, recording on.

That is how a killed run resumes, whatever the algorithm: its code runs again from the start, gets the recorded replies,
and so reaches the same state, without any checkpoint code in it. Sites are asked again only for what is not recorded,
and sent again what their stored states lack: they do those orders for their effects, and the record still answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from collegium.core.link import Answer, Link, OpenLink, RepeatingLink
from collegium.errors import RecordError
from collegium.wire.orders import read_header

if TYPE_CHECKING:
    from collegium.runs.record import Record


class ReplayLink:
    """The recorded exchanges, then those of the live link."""

    def __init__(self, live: Link, record: Record) -> None:
        self.parties = live.parties
        self._live = live
        self._record = record
        self._next = 0
        self._behind = dict(live.behind) if isinstance(live, RepeatingLink) else {}
        self._open = live if isinstance(live, OpenLink) else None  # which takes a while to find out

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """From the record where it has this exchange, from the sites otherwise."""
        number, self._next = self._next, self._next + 1
        asked = orders_hash(orders)
        if number >= self._record.length:
            yield from self._record.write(number, asked, self._live.exchange(orders, deadline))
            return
        if self._record.orders_hash(number) != asked:
            raise RecordError(
                f"{self._record.path}: exchange {number} differs from the recorded one. The algorithm, its settings or "
                "the versions of libraries have changed: start a new run."
            )
        self._catch_up(orders)
        yield from self._record.answers(number)

    def _catch_up(self, orders: Mapping[str, bytes]) -> None:
        """Have sites do these orders again whose stored states lack them."""
        lacking = {party: orders[party] for party, numbers in self._behind.items() if _last(orders, party) in numbers}
        for _ in self._live.exchange(lacking, None) if lacking else ():
            pass  # what they answered is in the record

    def newcomers(self) -> tuple[str, ...]:
        """Those that joined before this exchange when it was recorded; live, those that join now."""
        joined = self._record.newcomers(self._next)
        if self._next >= self._record.length and self._open is not None:
            joined += self._record.write_newcomers(self._next, self._open.newcomers())
        self.parties += joined
        return joined


def _last(orders: Mapping[str, bytes], party: str) -> int | None:
    return read_header(orders[party])[0].last if party in orders else None


def orders_hash(orders: Mapping[str, bytes]) -> str:
    """Identifies what was asked of whom."""
    digest = hashlib.sha256()
    of_frames = {id(frame): frame for frame in orders.values()}  # most parties are sent the same one
    digests = {each: hashlib.sha256(frame).digest() for each, frame in of_frames.items()}
    for party in sorted(orders):
        digest.update(party.encode() + b"\0" + digests[id(orders[party])])
    return digest.hexdigest()
