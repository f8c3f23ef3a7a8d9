"""Where noise comes from: the operating system's secure generator, or a seed in a simulation.

Both provide the same few distributions. Random decisions compare 64-bit words, so their probabilities are exact to
2^-64. Numbers released with noise are rounded to a grid far below the noise: the low bits of floating-point sums are
known to reveal the summands.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from collegium.errors import ConfigError

_UNIT = 2.0**-52


class Noise(ABC):
    """A source of random words, and distributions made from them."""

    seeded: bool

    @abstractmethod
    def words(self, n: int) -> NDArray[np.uint64]:
        """`n` uniform 64-bit words."""

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

    def laplace(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Laplace noise, on a grid of about scale / 2^40."""
        u = self.uniform(shape) - 0.5
        return to_grid(-scale * np.sign(u) * np.log1p(-2 * np.abs(u)), scale)

    def normal(self, sigma: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Gaussian noise, on a grid of about sigma / 2^40."""
        return to_grid(sigma * ndtri(self.uniform(shape)), sigma)


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


def to_grid(values: NDArray[Any], scale: float) -> NDArray[np.float64]:
    """Rounded to a power of two of about scale / 2^40."""
    grid = 2.0 ** (math.ceil(math.log2(scale)) - 40)
    return np.asarray(np.round(np.asarray(values, dtype=np.float64) / grid) * grid)
