"""The XOR mechanism of DP-FedCT: one-hot labels XOR a random binary matrix B.

Ji, Li, Yilmaz, Ayday, Ye, Sun: "Differentially private binary- and matrix-valued data query: an XOR mechanism",
VLDB 2021, as used in section 4 of the FedCT paper. B = 1 flips a bit, and B has density exp(q(B)) up to a constant.

The condition that both papers quote, with the norm of the eigenvalues of the parameters, is false off the diagonal
(Theta = 0.1 in all four entries and one flipped bit: it claims 0.2, the truth is 0.3). What is charged here is the
largest difference of q between two matrices that differ as the labels may.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, logsumexp

from collegium.core.labels import Labels
from collegium.core.releases import ApprovalBits, Release
from collegium.core.settings import FiniteFloat, OpenProbability, PositiveInt, checked
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.mechanisms.labels import LabelMechanism, Sensitivity, true_codes
from collegium.privacy.mechanisms.unary import flipped, one_hot
from collegium.privacy.noise import Noise, NoiseSource, noise_source

Structure = Literal["independent", "rows", "columns"]
Theta = float | Sequence[Sequence[float]] | NDArray[np.float64]
Matrix = tuple[tuple[float, ...], ...]
MOST_CLASSES: Final = 16


class XorMechanism(LabelMechanism):
    """One-hot labels with bits flipped by noise that may be correlated.

    Parameters
    ----------
    theta:
        A number: the larger its absolute value, the fewer bits are flipped. For ``rows``: the paper's symmetric C x C
        matrix; a negative diagonal makes flips rare.
    structure:
        ``independent``: each bit independently, with probability 1 / (1 + exp(abs(theta))). ``rows``: the C bits of a
        sample jointly, q(b) = b' theta b, up to 16 classes. ``columns``: the bits of one class in all samples jointly,
        q(b) = -abs(theta) * sum of b_k + coupling * sum of b_k b_l over all ordered pairs.
    coupling:
        For ``columns``: above 0, flips cluster; below 0, they avoid each other.
    delta:
        The delta at which the cost of many releases is reported.
    sensitivity, stability_rate, stability_failure, neighbours:
        How many labels may change at once, see :mod:`collegium.privacy.mechanisms.labels`.
    """

    name: ClassVar[str] = "xor"
    gives: ClassVar[type[Release]] = ApprovalBits
    theta: Theta
    structure: Structure
    coupling: float

    @checked
    def __init__(
        self,
        theta: Theta | Any,  # what it has to be depends on the structure
        structure: Structure = "independent",
        *,
        coupling: FiniteFloat = 0.0,
        delta: OpenProbability = 1e-5,
        sensitivity: Sensitivity = "worst_case",
        stability_rate: OpenProbability | None = None,
        stability_failure: OpenProbability = 0.05,
        neighbours: PositiveInt | None = None,
    ) -> None:
        if coupling and structure != "columns":
            raise ConfigError(f"XorMechanism: coupling belongs to structure='columns', not to {structure!r}.")
        kept = _checked_matrix(theta) if structure == "rows" else _checked_number(theta, structure)
        own: dict[str, Any] = {"theta": kept, "structure": structure, "coupling": coupling}
        common = (delta, sensitivity, stability_rate, stability_failure, neighbours)
        super().__init__(own, *common, **own)

    @property
    def independent(self) -> bool:
        return self.structure != "columns"

    def release(self, labels: Labels | ArrayLike, n_classes: int, rng: NoiseSource = None) -> NDArray[np.bool_]:
        """Noisy bits of shape (samples, classes). `rng`: see `NoiseSource`."""
        bits = one_hot(true_codes("XorMechanism", labels, n_classes), n_classes)
        noise = noise_source(rng)
        if self.structure == "independent":
            return flipped(bits, self.flip_probability(n_classes), noise)
        if self.structure == "rows":
            return np.asarray(bits ^ self._rows(n_classes).draw(len(bits), noise))
        return np.asarray(bits ^ self._draw_columns(len(bits), n_classes, noise))

    def apply(self, release: Any, noise: Noise) -> ApprovalBits:
        return ApprovalBits.from_bits(self.release(release.labels, release.labels.n_classes, noise))

    def flip_probability(self, n_classes: int, release_size: int = 1) -> float:
        """The probability that a bit is flipped; for ``rows``, the largest of all bits."""
        if self.structure == "independent":
            return float(expit(-abs(self._theta)))
        if self.structure == "rows":
            return self._rows(n_classes).flip_probability
        return (
            float(_flip_counts(self._theta, self.coupling, release_size) @ np.arange(release_size + 1)) / release_size
        )

    def label_events(self, changes: int, release_size: int, n_classes: int) -> tuple[events.Event, ...]:
        if self.structure == "independent":
            return (events.RandomizedResponse(2 * changes, abs(self._theta)),)
        if self.structure == "rows":  # samples are independent of each other: their costs compose
            return (events.Pure(changes, self._rows(n_classes).epsilon),)
        # Samples of one column are not, so that all that change are one event. Each changed label flips a bit in two
        # columns. Flipping j bits moves a column's number of ones by at most j, and each step between k and k+1 ones
        # changes q by theta + 2 coupling k: in the worst case the j largest of them, and flips spread over the columns.
        steps = np.sort(np.abs(2 * self.coupling * np.arange(release_size) - abs(self._theta)))[::-1]
        cost = np.concatenate([[0.0], np.cumsum(steps)])
        each, rest = divmod(2 * changes, n_classes)
        total = (n_classes - rest) * cost[each] + (rest * cost[each + 1] if rest else 0.0)
        return (events.Pure(1, float(total)),)

    @property
    def _theta(self) -> float:
        return float(self._settings["theta"])

    def _rows(self, n_classes: int) -> _RowNoise:
        matrix: Matrix = self._settings["theta"]
        if len(matrix) != n_classes:
            raise ConfigError(
                f"XorMechanism: theta is {len(matrix)} x {len(matrix)}, but there are {n_classes} classes: "
                "it must have a row and a column for each class."
            )
        return _row_noise(matrix)

    def _draw_columns(self, n: int, n_classes: int, noise: Noise) -> NDArray[np.bool_]:
        bits = np.zeros((n, n_classes), dtype=np.bool_)
        if n == 0:
            return bits
        if not self.flip_probability(n_classes, n) < 0.5:
            raise ConfigError(
                f"XorMechanism: with coupling {self.coupling} and {n} samples most bits are flipped, and votes would "
                "be the opposite of the labels. Use a smaller coupling (well below abs(theta) / samples)."
            )
        # How many bits of a column, exact to 2^-53, and then which ones.
        chances = np.cumsum(_flip_counts(self._theta, self.coupling, n))
        counts = np.searchsorted(chances, noise.uniform(n_classes), side="right")
        for column, count in enumerate(np.minimum(counts, n)):
            bits[np.argsort(noise.words(n), kind="stable")[:count], column] = True
        return bits


@lru_cache(maxsize=8)
def _flip_counts(theta: float, coupling: float, n: int) -> NDArray[np.float64]:
    """The probabilities that 0 .. n bits of one column are flipped."""
    k = np.arange(n + 1, dtype=np.float64)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    weights = ways - abs(theta) * k + coupling * k * (k - 1)
    return np.asarray(np.exp(weights - logsumexp(weights)))


class _RowNoise(NamedTuple):
    """The noise of one row of bits, by enumerating all its states; the first bit is the highest."""

    epsilon: float
    """The cost of one changed label, that is two changed bits."""
    flip_probability: float
    chances: tuple[NDArray[np.float64], ...]
    """Per bit: the probability that it is set, given the bits before it (as a number)."""

    def draw(self, n: int, noise: Noise) -> NDArray[np.bool_]:
        """`n` rows, bit by bit: the probability of a whole row may be too small for a 64-bit word."""
        bits = np.empty((n, len(self.chances)), dtype=np.bool_)
        before = np.zeros(n, dtype=np.int64)
        for k, chance in enumerate(self.chances):
            limits = (np.minimum(chance, 1 - 2.0**-53) * 2.0**64).astype(np.uint64)
            bits[:, k] = noise.words(n) < limits[before]
            before = 2 * before + bits[:, k]
        return bits


@lru_cache(maxsize=8)
def _row_noise(theta: Matrix) -> _RowNoise:
    n_classes = len(theta)
    states = np.arange(1 << n_classes)
    bits = (states[:, None] >> np.arange(n_classes)[::-1]) & 1
    q = ((bits @ np.array(theta)) * bits).sum(axis=1)
    pairs = [(1 << a) | (1 << b) for a in range(n_classes) for b in range(a)]
    epsilon = max(float(np.abs(q - q[states ^ pair]).max()) for pair in pairs)
    weights = np.exp(q - q.max())
    weights /= weights.sum()
    sums = [weights.reshape(2 << k, -1).sum(axis=1).reshape(-1, 2) for k in range(n_classes)]
    chances = tuple(pair[:, 1] / np.maximum(pair.sum(axis=1), np.finfo(np.float64).tiny) for pair in sums)
    return _RowNoise(epsilon, float((weights @ bits).max()), chances)


def _checked_number(theta: Any, structure: str) -> float:
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not np.isfinite(theta) or theta == 0:
        raise ConfigError(
            f"XorMechanism: for structure={structure!r} theta must be a finite number other than 0, not {theta!r}."
        )
    return float(theta)


def _checked_matrix(theta: Any) -> Matrix:
    try:
        matrix = np.array(theta, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.ndim != 2 or len(matrix) != matrix.shape[1] or len(matrix) < 2 or not np.isfinite(matrix).all():
        raise ConfigError("XorMechanism: for structure='rows' theta must be a matrix of numbers, with a row per class.")
    if not (matrix == matrix.T).all():
        raise ConfigError("XorMechanism: theta is not symmetric; give (theta + theta') / 2, which has the same noise.")
    if len(matrix) > MOST_CLASSES:
        raise ConfigError(
            f"XorMechanism: structure='rows' enumerates all bits of a row and supports at most {MOST_CLASSES} classes, "
            f"not {len(matrix)}: use structure='independent'."
        )
    kept: Matrix = tuple(map(tuple, matrix.tolist()))
    if not _row_noise(kept).flip_probability < 0.5:
        raise ConfigError(
            "XorMechanism: with this theta a bit is flipped with probability "
            f"{_row_noise(kept).flip_probability:.3g}, and votes would be the opposite of the labels, or random. "
            "The density is exp(b' theta b), where b = 1 flips: make the diagonal more negative."
        )
    return kept
