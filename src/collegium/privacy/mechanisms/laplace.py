"""Laplace noise on numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.core.settings import OpenProbability, PositiveFloat, checked
from collegium.privacy import events
from collegium.privacy.claims import Relation, Unit
from collegium.privacy.mechanisms.numbers import NumberMechanism, one_of
from collegium.privacy.noise import Noise


class Laplace(NumberMechanism):
    """Laplace noise with a given scale, or with scale sensitivity / epsilon.

    Parameters
    ----------
    epsilon, scale:
        The cost of one release, or the scale of the noise: one of the two.
    sensitivity:
        The largest possible change of the numbers (L1 norm). It is up to the user to get this right: it is not checked.
    delta:
        The delta at which the cost of many releases is reported.
    unit, relation:
        What may change, and how, for this sensitivity.
    """

    name: ClassVar[str] = "laplace"
    norm: ClassVar[str] = "L1"

    @checked
    def __init__(
        self,
        epsilon: PositiveFloat | None = None,
        *,
        scale: PositiveFloat | None = None,
        sensitivity: PositiveFloat = 1.0,
        delta: OpenProbability = 1e-5,
        unit: Unit = "record",
        relation: Relation = "replace",
    ) -> None:
        named, value = one_of("Laplace", epsilon=epsilon, scale=scale)
        spread = value if named == "scale" else sensitivity / value
        super().__init__({named: value}, spread, sensitivity, delta, unit, relation)

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return self.spread

    @property
    def event(self) -> events.Event:
        return events.Laplace(1, self.spread / self.sensitivity)

    def noisy(self, values: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
        return noise.add_laplace(values, self.spread, self.sensitivity)
