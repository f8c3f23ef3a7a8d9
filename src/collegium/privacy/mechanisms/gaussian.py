"""Gaussian noise on numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.core.settings import OpenProbability, PositiveFloat, checked
from collegium.privacy import events
from collegium.privacy.claims import Relation, Unit
from collegium.privacy.composition import gaussian_sigma
from collegium.privacy.mechanisms.numbers import NumberMechanism, one_of
from collegium.privacy.noise import Noise


class Gaussian(NumberMechanism):
    """Gaussian noise with a given sigma, or with the smallest sigma that makes one release (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, sigma:
        The cost of one release at `delta`, or the standard deviation of the noise: one of the two. From epsilon and
        delta, sigma follows by the analytic Gaussian mechanism (Balle and Wang 2018), which holds for any epsilon.
    sensitivity:
        The largest possible change of the numbers (L2 norm). It is up to the user to get this right: it is not checked.
    delta:
        Also the delta at which the cost of many releases is reported.
    unit, relation:
        What may change, and how, for this sensitivity.
    """

    name: ClassVar[str] = "gaussian"
    norm: ClassVar[str] = "L2"

    @checked
    def __init__(
        self,
        epsilon: PositiveFloat | None = None,
        *,
        sigma: PositiveFloat | None = None,
        sensitivity: PositiveFloat = 1.0,
        delta: OpenProbability = 1e-5,
        unit: Unit = "record",
        relation: Relation = "replace",
    ) -> None:
        named, value = one_of("Gaussian", epsilon=epsilon, sigma=sigma)
        spread = value if named == "sigma" else sensitivity * gaussian_sigma(value, delta)
        super().__init__({named: value}, spread, sensitivity, delta, unit, relation)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        return self.spread

    @property
    def event(self) -> events.Event:
        return events.Gaussian(1, self.spread / self.sensitivity)

    def noisy(self, values: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
        return noise.add_normal(values, self.spread, self.sensitivity)
