"""Random masks that two sites share, and the round names that must never come twice.

A mask is a stream of AES in counter mode under a key that HKDF derives from the key of two sites. What the key is
bound to (circle, round, pair, participants, purpose) makes it a mask for exactly one message.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from collegium.errors import CollegiumWarning, ConfigError
from collegium.protocols import primitives
from collegium.protocols.keys import Member
from collegium.protocols.primitives import bind

Words = NDArray[np.unsignedinteger[Any]]
Mode = Literal["pairwise", "recipient"]
MODES: Final = get_args(Mode)
FEWEST_SITES: Final = 3


class Masks:
    """One site's masks in one round of one sum. A round's name is used once per circle and purpose."""

    def __init__(self, member: Member, purpose: str, round_name: str, participants: Sequence[str]) -> None:
        unknown = set(participants) - {*member.others, member.party}
        twice = len(set(participants)) != len(participants)
        if unknown or twice or member.party not in participants or len(participants) < 2:
            raise ConfigError(
                f"A masked sum at site {member.party!r} needs this site and others that it has met, each once, "
                f"not {sorted(participants)}."
            )
        member.rounds.use(member.party, purpose, round_name)
        self.party = member.party
        self.others = tuple(party for party in sorted(participants) if party != self.party)
        self._keys = {party: member.key(party, purpose) for party in self.others}
        self._bound = (member.circle, purpose, round_name, *sorted(participants))

    def shared_with(self, party: str, block: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Words:
        """The mask that this site and that one share for a block of values; no other block has the same."""
        low, high = sorted([self.party, party])
        info = bind("collegium mask v1", low, high, block, dtype.str, *shape, "in", *self._bound)
        size = int(np.prod(shape)) * dtype.itemsize
        words: Words = primitives.stream(primitives.hkdf(self._keys[party], info), size).view(dtype).reshape(shape)
        return words

    def cancelling(self, block: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Words:
        """Sum of the masks shared with all others, with signs such that all participants' masks add up to zero."""
        total: Words = np.zeros(shape, dtype)
        for party in self.others:
            add = np.add if self.party < party else np.subtract
            add(total, self.shared_with(party, block, shape, dtype), out=total)
        return total


def checked_mode(mode: str) -> str:
    """The name of a way to mask, or an error that lists them."""
    if mode not in MODES:
        raise ConfigError(f"Masked sums are {' or '.join(MODES)}, not {mode!r}.")
    return mode


def warn_if_few(sites: int, what: str) -> None:
    """With two sites each can subtract its own values from the sum and read the other's."""
    if sites < FEWEST_SITES:
        warnings.warn(
            f"Only {sites} sites take part in {what}: who sees the sum and is one of them, or knows one of them, knows "
            f"the other's values. Use at least {FEWEST_SITES}.",
            CollegiumWarning,
            stacklevel=3,
        )
