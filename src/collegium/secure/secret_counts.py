"""Secret counts: every site adds its share of noise to its counts and masks them; the coordinator sees their noisy sum.

Masks, drop-outs and what may be opened are those of `collegium.secure.secret_votes`. A site gives its counts only to a
sum of as many sites as its share of the noise was made for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import NoisyCounts, Release
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.distributed import DistributedGaussian
from collegium.privacy.mechanisms.named import build_mechanism
from collegium.protocols.errors import ProtocolError
from collegium.secure import secret_votes
from collegium.secure.messages import MaskedCounts
from collegium.secure.secret_votes import SecretVotes
from collegium.wire.orders import Mask

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite
    from collegium.core.steps import Order

PROTOCOL: Final = "secret_counts"
STEPS: Final = secret_votes.STEPS
MOST_SITES: Final = 1000
_MOST: Final = (2**32 - 1) // MOST_SITES
_ZERO: Final = _MOST // 4
"""Noise may be negative, and what is masked may not: this number stands for 0."""
LARGEST: Final = _MOST - _ZERO
"""What is larger than this counts as this, noise included."""


class NoisySum(NamedTuple):
    """Counts summed over so many sites, with the noise that all of them have added."""

    counts: NDArray[np.float64]
    sites: int
    noise: float
    """The standard deviation of each count's noise."""


class SecretCounts(SecretVotes):
    """This way of masking: at a site's gate, and at the coordinator."""

    protocol: ClassVar[str] = PROTOCOL
    what: ClassVar[str] = "Secret counts"
    message: ClassVar[type[Any]] = MaskedCounts
    most: ClassVar[int] = _MOST

    def numbers(self, release: Release) -> NDArray[Any]:
        if not isinstance(release, NoisyCounts):
            raise ConfigError(f"{release.kind} are not counts with noise.")
        return np.clip(release.counts + _ZERO, 0, _MOST)

    def require_fit(self, site: ActiveSite, mask: Mask, release: Release) -> None:
        if isinstance(release, NoisyCounts) and len(set(mask.participants)) < release.fewest:
            raise ConfigError(
                f"its share of the noise is for at least {release.fewest} sites, not {len(set(mask.participants))}."
            )
        if len(set(mask.participants)) > MOST_SITES:
            raise ConfigError(f"a sum of counts is over at most {MOST_SITES} sites, not {len(mask.participants)}.")

    def shape(self, fed: Federation, order: Order[Any]) -> tuple[int, ...]:
        return (int(order.args["cells"]),)

    def summed(self, counts: NDArray[Any], order: Order[Any], parties: Sequence[str]) -> NoisySum:
        if len(parties) > MOST_SITES:
            raise ProtocolError(parties, "are too many for a sum of counts.")
        noise = _noise_of(order)
        scaled = (counts.astype(np.int64) - _ZERO * len(parties)) / noise.scale
        return NoisySum(scaled, len(parties), noise.sigma * math.sqrt(len(parties) / noise.fewest))


def _noise_of(order: Order[Any]) -> DistributedGaussian:
    """The noise through which an order is answered, by what its step declares."""
    mechanism = build_mechanism(order.mechanism or {})
    if not isinstance(mechanism, DistributedGaussian):
        raise ConfigError(f"{type(mechanism).__name__} is not in shares: a sum of counts needs distributed_gaussian.")
    return mechanism.for_step(INSTALLED[order.step].sensitivity(order.args))
