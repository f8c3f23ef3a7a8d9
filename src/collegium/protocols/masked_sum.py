"""Masked sums of small whole numbers: the server sees how many, never whose.

This is how votes are counted without anybody seeing a site's labels: each site submits a 1 for its class of each
sample, masked, in words just wide enough for the sum (one byte per class and sample up to 255 sites).

Two ways, chosen by name:

- ``pairwise``: every pair of sites shares a mask that cancels in the sum. If a site drops out, the others submit
  again in a round with a fresh name. A message of the lost site that arrives AFTER that gives its values away to
  a server that keeps it (the sum with it minus the sum without): where sites are often late, use `recipient`.
- ``recipient``: one site, the keeper, shares a mask with each of the others. The server names whose messages it
  has; the keeper takes off their masks, once per round, and adds its own values. Nobody submits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.keys import Session
from collegium.protocols.masks import Masks, Words, checked_mode, warn_if_few, words

LEARNS = {
    "pairwise": {
        "server": "the sum over all participants; of a lost site also its own values, if its message comes late",
        "site": "nothing",
        "server and one site": "the sum over the other participants",
    },
    "recipient": {
        "server": "the sum over the participants whose messages came in time",
        "site": "nothing; the keeper learns who came in time",
        "server and the keeper": "every participant's own values",
    },
}
_WIDTHS: Final = ("u1", "<u2", "<u4", "<u8")


def width(most: int, sites: int) -> np.dtype[Any]:
    """The smallest words that hold the sum over so many sites of whole numbers 0 .. most."""
    if most < 1 or sites < 1:
        raise ConfigError(f"A sum needs values up to at least 1 and at least one site, not {most} and {sites}.")
    for name in _WIDTHS:
        dtype = np.dtype(name)
        if most * sites < 1 << 8 * dtype.itemsize:
            return dtype
    raise ConfigError(f"A sum of {sites} values of up to {most} does not fit 64 bits.")


def votes(codes: NDArray[np.integer[Any]], n_classes: int) -> NDArray[np.uint8]:
    """Labels as counts, of shape (n_classes, samples): a 1 for the label, nothing for an abstention (-1)."""
    chosen: NDArray[np.bool_] = codes == np.arange(n_classes)[:, None]
    return chosen.view(np.uint8)


class MaskedSum:
    """A site's side, for one session and any number of rounds."""

    def __init__(self, session: Session, mode: str = "pairwise") -> None:
        self._session, self._mode = session, checked_mode(mode)
        self._kept: dict[str, tuple[Masks, Words]] = {}

    def submit(
        self,
        round_name: str,
        values: NDArray[np.integer[Any]],
        participants: Sequence[str],
        *,
        most: int = 1,
        keeper: str | None = None,
    ) -> Words | None:
        """This site's masked values, for the server; None at the keeper, which waits for `unmask`.

        Every value lies in 0 .. most. A round's name is used once, whoever takes part.
        """
        values = np.asarray(values)
        if values.dtype.kind not in "iub" or (values.size and (values.min() < 0 or values.max() > most)):
            raise ConfigError(f"Values of a masked sum are whole numbers in 0 .. {most}.")
        if (self._mode == "recipient") != (keeper in set(participants)):
            raise ConfigError("A masked sum of mode 'recipient', and no other, has one of its participants as keeper.")
        warn_if_few(len(participants), "a masked sum")
        masks = Masks(self._session, f"masked sum {self._mode} {keeper or ''}", round_name, participants)
        plain = values.astype(width(most, len(participants)))
        if keeper == masks.party:
            self._kept[round_name] = masks, plain
            return None
        if keeper is not None:
            return plain + masks.shared_with(keeper, f"{masks.party} to {keeper}", plain.shape, plain.dtype)
        return plain + masks.cancelling("sum", plain.shape, plain.dtype)

    def unmask(self, round_name: str, senders: Sequence[str]) -> Words:
        """At the keeper, once per round: what the server must add to the sum of those senders' messages."""
        if round_name not in self._kept:
            raise Reused("server", f"asks again for the masks of round {round_name!r}, or never opened it.")
        masks, total = self._kept[round_name]
        if not senders or len(set(senders)) != len(senders) or not set(senders) <= set(masks.others):
            raise ProtocolError("server", f"names senders that do not take part in round {round_name!r}.")
        warn_if_few(len(senders) + 1, "a masked sum")
        del self._kept[round_name]
        for party in senders:
            total -= masks.shared_with(party, f"{party} to {masks.party}", total.shape, total.dtype)
        return total


class SumServer:
    """The server's side of one round; it holds the running sum only."""

    def __init__(
        self, participants: Sequence[str], shape: tuple[int, ...], *, most: int = 1, keeper: str | None = None
    ) -> None:
        self._parties, self._keeper = tuple(participants), keeper
        self._most = most
        self._sum: Words = np.zeros(shape, width(most, len(participants)))
        self.senders: list[str] = []

    @property
    def missing(self) -> tuple[str, ...]:
        """The participants that have not submitted."""
        return tuple(party for party in self._parties if party not in self.senders and party != self._keeper)

    def add(self, party: str, masked: object) -> None:
        """Take one site's message."""
        if party not in self._parties or party == self._keeper:
            raise ProtocolError(party, "submits to a masked sum in which it has nothing to submit.")
        if party in self.senders:
            raise Reused(party, "submits twice in one round: begin a round with a fresh name.")
        self._sum += words(party, masked, self._sum.shape, self._sum.dtype)
        self.senders.append(party)

    def total(self, unmasked: object = None) -> Words:
        """The sum; of mode `recipient` with the keeper's answer. An impossible sum is not handed out."""
        total, contributors = self._sum, len(self.senders)
        if self._keeper is not None:
            total = total + words(self._keeper, unmasked, total.shape, total.dtype)
            contributors += 1
        elif self.missing:
            raise ProtocolError(
                self.missing,
                "did not submit: the others must submit again, in a round with a fresh name and without them.",
            )
        if total.size and int(total.max()) > self._most * contributors:
            raise ProtocolError(self._keeper or self._parties, "sent values of which the sum is impossible.")
        return total
