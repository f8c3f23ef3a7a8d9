"""Secure row sums: every site has a summand for every site's rows; each site gets the sum of its own rows only.

Values are fixed-point numbers with 32 fractional bits, added modulo 2^64: the error of a sum of m sites is at most
m 2^-33, and masks are exact.

Two ways, chosen by name:

- ``pairwise``: every pair of sites shares a mask that cancels in the sum. A site never sends its own rows, so the
  server cannot complete any sum. If a site drops out, the masks no longer cancel: the others start a round with a
  fresh name and WITHOUT the rows of the site that left. Were its rows still sent, their masks would cancel
  at the server, which could then read them.
- ``recipient``: what a site has for site j is masked with the key that it shares with j alone. The server adds up
  what came and names the senders; j takes their masks off. Nobody has to start again.

With two sites the sum shows each what the other put in; below three sites there is a warning. Sums hide summands only
from who knows nothing else of them. In XCLP the server knows by what each site multiplied its labels: with the sums of
one site's rows, in either way, it solves for the labels of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.keys import Member
from collegium.protocols.masks import Masks, Words, checked_mode, warn_if_few
from collegium.protocols.received import as_array

LEARNS = {
    "pairwise": {
        "server": "nothing but sizes: the owner of rows keeps the share without which no sum is complete",
        "site": "the sum over all participants of its own rows",
        "server and one site": "that site's sums, and what can be solved from them: in XCLP, the labels of all sites",
    },
    "recipient": {
        "server": "nothing but sizes",
        "site": "the sum of its own rows over the participants that the server names",
        "server and one site": "each participant's own contribution to that site's rows: in XCLP, its labels",
    },
}
FRACTION_BITS: Final = 32
_WORD: Final = np.dtype("<u8")


def largest_summand(summands: int) -> float:
    """What each of so many summands may be at most, so that no sum overflows."""
    return 2.0 ** (63 - FRACTION_BITS) / summands - 1


def largest_error(summands: int) -> float:
    """How far a sum of so many may be from the true one."""
    return summands * 2.0 ** -(FRACTION_BITS + 1)


def to_fixed_point(values: NDArray[Any], summands: int) -> NDArray[np.uint64]:
    """Numbers as words modulo 2^64; refused where a sum of so many could overflow."""
    numbers = np.asarray(values, np.float64)
    largest = largest_summand(summands)
    if not np.isfinite(numbers).all():
        raise ConfigError("Values to be summed must be finite: some are NaN or infinite.")
    if numbers.size and np.abs(numbers).max() > largest:
        raise ConfigError(f"Values to be summed over {summands} sites must lie within +-{largest:.6g}: scale them.")
    return np.rint(numbers * 2.0**FRACTION_BITS).astype(np.int64).view(np.uint64)


def from_fixed_point(fixed: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Undo `to_fixed_point`."""
    return fixed.view(np.int64) / 2.0**FRACTION_BITS


class RowSums:
    """A site's side of secure row sums, for one circle and any number of rounds."""

    def __init__(self, member: Member, mode: str = "pairwise") -> None:
        self._member, self._mode = member, checked_mode(mode)
        self._open: dict[str, tuple[Masks, Words]] = {}

    def submit(self, round_name: str, blocks: Mapping[str, NDArray[Any]]) -> dict[str, Words]:
        """Masked summands for the other sites' rows; `blocks` has one (rows, columns) table per participant.

        Who is in `blocks` takes part, with its rows; who is not, does not. A round's name is used once.
        """
        warn_if_few(len(blocks), "row sums")
        fixed = {party: to_fixed_point(blocks[party], len(blocks)) for party in sorted(blocks)}
        if any(block.ndim != 2 for block in fixed.values()) or len({block.shape[1] for block in fixed.values()}) != 1:
            raise ConfigError("Each site's rows are a table, rows by columns, with as many columns as the others'.")
        masks = Masks(self._member, f"row sums {self._mode}", round_name, list(blocks))
        if self._mode == "pairwise":
            # One mask for all rows together: with many sites, deriving one per block would take most of the time.
            rows = np.concatenate(list(fixed.values()))
            rows += masks.cancelling("rows", rows.shape, _WORD)
            ends = np.cumsum([len(block) for block in fixed.values()])[:-1]
            fixed = dict(zip(fixed, np.split(rows, ends), strict=True))
        else:
            for party in masks.others:
                shape = fixed[party].shape
                fixed[party] += masks.shared_with(party, f"{masks.party} to {party}", shape, _WORD)
        self._open[round_name] = masks, fixed.pop(masks.party)
        return dict(fixed)

    def finish(self, round_name: str, answer: Mapping[str, Any]) -> NDArray[np.float64]:
        """The sums of this site's own rows, from the server's answer."""
        if round_name not in self._open:
            raise Reused("server", f"answers round {round_name!r}, which is not open: begin a round with a fresh name.")
        masks, own = self._open[round_name]
        total = as_array("server", answer.get("sum"), _WORD, own.shape).astype(np.uint64)
        senders = answer.get("from")
        if not isinstance(senders, list) or len(set(senders)) != len(senders) or not set(senders) <= set(masks.others):
            raise ProtocolError("server", f"names senders that do not take part in round {round_name!r}.")
        if self._mode == "pairwise" and len(senders) != len(masks.others):
            absent = sorted(set(masks.others) - set(senders))
            raise ProtocolError("server", f"sent an incomplete sum in {round_name!r}: start a round without {absent}.")
        del self._open[round_name]
        if self._mode == "recipient":
            warn_if_few(len(senders) + 1, "row sums")
            for party in senders:
                total -= masks.shared_with(party, f"{party} to {masks.party}", own.shape, _WORD)
        return from_fixed_point(total + own)


class RowSumServer:
    """The server's side of one round: adds up masked rows that it cannot read."""

    def __init__(self, sizes: Mapping[str, int], columns: int, mode: str = "pairwise") -> None:
        self._mode = checked_mode(mode)
        self._shapes = {party: (rows, columns) for party, rows in sizes.items()}
        self._sums = {party: np.zeros(shape, _WORD) for party, shape in self._shapes.items()}
        self._from: list[str] = []

    @property
    def missing(self) -> tuple[str, ...]:
        """The participants that have not submitted."""
        return tuple(party for party in self._shapes if party not in self._from)

    def add(self, party: str, submission: Mapping[str, Any]) -> None:
        """Take one site's submission; nothing of it is kept but the sums."""
        if party not in self._shapes:
            raise ProtocolError(party, "submits to a round in which it does not take part.")
        if party in self._from:
            raise Reused(party, "submits twice in one round: begin a round with a fresh name.")
        if set(submission) != set(self._shapes) - {party}:
            raise ProtocolError(party, "submits rows of other sites than those that take part.")
        blocks = {owner: as_array(party, block, _WORD, self._shapes[owner]) for owner, block in submission.items()}
        for owner, block in blocks.items():
            self._sums[owner] += block
        self._from.append(party)

    def answers(self) -> dict[str, dict[str, Any]]:
        """For every site that submitted, the sum over the others that did."""
        if self._mode == "pairwise" and self.missing:
            raise ProtocolError(
                self.missing,
                "did not submit: start a round with a fresh name and without the rows of those that are missing.",
            )
        return {
            party: {"sum": self._sums[party], "from": [other for other in self._from if other != party]}
            for party in self._from
        }
