"""What mechanisms on numbers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.releases import Numbers, Release
from collegium.core.sensitivity import Sensitivity
from collegium.errors import ConfigError
from collegium.privacy.claims import Charge, Relation, Unit
from collegium.privacy.events import Event
from collegium.privacy.mechanisms.base import Mechanism, total_epsilon
from collegium.privacy.noise import Noise, NoiseSource, noise_source


class NumberMechanism(Mechanism):
    """Noise on an array of numbers of known sensitivity. Subclasses define the noise."""

    takes: ClassVar[type[Release]] = Numbers
    gives: ClassVar[type[Release]] = Numbers
    norm: ClassVar[str]
    """The norm in which `sensitivity` is measured."""
    spread: float
    """The size of the noise: its scale or standard deviation."""
    sensitivity: float
    delta: float
    unit: Unit
    relation: Relation

    def __init__(
        self,
        own: Mapping[str, float],
        spread: float,
        sensitivity: float,
        delta: float,
        unit: Unit,
        relation: Relation,
    ) -> None:
        common = {"sensitivity": sensitivity, "delta": delta, "unit": unit, "relation": relation}
        self._keep({**own, **common}, spread=spread, **common)

    @property
    @abstractmethod
    def event(self) -> Event:
        """The cost of one release."""

    @abstractmethod
    def noisy(self, values: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
        """The values with noise; NaN counts as 0, and what is too large for the noise is clipped."""

    def release(self, values: ArrayLike, rng: NoiseSource = None) -> NDArray[np.float64]:
        """Noisy values of the same shape, on a grid far below the noise. `rng`: see `NoiseSource`."""
        try:
            exact = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            exact = np.full(1, np.nan)
        if not np.isfinite(exact).all():
            raise ConfigError(f"{type(self).__name__}: values must be finite numbers.")
        return self.noisy(exact, noise_source(rng))

    def apply(self, release: Any, noise: Noise) -> Numbers:
        # Private values: whether they are finite must not decide between an answer and an error.
        return Numbers(self.noisy(release.values, noise))

    def epsilon(self, rounds: int = 1, delta: float = 0.0) -> float:
        """The total cost of `rounds` releases; infinite if the noise gives no guarantee at this delta."""
        return total_epsilon([self.event], rounds, delta)

    def for_step(self, declared: Sensitivity | None) -> Mechanism:
        norm = self.norm.lower()
        bound = None if declared is None else getattr(declared, norm)
        if declared is None or bound is None:
            raise ConfigError(
                f"{type(self).__name__} needs a step that declares how much one record changes its numbers: "
                f"@step(sensitivity=Sensitivity({norm}=...))."
            )
        return self._with(sensitivity=bound, unit=declared.unit, relation=declared.relation)

    def charge(
        self, release_size: int, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        promise = f"one {self.unit} changes the numbers by at most {self.sensitivity} in all ({self.norm} norm)"
        return Charge((self.event,), unit=self.unit, relation=self.relation, delta=self.delta, assumptions=(promise,))


def one_of(where: str, **given: float | None) -> tuple[str, float]:
    """The one setting that was given, or an error that begins with `where`."""
    named = [(name, value) for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(f"{where}: give exactly one of {' and '.join(given)}.")
    return named[0]
