"""The class with the most votes, by noisy counts: how teachers or parties answer queries in PATE and FedKT.

A changed vote moves from one count to another. `changed_votes` is how many may move at once: 1 if a record belongs to
one teacher, s if a party has s students. The charge does not depend on the votes, and so may be published.
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.labels import Codes, Labels, code_dtype
from collegium.core.releases import HardLabels, Release, VoteCounts
from collegium.core.sensitivity import Sensitivity
from collegium.core.settings import (
    FiniteFloat,
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    PositiveInt,
    Settings,
    checked,
)
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import Charge, Unit
from collegium.privacy.mechanisms.base import Mechanism, total_epsilon
from collegium.privacy.noise import Noise, NoiseSource, noise_source

Counts = NDArray[np.float64]
_ROOT_2: Final = math.sqrt(2)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyMax(Mechanism, Settings):
    """Noisy vote counts of which only the winner is released. Subclasses define the noise.

    Parameters
    ----------
    changed_votes:
        How many votes one record (or party) may change at once.
    delta:
        The delta at which the cost of many queries is reported.
    unit:
        Whose change `changed_votes` is about: ``record`` or ``party``.
    """

    takes: ClassVar[type[Release]] = VoteCounts
    gives: ClassVar[type[Release]] = HardLabels
    changed_votes: PositiveInt = field(default=1, kw_only=True)
    delta: OpenProbability = field(default=1e-5, kw_only=True)
    unit: Unit = field(default="record", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep({name: getattr(self, name) for name in inspect.signature(type(self)).parameters})

    @abstractmethod
    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        """The cost of answering `queries` (at least 1)."""

    @abstractmethod
    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        """The winner of each row, or -1 if there is none."""

    def release(self, counts: ArrayLike, rng: NoiseSource = None) -> Codes:
        """The winning class of each query, by counts of shape (queries, classes); -1 if none. `rng`: `NoiseSource`."""
        votes = np.asarray(counts)
        if votes.ndim != 2 or votes.dtype.kind not in "iuf" or votes.shape[1] < 2 or not np.isfinite(votes).all():
            raise ConfigError(
                f"{type(self).__name__}: counts must be finite numbers of shape (queries, classes), with two classes "
                f"or more, not {votes.dtype} of shape {votes.shape}."
            )
        won = self.winners(votes.astype(np.float64), noise_source(rng))
        return won.astype(code_dtype(votes.shape[1]))

    def apply(self, release: Any, noise: Noise) -> HardLabels:
        counts: NDArray[Any] = release.counts
        return HardLabels(Labels(self.release(counts, noise), counts.shape[1]))

    @checked
    def epsilon(self, queries: PositiveInt = 1, rounds: int = 1, delta: float = 0.0) -> float:
        """The total cost of `rounds` times `queries` answers; infinite if there is no guarantee at this delta."""
        return total_epsilon(self.query_events(queries), rounds, delta)

    def for_step(self, declared: Sensitivity | None) -> Mechanism:
        if declared is None or declared.changed_votes is None:
            raise ConfigError(
                f"{type(self).__name__} needs a step that declares how many votes one record changes: "
                "@step(sensitivity=Sensitivity(changed_votes=...))."
            )
        return self._with(changed_votes=declared.changed_votes, unit=declared.unit)

    @checked
    def charge(
        self, release_size: NonNegativeInt, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        return Charge(self.query_events(release_size) if release_size else (), unit=self.unit, delta=self.delta)


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceNoisyMax(NoisyMax):
    """Laplace noise of scale 1 / `gamma` on each count: 2 gamma per query and changed vote.

    Its other settings are those of :class:`NoisyMax`.
    """

    name: ClassVar[str] = "laplace_noisy_max"
    gamma: PositiveFloat

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        return (events.Pure(queries, 2 * self.changed_votes * self.gamma),)

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        return np.asarray(np.argmax(noise.add_laplace(counts, 1 / self.gamma, 2 * self.changed_votes), axis=1))


@dataclass(frozen=True, eq=False, repr=False)
class GaussianNoisyMax(NoisyMax):
    """Gaussian noise with standard deviation `sigma` on each count (GNMax).

    Its other settings are those of :class:`NoisyMax`.
    """

    name: ClassVar[str] = "gaussian_noisy_max"
    sigma: PositiveFloat

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        return (_moved_votes(self.sigma, self.changed_votes, queries),)

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        return np.asarray(np.argmax(noise.add_normal(counts, self.sigma, _ROOT_2 * self.changed_votes), axis=1))


@dataclass(frozen=True, eq=False, repr=False)
class ConfidentNoisyMax(NoisyMax):
    """Gaussian noise twice (Confident-GNMax): is the largest count above a threshold, and if so, which one is it?

    If the noisy largest count is below the threshold, the answer is -1. All queries are charged for both, unless
    `max_answers` limits the answers. Its other settings are those of :class:`NoisyMax`.

    Parameters
    ----------
    threshold:
        The least noisy largest count that is answered.
    sigma1, sigma2:
        The standard deviation of the noise on the check and on the answer.
    max_answers:
        The most queries answered in one release; later ones get -1.
    """

    name: ClassVar[str] = "confident_noisy_max"
    threshold: FiniteFloat
    sigma1: PositiveFloat
    sigma2: PositiveFloat
    max_answers: PositiveInt | None = field(default=None, kw_only=True)

    @property
    def independent(self) -> bool:
        return self.max_answers is None

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        # The largest count moves by one vote only for each that is changed.
        checks = events.Gaussian(queries, self.sigma1 / self.changed_votes)
        answers = queries if self.max_answers is None else min(queries, self.max_answers)
        return (checks, _moved_votes(self.sigma2, self.changed_votes, answers))

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        sure = noise.add_normal(counts.max(axis=1), self.sigma1, self.changed_votes) >= self.threshold
        if self.max_answers is not None:
            sure &= np.cumsum(sure) <= self.max_answers
        return np.where(
            sure, np.argmax(noise.add_normal(counts, self.sigma2, _ROOT_2 * self.changed_votes), axis=1), -1
        )


def _moved_votes(sigma: float, changed_votes: int, queries: int) -> events.Event:
    """Votes that move from one count to another change both: by sqrt(2) in the L2 norm for each."""
    return events.Gaussian(queries, sigma / (_ROOT_2 * changed_votes))
