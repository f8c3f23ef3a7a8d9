"""One site's conversations with all others about distances, whatever the backend, and the server's end of them.

Every pair of sites talks by itself; the one whose name comes first opens. A site whose letter cannot be accepted is
named, and the conversation with it ends there: the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import bfv, masked, ot, paillier
from collegium.protocols.hamming.distances import Bits, Distances
from collegium.protocols.keys import Member
from collegium.protocols.primitives import Bytes

_KEY_OWNERS = {"paillier": paillier, "bfv": bfv}


class _Side:
    """One site's side of one pair: `inner` is its part in the backend."""

    def __init__(self, inner: Any, peer: str) -> None:
        self._inner, self._peer = inner, peer

    def opening(self) -> Any:
        """The first message, of the site that opens."""
        return None

    def answer(self, message: Any) -> Any:
        """The next message to the peer; None where there is nothing left to say."""
        raise NotImplementedError

    def share(self) -> Any:
        """For the server, when all is said."""
        return self._inner.share()


class _Chooser(_Side):
    """The receiver of oblivious transfers, which opens."""

    _asked = -1

    def opening(self) -> Any:
        return self._inner.offer()

    def answer(self, message: Any) -> Any:
        if self._asked < 0:
            self._inner.prepare(message)
        else:
            self._inner.receive(self._asked, _table(self._peer, message))
        self._asked += 1
        return self._inner.request(self._asked) if self._asked < self._inner.blocks else None


class _Answerer(_Side):
    """The sender of oblivious transfers."""

    _served = -1

    def answer(self, message: Any) -> Any:
        self._served += 1
        return self._inner.answer(message) if not self._served else self._inner.serve(self._served - 1, message)


class _Owner(_Side):
    """A key owner towards one partner; it encrypts once for all of them."""

    def __init__(self, owner: Any, peer: str, points: int) -> None:
        super().__init__(owner, peer)
        self._points = points
        self._share: Any = None

    def opening(self) -> Any:
        return self._inner.sketches()

    def answer(self, message: Any) -> Any:
        self._share = self._inner.share(self._peer, self._points, message)

    def share(self) -> Any:
        if self._share is None:
            raise ProtocolError(self._peer, "has not answered.")
        return self._share


class _Partner(_Side):
    """The one that computes on a key owner's ciphertexts."""

    def answer(self, message: Any) -> Any:
        return self._inner.results(_table(self._peer, message))


class Dialogues:
    """A site's side. `points` says how many points each participant has, `key` is what all sites share."""

    def __init__(self, backend: str, bits: Bits, member: Member, points: Mapping[str, int], key: bytes) -> None:
        self._backend, self._member = backend, member
        self._said: dict[str, int] = {}
        others = [party for party in points if party != member.party]
        self._masked = masked.Site(bits, member.party, key, member.circle, points) if backend == "masked" else None
        self._sides: dict[str, _Side] = {}
        if backend == "ot":
            for party in others:
                low, high = sorted([member.party, party])
                own = bits, points[party], f"{member.circle} {low} {high}", party
                opens = member.party == low
                self._sides[party] = _Chooser(ot.Receiver(*own), party) if opens else _Answerer(ot.Sender(*own), party)
        elif backend in _KEY_OWNERS:
            module = _KEY_OWNERS[backend]
            owner = module.KeyOwner(bits) if any(member.party < party for party in others) else None
            for party in others:
                if member.party < party:
                    self._sides[party] = _Owner(owner, party, points[party])
                else:
                    self._sides[party] = _Partner(module.Partner(bits, points[party], party), party)

    def talk(self, envelopes: Mapping[str, Bytes]) -> tuple[dict[str, Bytes], dict[str, str]]:
        """Take letters, and write the next; the first call, with none, opens. Also: whose were not right, and why."""
        letters, faults = {}, {}
        opens = [party for party in self._sides if self._member.party < party and party not in self._said]
        for party in {**dict.fromkeys(opens), **dict.fromkeys(sorted(envelopes))}:
            try:
                message = self._next(party, envelopes.get(party))
            except ProtocolError as error:
                self._sides.pop(party, None)
                faults[party] = str(error)
                continue
            if message is not None:
                letters[party] = self._member.seal(party, message, self._context(party))
        return letters, faults

    def _next(self, party: str, envelope: Bytes | None) -> Any:
        if party not in self._sides:
            raise ProtocolError(party, "writes outside a conversation.")
        if envelope is None:
            return self._sides[party].opening()
        return self._sides[party].answer(self._member.open(party, envelope, self._context(party)))

    def _context(self, party: str) -> str:
        """Both sites count the pair's messages alike, so that none can be taken for another."""
        number = self._said.get(party, 0)
        self._said[party] = number + 1
        return f"hamming {number}"

    def shares(self, partners: Iterable[str]) -> dict[str, Any]:
        """For the server: the share of each pair with one of the partners. `masked`: also the masked sketches."""
        if self._masked is not None:
            shares = {party: self._masked.share(party) for party in partners}
            return {self._member.party: self._masked.sketches()} | shares
        shares = {}
        for party in partners:
            with suppress(KeyError, ProtocolError):  # a pair that did not finish has no shares
                shares[party] = self._sides[party].share()
        return shares


class DistanceServer:
    """The server's end: adds the shares of each pair."""

    def __init__(self, backend: str, length: int, points: Mapping[str, int]) -> None:
        self._backend, self._length, self._points = backend, length, dict(points)
        self._masked = masked.Server(length)
        self._shares: dict[str, Mapping[str, Any]] = {}

    def add(self, party: str, shares: Mapping[str, Any]) -> None:
        """Take one site's shares."""
        if self._backend == "masked":
            self._masked.add(party, self._points[party], shares.get(party))
        self._shares[party] = shares

    def between(self, one: str, other: str) -> Distances:
        """Distances of shape (points of one, points of the other), `one` being first by name."""
        of_one, of_other = (_share(party, self._shares[party], peer) for party, peer in ((one, other), (other, one)))
        if self._backend == "masked":
            return self._masked.distances(one, of_one, other, of_other)
        if self._backend == "paillier":
            of_one = _table(one, of_one)
        module: Any = ot if self._backend == "ot" else _KEY_OWNERS[self._backend]
        server = module.Server(self._points[one], self._points[other], self._length)
        distances: Distances = server.distances(one, of_one, other, of_other)
        return distances


def _share(party: str, shares: Mapping[str, Any], peer: str) -> Any:
    if peer not in shares:
        raise ProtocolError((party, peer), "have no shares of their distances.")
    return shares[peer]


def _table(party: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or not all(isinstance(part, np.ndarray | list) for part in message.values()):
        raise ProtocolError(party, "sent something other than a table of arrays.")
    return message
