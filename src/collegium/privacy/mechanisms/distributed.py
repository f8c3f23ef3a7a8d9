"""Noise in shares: every site adds some to its counts, and only the masked sum over sites has all of it.

Kairouz, Liu, Steinke: "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation",
ICML 2021, arXiv 2102.06387. The sum of n discrete Gaussians is not one, but too close for any accountant to tell: by
their Theorem 1 the difference is at most 10 n exp(-pi^2 sigma^2), with sigma the noise of one site on the grid of whole
numbers. That is at least 4 (counts are multiplied by a whole number where it would be less): for a thousand sites the
difference is then below 1e-64, and the claim is the Gaussian's.

So many sites as `fewest` are enough for the noise that the claim states. With more of them there is more noise than
that: it makes up for sites that drop out, and for sites that tell the coordinator which noise they have added.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.releases import Counts, NoisyCounts, Release
from collegium.core.sensitivity import Sensitivity
from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, checked
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import Charge, Relation
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.noise import Noise, NoiseSource, noise_source

_LEAST_SIGMA: Final = 4
_USUAL_SIGMA: Final = 16.0
"""So that rounding it up to a whole number is of little effect."""
_LARGEST_SCALE: Final = 64
"""Sums of large counts must fit 32 bits."""


class DistributedGaussian(Mechanism):
    """A site's share of Gaussian noise on counts, which leave it in a masked sum only.

    Parameters
    ----------
    noise_multiplier:
        The noise of the sum of `fewest` sites: its standard deviation over the sensitivity.
    fewest:
        How many sites take part in the sum at least. A site gives nothing to a smaller sum.
    delta:
        The delta at which the cost is reported.
    sensitivity, relation:
        What one record may change in all counts together (L2 norm), as the step declares it.
    """

    name: ClassVar[str] = "distributed_gaussian"
    takes: ClassVar[type[Release]] = Counts
    gives: ClassVar[type[Release]] = NoisyCounts
    noise_multiplier: float
    fewest: int
    delta: float
    sensitivity: float
    relation: Relation

    @checked
    def __init__(
        self,
        noise_multiplier: PositiveFloat,
        *,
        fewest: PositiveInt = 1,
        delta: OpenProbability = 1e-5,
        sensitivity: PositiveFloat = 1.0,
        relation: Relation = "add_remove",
    ) -> None:
        own: dict[str, Any] = {
            "noise_multiplier": noise_multiplier, "fewest": fewest, "delta": delta, "sensitivity": sensitivity,
            "relation": relation,
        }  # fmt: skip
        self._keep(own, **own)

    @property
    def scale(self) -> int:
        """What counts are multiplied by before noise goes on."""
        return min(_LARGEST_SCALE, max(1, math.ceil(_USUAL_SIGMA / self._share)))

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on the sum of `fewest` sites: no less than the claim needs."""
        return self._whole_share * math.sqrt(self.fewest) / self.scale

    @property
    def _share(self) -> float:
        return self.noise_multiplier * self.sensitivity / math.sqrt(self.fewest)

    @property
    def _whole_share(self) -> int:
        """The noise of one site, on the grid of whole numbers."""
        return max(_LEAST_SIGMA, math.ceil(self._share * self.scale))

    def release(self, counts: ArrayLike, rng: NoiseSource = None) -> NDArray[np.int64]:
        """Scaled counts with one site's share of the noise. `rng`: see `NoiseSource`."""
        exact = np.asarray(counts)
        if exact.dtype.kind not in "iu":
            raise ConfigError("DistributedGaussian: counts must be whole numbers.")
        drawn = noise_source(rng).whole_normal(self._whole_share, exact.size).reshape(exact.shape)
        return exact.astype(np.int64) * self.scale + drawn

    def apply(self, release: Any, noise: Noise) -> NoisyCounts:
        return NoisyCounts(self.release(release.counts, noise), self.fewest)

    def for_step(self, declared: Sensitivity | None) -> DistributedGaussian:
        if declared is None or declared.l2 is None:
            raise ConfigError(
                "DistributedGaussian needs a step that declares how much one record changes its counts: "
                "@step(sensitivity=Sensitivity(l2=...))."
            )
        return cast(DistributedGaussian, self._with(sensitivity=declared.l2, relation=declared.relation))

    def charge(
        self, release_size: int, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        event = events.Gaussian(1, self.noise_multiplier)
        return Charge((event,), relation=self.relation, delta=self.delta, assumptions=self.assumptions)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the claim of one sum stands on."""
        return (f"one record changes the counts by at most {self.sensitivity:.6g} in all (L2 norm)", *self.of_sites)

    @property
    def of_sites(self) -> tuple[str, ...]:
        """What the claim stands on as far as other sites go."""
        if self.fewest == 1:
            return ()
        return (f"at least {self.fewest} sites of every sum add their share of the noise and keep it to themselves",)
