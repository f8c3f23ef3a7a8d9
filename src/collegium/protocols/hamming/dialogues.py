"""One site's conversations with all others about distances, whatever the backend, and the server's end of them.

Every pair of sites talks by itself; the one whose name comes first opens. A site whose letter cannot be accepted is
named, and the conversation with it ends there: the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from collegium.errors import ConfigError
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import bfv, masked, ot, paillier
from collegium.protocols.hamming.distances import Bits, Distances
from collegium.protocols.keys import Member
from collegium.protocols.primitives import Bytes

_KEY_OWNERS = {"paillier": paillier, "bfv": bfv}


class _Side(Protocol):
    """One site's side of one pair."""

    def opening(self) -> Any:
        """The first message, of the site that opens."""

    def answer(self, message: Any) -> Any:
        """The next message to the peer; None where there is nothing left to say."""

    def share(self) -> Any:
        """For the server, when all is said."""


class _Chooser:
    """The receiver of oblivious transfers, which opens."""

    def __init__(self, bits: Bits, points: int, pair: str, peer: str) -> None:
        self._receiver, self._peer = ot.Receiver(bits, points, pair, peer), peer
        self._asked = -1

    def opening(self) -> Any:
        return self._receiver.offer()

    def answer(self, message: Any) -> Any:
        if self._asked < 0:
            self._receiver.prepare(message)
        else:
            self._receiver.receive(self._asked, _table(self._peer, message))
        self._asked += 1
        return self._receiver.request(self._asked) if self._asked < self._receiver.blocks else None

    def share(self) -> Any:
        return self._receiver.share()


class _Answerer:
    """The sender of oblivious transfers."""

    def __init__(self, bits: Bits, points: int, pair: str, peer: str) -> None:
        self._sender = ot.Sender(bits, points, pair, peer)
        self._served = -1

    def opening(self) -> Any:
        return None

    def answer(self, message: Any) -> Any:
        self._served += 1
        return self._sender.answer(message) if not self._served else self._sender.serve(self._served - 1, message)

    def share(self) -> Any:
        return self._sender.share()


class _Owner:
    """A key owner towards one partner; it encrypts once for all of them."""

    def __init__(self, owner: Any, points: int, peer: str) -> None:
        self._owner, self._points, self._peer = owner, points, peer
        self._share: Any = None

    def opening(self) -> Any:
        return self._owner.sketches()

    def answer(self, message: Any) -> Any:
        self._share = self._owner.share(self._peer, self._points, message)

    def share(self) -> Any:
        if self._share is None:
            raise ProtocolError(self._peer, "has not answered.")
        return self._share


class _Partner:
    """The one that computes on a key owner's ciphertexts."""

    def __init__(self, partner: Any, peer: str) -> None:
        self._partner, self._peer = partner, peer

    def opening(self) -> Any:
        return None

    def answer(self, message: Any) -> Any:
        return self._partner.results(_table(self._peer, message))

    def share(self) -> Any:
        return self._partner.share()


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
                side = _Chooser if member.party == low else _Answerer
                self._sides[party] = side(bits, points[party], f"{member.circle} {low} {high}", party)
        elif backend in _KEY_OWNERS:
            module = _KEY_OWNERS[backend]
            owner = module.KeyOwner(bits) if any(member.party < party for party in others) else None
            for party in others:
                if member.party < party:
                    self._sides[party] = _Owner(owner, points[party], party)
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
            with suppress(KeyError, ProtocolError):  # a pair that did not come to its end has no shares
                shares[party] = self._sides[party].share()
        return shares


class DistanceServer:
    """The server's end: adds the shares of each pair."""

    def __init__(self, backend: str, length: int, points: Mapping[str, int]) -> None:
        if backend not in ("ot", "masked", *_KEY_OWNERS):
            raise ConfigError(f"There is no server for backend {backend!r}.")
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
        raise ProtocolError(party, "sent something else than a table of arrays.")
    return message
