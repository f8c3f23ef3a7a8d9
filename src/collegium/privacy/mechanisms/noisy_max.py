"""The class with most votes, by counts with noise: how teachers or parties answer queries in PATE and FedKT.

A changed vote moves from one count to another. `changed_votes` says how many may move at once: 1 if a record belongs to
one teacher, s if a party has s students. What is charged does not depend on the votes, and so may be published.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.labels import Codes, Labels, code_dtype
from collegium.core.releases import HardLabels, Release, VoteCounts
from collegium.core.settings import FiniteFloat, NonNegativeInt, OpenProbability, PositiveFloat, PositiveInt, checked
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import Charge, Unit
from collegium.privacy.mechanisms.base import Mechanism, total_epsilon
from collegium.privacy.noise import Noise, noise_source

Counts = NDArray[np.float64]


class NoisyMax(Mechanism):
    """Noisy counts of votes, of which only the winner is told. Subclasses say what noise."""

    takes: ClassVar[type[Release]] = VoteCounts
    gives: ClassVar[type[Release]] = HardLabels
    changed_votes: int
    delta: float
    unit: Unit

    def __init__(self, own: dict[str, Any], changed_votes: int, delta: float, unit: Unit) -> None:
        common = {"changed_votes": changed_votes, "delta": delta, "unit": unit}
        self._keep({**own, **common}, **own, **common)

    @abstractmethod
    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        """What answering `queries` (at least 1) costs."""

    @abstractmethod
    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        """The winner of each row, -1 where there is none."""

    def release(self, counts: ArrayLike, rng: Noise | np.random.Generator | int | None = None) -> Codes:
        """The winning class of each query, by counts of shape (queries, classes); -1 where none is told.

        `rng` None takes noise from the operating system's secure generator; a NumPy generator or a seed gives
        repeatable noise, for simulations only.
        """
        votes = np.asarray(counts)
        if votes.ndim != 2 or votes.dtype.kind not in "iuf" or votes.shape[1] < 2 or not np.isfinite(votes).all():
            raise ConfigError(
                f"{type(self).__name__}: counts are finite numbers of shape (queries, classes), with two classes or "
                f"more, not {votes.dtype} of shape {votes.shape}."
            )
        won = self.winners(votes.astype(np.float64), noise_source(rng))
        return won.astype(code_dtype(votes.shape[1]))

    def apply(self, release: Any, noise: Noise) -> HardLabels:
        counts: NDArray[Any] = release.counts
        return HardLabels(Labels(self.release(counts, noise), counts.shape[1]))

    @checked
    def epsilon(self, queries: PositiveInt = 1, rounds: int = 1, delta: float = 0.0) -> float:
        """What `rounds` times `queries` answers cost in all; infinite where this delta gives no guarantee."""
        return total_epsilon(self.query_events(queries), rounds, delta)

    @checked
    def charge(
        self, release_size: NonNegativeInt, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        return Charge(self.query_events(release_size) if release_size else (), unit=self.unit, delta=self.delta)


class LaplaceNoisyMax(NoisyMax):
    """Laplace noise of scale 1 / gamma on each count: 2 gamma per query and changed vote.

    Parameters
    ----------
    gamma:
        The inverse scale of the noise.
    changed_votes:
        How many votes one record (or party) may change at once.
    delta:
        At which the cost of many queries is reported.
    unit:
        Whose change the votes' change stands for: ``record`` or ``party``.
    """

    name: ClassVar[str] = "laplace_noisy_max"
    gamma: float

    @checked
    def __init__(
        self,
        gamma: PositiveFloat,
        *,
        changed_votes: PositiveInt = 1,
        delta: OpenProbability = 1e-5,
        unit: Unit = "record",
    ) -> None:
        super().__init__({"gamma": gamma}, changed_votes, delta, unit)

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        return (events.Pure(queries, 2 * self.changed_votes * self.gamma),)

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        return np.asarray(np.argmax(counts + noise.laplace(1 / self.gamma, counts.shape), axis=1))


class GaussianNoisyMax(NoisyMax):
    """Gaussian noise on each count (GNMax).

    Parameters
    ----------
    sigma:
        The standard deviation of the noise.
    changed_votes:
        How many votes one record (or party) may change at once.
    delta:
        At which the cost of many queries is reported.
    unit:
        Whose change the votes' change stands for: ``record`` or ``party``.
    """

    name: ClassVar[str] = "gaussian_noisy_max"
    sigma: float

    @checked
    def __init__(
        self,
        sigma: PositiveFloat,
        *,
        changed_votes: PositiveInt = 1,
        delta: OpenProbability = 1e-5,
        unit: Unit = "record",
    ) -> None:
        super().__init__({"sigma": sigma}, changed_votes, delta, unit)

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        return (_moved_votes(self.sigma, self.changed_votes, queries),)

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        return np.asarray(np.argmax(counts + noise.normal(self.sigma, counts.shape), axis=1))


class ConfidentNoisyMax(NoisyMax):
    """Gaussian noise twice (Confident-GNMax): is the largest count above a threshold, and if so, which one is it?

    Where the noisy largest count is below the threshold the answer is -1. All queries are charged for both, unless
    `max_answers` limits the answers.

    Parameters
    ----------
    threshold:
        What the noisy largest count has to reach.
    sigma1, sigma2:
        The standard deviation of the noise on the check and on the answer.
    max_answers:
        The most queries answered in one release; later ones get -1.
    changed_votes:
        How many votes one record (or party) may change at once.
    delta:
        At which the cost of many queries is reported.
    unit:
        Whose change the votes' change stands for: ``record`` or ``party``.
    """

    name: ClassVar[str] = "confident_noisy_max"
    threshold: float
    sigma1: float
    sigma2: float
    max_answers: int | None

    @checked
    def __init__(
        self,
        threshold: FiniteFloat,
        sigma1: PositiveFloat,
        sigma2: PositiveFloat,
        *,
        max_answers: PositiveInt | None = None,
        changed_votes: PositiveInt = 1,
        delta: OpenProbability = 1e-5,
        unit: Unit = "record",
    ) -> None:
        own = {"threshold": threshold, "sigma1": sigma1, "sigma2": sigma2, "max_answers": max_answers}
        super().__init__(own, changed_votes, delta, unit)

    def query_events(self, queries: int) -> tuple[events.Event, ...]:
        # The largest count moves by one vote only for each that is changed.
        checks = events.Gaussian(queries, self.sigma1 / self.changed_votes)
        answers = queries if self.max_answers is None else min(queries, self.max_answers)
        return (checks, _moved_votes(self.sigma2, self.changed_votes, answers))

    def winners(self, counts: Counts, noise: Noise) -> NDArray[np.intp]:
        sure = counts.max(axis=1) + noise.normal(self.sigma1, len(counts)) >= self.threshold
        if self.max_answers is not None:
            sure &= np.cumsum(sure) <= self.max_answers
        return np.where(sure, np.argmax(counts + noise.normal(self.sigma2, counts.shape), axis=1), -1)


def _moved_votes(sigma: float, changed_votes: int, queries: int) -> events.Event:
    """Votes that move from one count to another change both: the square root of 2 in the L2 norm for each."""
    return events.Gaussian(queries, sigma / (math.sqrt(2) * changed_votes))
