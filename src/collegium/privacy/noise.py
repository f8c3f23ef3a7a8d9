"""Where noise comes from: the operating system's secure generator, or a seed in a simulation.

Both provide the same few distributions. Random decisions compare 64-bit words, so their probabilities are exact to
2^-64. Noise on numbers is discrete (Canonne, Kamath, Steinke: "The Discrete Gaussian for Differential Privacy", arXiv
2004.00010): values are rounded to a grid of about 2^-40 of the noise, an integer is drawn and added to each as
integers, and only the sum becomes a float, which is post-processing. So every point of the grid is possible for every
value, and no low bit tells which value was there; floating-point noise has holes, which do tell.

- The probability of every integer is exact to a relative 2^-48 (within 16 standard deviations).
- Rounding can enlarge the sensitivity by one cell per number. The noise is enlarged in proportion, so that the noise
  multiplier that the claim states is met.
- The discrete Laplace mechanism costs what the Laplace mechanism costs, and the discrete Gaussian has the same zCDP as
  the Gaussian (their Theorem 4). Its exact delta differs from the Gaussian's by less than (cell / sigma)^2, that is
  10^-23 here; accountants use the Gaussian's.

OpenDP has such samplers too, in arbitrary precision and one number at a time; a step of DP-SGD draws millions.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError

_UNIT = 2.0**-52
_GRID_BITS: Final = 41
"""The noise is 2^40 to 2^41 cells of the grid."""
_FARTHEST: Final = 1e150
"""Values are clipped to this on either side, so that nothing overflows."""
_LARGEST: Final = 1e100
"""Noise is of this size at most, and of its reciprocal at least."""
_MOST_ENLARGED: Final = 0.1
_SURE: Final = 8.0
"""exp(-8) is the smallest probability left to one word: it is then exact to a relative 2^-52."""
_AT_ONCE: Final = 1 << 18

Draw: TypeAlias = Callable[[int, int], NDArray[np.int64]]
Excess: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


class Noise(ABC):
    """A source of random words, and distributions made from them."""

    seeded: bool

    @abstractmethod
    def words(self, n: int) -> NDArray[np.uint64]:
        """`n` uniform 64-bit words."""

    def depend_on(self, *data: bytes) -> None:  # noqa: B027 - other sources have nothing to do
        """Where draws can be repeated outside a simulation: those that follow are repeated beside this data only."""

    def uniform(self, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Uniform in (0, 1), never 0 and never 1."""
        n = int(np.prod(shape))
        # 52 bits and a half: with 53, the largest word would round up to 1 and its noise would be infinite.
        return (((self.words(n) >> np.uint64(12)).astype(np.float64) + 0.5) * _UNIT).reshape(shape)

    def happens(self, probability: float, shape: int | tuple[int, ...]) -> NDArray[np.bool_]:
        """Independent events of one probability, exact to 2^-64."""
        if not 0 <= probability <= 1:
            raise ConfigError(f"A probability must be in [0, 1], not {probability}.")
        n = int(np.prod(shape))
        limit = math.floor(probability * 2.0**64)
        if limit >= 1 << 64:
            return np.ones(shape, dtype=np.bool_)
        return (self.words(n) < np.uint64(limit)).reshape(shape)

    def below(self, k: int, n: int) -> NDArray[np.int64]:
        """`n` uniform integers in 0 .. k-1."""
        high, low = np.divmod(self.words(n), np.uint64(1 << 32))
        # Multiply and shift over 64 bits in two halves: uniform to k / 2^64.
        carried = (low * np.uint64(k)) >> np.uint64(32)
        return ((high * np.uint64(k) + carried) >> np.uint64(32)).astype(np.int64)

    def add_laplace(self, values: NDArray[Any], scale: float, sensitivity: float) -> NDArray[np.float64]:
        """The values with Laplace noise; `sensitivity` is in the L1 norm, of all values together."""
        cells = float(np.size(values))
        return self._add(values, scale, cells / sensitivity, self._laplace)

    def add_normal(self, values: NDArray[Any], sigma: float, sensitivity: float) -> NDArray[np.float64]:
        """The values with Gaussian noise; `sensitivity` is in the L2 norm, of all values together."""
        cells = math.sqrt(np.size(values))
        return self._add(values, sigma, cells / sensitivity, self._normal)

    def whole_normal(self, sigma: int, n: int) -> NDArray[np.int64]:
        """`n` whole numbers of the discrete Gaussian distribution with parameter `sigma`."""
        return self._normal(sigma, n)

    def _add(self, values: NDArray[Any], spread: float, cells: float, draw: Draw) -> NDArray[np.float64]:
        """Rounding moves neighbours apart by `cells` grid cells at most, in units of their sensitivity."""
        if not 1 / _LARGEST <= spread <= _LARGEST:
            raise ConfigError(f"Noise must be of size {1 / _LARGEST} to {_LARGEST}, not {spread}.")
        grid = 2.0 ** (math.frexp(spread)[1] - _GRID_BITS)  # a power of two, so that dividing by it is exact
        enlarged = cells * grid
        if enlarged > _MOST_ENLARGED:
            raise ConfigError(
                f"Noise of size {spread} on {np.size(values)} numbers is so large for their sensitivity that rounding "
                "would not be negligible. State a larger sensitivity, or add less noise."
            )
        size = math.ceil(spread / grid * (1 + enlarged))
        exact = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0), -_FARTHEST, _FARTHEST)
        drawn = draw(size, exact.size).reshape(exact.shape).astype(np.float64)
        # Both are whole numbers, so their floating-point sum is the exact sum, rounded: post-processing.
        return np.asarray((np.rint(exact / grid) + drawn) * grid)

    def _laplace(self, scale: int, n: int) -> NDArray[np.int64]:
        """`n` integers with probabilities in proportion to exp(-|x| / scale)."""
        return self._signed(scale, n, 1.0, lambda k, u: u)

    def _normal(self, sigma: int, n: int) -> NDArray[np.int64]:
        """`n` integers with probabilities in proportion to exp(-x^2 / (2 sigma^2))."""
        return self._signed(sigma, n, 0.5, lambda k, u: (k * (k - 1) + u * (2 * k + u)) / 2)

    def _signed(self, scale: int, n: int, rate: float, excess: Excess) -> NDArray[np.int64]:
        """Integers +-(k + u) scale, whose probabilities are in proportion to exp(-rate k - excess(k, u)).

        k is geometric and u uniform in 0, 1/scale .. 1 - 1/scale; such a pair is accepted with probability
        exp(-excess). Zero has two signs, of which one is rejected.
        """
        drawn = np.empty(n, dtype=np.int64)
        found = 0
        double = np.uint64(2 * scale)
        last = np.uint64((1 << 64) // (2 * scale) * (2 * scale) - 1)  # words above it would favour small numbers
        while found < n:
            words = self.words(min(2 * (n - found) + 16, _AT_ONCE))
            rest, k = words % double, self._geometric(rate, len(words))
            below, negative = (rest >> np.uint64(1)).astype(np.int64), (rest & np.uint64(1)).astype(np.bool_)
            far = k * scale + below
            accepted = (words <= last) & ((far > 0) | ~negative)
            accepted &= self._survives(excess(k.astype(np.float64), below / scale))
            kept = np.where(negative, -far, far)[accepted][: n - found]
            drawn[found : found + len(kept)] = kept
            found += len(kept)
        return drawn

    def _geometric(self, rate: float, n: int) -> NDArray[np.int64]:
        """How often in a row something of probability exp(-rate) happens."""
        most = round(_SURE / rate)
        limits = _limits(rate * np.arange(most, 0, -1, dtype=np.float64))
        count = most - np.searchsorted(limits, self.words(n), side="right")
        more = np.flatnonzero(count == most)  # beyond that a word has too few bits: begin again, for more
        if len(more):
            count[more] += self._geometric(rate, len(more))
        return count

    def _survives(self, exponent: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Events of probability exp(-exponent)."""
        parts = np.floor(exponent / _SURE)
        happened = self.words(len(exponent)) < _limits(exponent - _SURE * parts)
        rare = np.flatnonzero(happened & (parts > 0))
        if len(rare):
            happened[rare] = self._geometric(_SURE, len(rare)) >= parts[rare]
        return happened


class SecureNoise(Noise):
    """From the operating system; not reproducible."""

    seeded = False

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


class SeededNoise(Noise):
    """From a NumPy generator: for simulations, whose claims say so."""

    seeded = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def words(self, n: int) -> NDArray[np.uint64]:
        return self._rng.integers(0, 1 << 64, size=n, dtype=np.uint64)


NoiseSource: TypeAlias = Noise | np.random.Generator | int | None
"""None: secure noise. A generator or a seed: reproducible noise, for simulations and tests only."""


def noise_source(rng: NoiseSource) -> Noise:
    """What a `NoiseSource` stands for."""
    if rng is None:
        return SecureNoise()
    if isinstance(rng, Noise):
        return rng
    if isinstance(rng, np.random.Generator):
        return SeededNoise(rng)
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        return SeededNoise(np.random.default_rng(int(rng)))
    raise ConfigError(f"rng must be None (secure), a NumPy generator or a seed, not {type(rng).__name__}.")


def _limits(exponent: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """The word below which lies a share exp(-exponent) of all words, for exponents of 0 to `_SURE`."""
    return np.asarray((np.minimum(np.exp(-exponent), 1 - 2.0**-53) * 2.0**64).astype(np.uint64))
