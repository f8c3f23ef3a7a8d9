"""Masked sums of small whole numbers: the server sees how many, never whose.

This is how votes are counted without anybody seeing a site's labels: each site submits a 1 for its class of each
sample, masked, in words just wide enough for the sum (one byte per class and sample up to 255 sites).

Every site's values have two masks, as in Bonawitz et al., "Practical secure aggregation", 2017: one that it shares with
each other site, which cancel in the sum of all participants, and one of its own. It deals out the key of its own mask
in shares that the server carries but cannot read; more than half of the participants together can open it.

- When all have submitted, the participants open their shares of all own masks, once, and the sum can be read. Who drops
  out meanwhile is not needed.
- When a site is missing, nobody opens anything. The others submit again, in a round with a fresh name, and only that
  one can be opened. Whatever comes late belongs to a sum that nobody can read: the sum with a lost site minus the sum
  without it, which would be its values, is never there.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols import primitives, sharing
from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.keys import Member
from collegium.protocols.masks import Masks, Words, warn_if_few
from collegium.protocols.primitives import KEY_BYTES, Bytes, bind
from collegium.protocols.received import as_array, as_bytes

LEARNS = {
    "server": "the sum over each round's participants, which it chooses; by subtracting, how the sums of two rounds "
    "or runs differ: if a site is left out of a round in which the others vote as before, that site's votes",
    "site": "nothing",
    "server and some sites": "the sum over the other participants; with all sites but one, that one's votes",
}


def width(most: int | None, sites: int) -> np.dtype[Any]:
    """The smallest words that hold the sum over so many sites of whole numbers 0 .. most.

    Without a `most` these are words of 64 bits, and sums of them wrap around.
    """
    if most is None:
        return np.dtype("<u8")
    if most < 1 or sites < 1:
        raise ConfigError(f"A sum needs values up to at least 1 and at least one site, not {most} and {sites}.")
    smallest = np.min_scalar_type(most * sites)
    if smallest.kind != "u":
        raise ConfigError(f"A sum of {sites} values of up to {most} does not fit 64 bits.")
    return smallest.newbyteorder("<")


def votes(codes: NDArray[np.integer[Any]], n_classes: int) -> NDArray[np.uint8]:
    """Labels as counts, of shape (n_classes, samples): a 1 for the label, nothing for an abstention (-1)."""
    chosen: NDArray[np.bool_] = codes == np.arange(n_classes)[:, None]
    return chosen.view(np.uint8)


def majority(participants: int) -> int:
    """How many of them open a mask. Who submits the same values again, to some of the same participants, opens no
    earlier round: even a server that pretends drop-outs sees no two sums that differ by fewer than so many sites."""
    return participants // 2 + 1


@dataclass(frozen=True)
class Submission:
    """What a site sends: masked values, its mask's key in sealed shares, and what shares and key must hash to."""

    words: Words
    letters: dict[str, Bytes]
    """Shares of the own mask's key, sealed, by the site that they are for."""
    digests: dict[str, str]
    """Of each participant's share, by name."""
    key_digest: str


@dataclass(frozen=True)
class _Waiting:
    """A round that this site has submitted to, and may open."""

    name: str
    participants: tuple[str, ...]
    own_share: bytes


class MaskedSum:
    """A site's side, for one circle and any number of rounds."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._waiting: _Waiting | None = None

    def submit(
        self, round_name: str, values: NDArray[np.integer[Any]], participants: Sequence[str], *, most: int | None = 1
    ) -> Submission:
        """This site's masked values, for the server; no earlier round can be opened here from now on.

        Every value lies in 0 .. most (without it: is any word). A round's name is used once, whoever takes part.
        """
        values, largest = np.asarray(values), 2**64 - 1 if most is None else most
        if values.dtype.kind not in "iub" or (values.size and (values.min() < 0 or values.max() > largest)):
            raise ConfigError(f"Values of a masked sum are whole numbers in 0 .. {largest}.")
        warn_if_few(len(participants), "a masked sum")
        masks = Masks(self._member, "masked sum", round_name, participants)
        parties = tuple(sorted(participants))
        plain = values.astype(width(most, len(parties)))
        key = secrets.token_bytes(KEY_BYTES)
        shares = dict(zip(parties, sharing.deal(key, majority(len(parties)), len(parties)), strict=True))
        context = _context(round_name, parties)
        letters = {
            party: self._member.seal(party, np.frombuffer(shares[party], np.uint8), context) for party in masks.others
        }
        self._waiting = _Waiting(round_name, parties, shares[masks.party])
        return Submission(
            plain + masks.cancelling("sum", plain.shape, plain.dtype) + own_mask(key, plain.shape, plain.dtype),
            letters,
            {party: _digest(share) for party, share in shares.items()},
            _digest(key),
        )

    def forget(self) -> None:
        """Let no round be opened here any more."""
        self._waiting = None

    def open(self, round_name: str, letters: Mapping[str, object]) -> tuple[dict[str, Bytes], list[str]]:
        """This site's shares of all participants' own masks, once, when all of them have submitted.

        `letters` are what the other participants sealed for this one. If one cannot be opened there are no shares, but
        the names of those that sent such letters.
        """
        waiting = self._waiting
        if waiting is None or waiting.name != round_name:
            raise Reused("server", f"asks to open round {round_name!r}, which cannot be opened, or no longer.")
        if set(letters) != set(waiting.participants) - {self._member.party}:
            raise ProtocolError("server", f"leaves out, or adds, participants of round {round_name!r}.")
        self._waiting = None
        context = _context(round_name, waiting.participants)
        shares, faults = {self._member.party: np.frombuffer(waiting.own_share, np.uint8)}, []
        for party in sorted(letters):
            try:
                opened = self._member.open(party, np.asarray(letters[party]), context)
                shares[party] = np.frombuffer(as_bytes(party, opened, sharing.SHARE_BYTES), np.uint8)
            except ProtocolError:
                faults.append(party)
        return ({}, faults) if faults else (shares, [])


def own_mask(key: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Words:
    """The mask that a key stands for."""
    size = int(np.prod(shape)) * dtype.itemsize
    stretched = primitives.hkdf(key, bind("collegium own mask v1", dtype.str, *shape))
    made: Words = primitives.stream(stretched, size).view(dtype).reshape(shape)
    return made


class SumServer:
    """The server's side of one round; of the values it holds the running sum only."""

    def __init__(self, participants: Sequence[str], shape: tuple[int, ...], *, most: int | None = 1) -> None:
        self._parties = tuple(sorted(set(participants)))
        self._most = most
        self._sum: Words = np.zeros(shape, width(most, len(participants)))
        self._sent: dict[str, Submission] = {}
        self._shares: dict[str, dict[int, bytes]] = {party: {} for party in self._parties}

    @property
    def senders(self) -> list[str]:
        """The participants that have submitted, by name."""
        return sorted(self._sent)

    @property
    def missing(self) -> tuple[str, ...]:
        """The participants that have not submitted."""
        return tuple(party for party in self._parties if party not in self._sent)

    def add(self, party: str, sent: Submission) -> None:
        """Take one site's message."""
        if party not in self._parties:
            raise ProtocolError(party, "submits to a masked sum in which it does not take part.")
        if party in self._sent:
            raise Reused(party, "submits twice in one round: begin a round with a fresh name.")
        if set(sent.letters) | {party} != set(self._parties) or set(sent.digests) != set(self._parties):
            raise ProtocolError(party, "does not deal out its mask to all participants.")
        self._sum += as_array(party, sent.words, self._sum.dtype, self._sum.shape)
        empty = np.zeros(0, self._sum.dtype)
        self._sent[party] = Submission(empty, sent.letters, sent.digests, sent.key_digest)

    def letters_for(self, party: str) -> dict[str, Bytes]:
        """What this participant must open; nothing is opened while one is missing."""
        if self.missing:
            raise ProtocolError(
                self.missing,
                "did not submit: the others must submit again, in a round with a fresh name and without them.",
            )
        return {sender: sent.letters[party] for sender, sent in self._sent.items() if sender != party}

    def opened(self, party: str, shares: Mapping[str, object]) -> None:
        """Take one site's shares of everybody's own masks."""
        if set(shares) != set(self._parties):
            raise ProtocolError(party, "does not open its shares of all participants' masks.")
        raw = {owner: as_bytes(party, share, sharing.SHARE_BYTES) for owner, share in shares.items()}
        for owner, share in raw.items():
            if _digest(share) != self._sent[owner].digests[party]:
                raise ProtocolError((owner, party), "do not agree on a share of a mask: one of them changed it.")
        for owner, share in raw.items():
            self._shares[owner][self._parties.index(party) + 1] = share

    @property
    def readable(self) -> bool:
        """Have enough participants opened their shares?"""
        return not self.missing and all(len(each) >= majority(len(self._parties)) for each in self._shares.values())

    def total(self) -> Words:
        """The sum over all participants. An impossible sum is not handed out."""
        if not self.readable:
            raise ProtocolError("server", "reads a masked sum before enough participants have opened it.")
        total = self._sum.copy()
        for party, shares in self._shares.items():
            key = sharing.joined(dict(sorted(shares.items())[: majority(len(self._parties))]))
            if key is None or _digest(key) != self._sent[party].key_digest:
                raise ProtocolError(party, "dealt out shares that do not open its mask.")
            total -= own_mask(key, total.shape, total.dtype)
        if self._most is not None and total.size and int(total.max()) > self._most * len(self._parties):
            raise ProtocolError(self._parties, "sent values whose sum is impossible.")
        return total


def _context(round_name: str, participants: Sequence[str]) -> str:
    named = bind(round_name, *participants)
    return f"share of a mask {hashlib.sha256(named).hexdigest()}"


def _digest(secret: bytes) -> str:
    return hashlib.sha256(bind("collegium share v1", secret)).hexdigest()
