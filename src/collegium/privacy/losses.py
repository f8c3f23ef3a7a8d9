"""The composed privacy loss of randomized response: a distribution on equally spaced points.

Composing mechanisms adds independent losses. Those of randomized response lie on a lattice, so their sum needs no
rounding: its weights are binomial (two outcomes), or come from one Fourier transform (more outcomes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

LARGEST_COUNT: Final = 10**10
"""The most uses that are composed: their distribution takes a few million points."""
_FEW_POINTS: Final = 200_000
"""So many are summed up without SciPy, in a few hundredths of a second."""
_FURTHER_POINTS: Final = 200
"""Added to a number of standard deviations: rare outcomes are Poisson, with heavier tails than a Gaussian's."""


@dataclass(frozen=True)
class Losses:
    """Losses `first + i * step` with probabilities `weights[i]`; the same in both directions between neighbours."""

    first: float
    step: float
    weights: NDArray[np.float64]

    @property
    def values(self) -> NDArray[np.float64]:
        """The losses."""
        return self.first + self.step * np.arange(len(self.weights), dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """The delta at `epsilon`: the expectation of 1 - exp(epsilon - loss) where that is positive."""
        start = max(0, math.floor((epsilon - self.first) / self.step))
        gap = np.minimum(0.0, epsilon - self.values[start:])
        return float(np.sum(self.weights[start:] * -np.expm1(gap)))

    def epsilon(self, delta: float) -> float:
        """The epsilon at `delta`."""
        if self.delta(0.0) <= delta:
            return 0.0
        # With `upper[i]` the probability of loss i and above, and `lower[i]` the same under the neighbouring data
        # times exp(loss i), delta(epsilon) is upper[i] - exp(epsilon - loss i) * lower[i] just below loss i.
        fading = math.exp(-self.step)
        upper = np.cumsum(self.weights[::-1])[::-1]
        lower = _faded_sums(self.weights[::-1], fading)[::-1]
        at_points = np.append(upper[1:] - fading * lower[1:], 0.0)
        i = int(np.argmax(at_points <= delta))
        return max(0.0, self.first + i * self.step + math.log((upper[i] - delta) / lower[i]))


def _faded_sums(weights: NDArray[np.float64], fading: float) -> NDArray[np.float64]:
    """Each weight, and what has faded of the sum before it."""
    if len(weights) <= _FEW_POINTS:
        return np.array([*accumulate(weights.tolist(), lambda before, weight: weight + fading * before)])
    from scipy.signal import lfilter  # all of SciPy's signal processing: 30 MB, which most sites never need

    return np.asarray(lfilter([1.0], [1.0, -fading], weights))


def randomized_response_losses(count: int, epsilon: float, outcomes: int = 2, delta: float = 1e-300) -> Losses:
    """`count` uses of randomized response; tails far below `delta` are omitted."""
    deviations = 8 + math.sqrt(-2 * math.log(delta))
    if outcomes == 2:
        return _binary(count, epsilon, deviations)
    return _many_outcomes(count, epsilon, outcomes, deviations)


def _binary(count: int, epsilon: float, deviations: float) -> Losses:
    flip = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    half = deviations * math.sqrt(count * flip * (1 - flip)) + _FURTHER_POINTS
    lowest = max(0, math.floor(count * flip - half))
    highest = min(count, math.ceil(count * flip + half))
    flips = np.arange(highest, lowest, -1, dtype=np.float64)  # fewer flips: a larger loss
    # Ratios of neighbouring weights keep the digits that differences of log-factorials lose with a large count.
    log_weights = np.concatenate([[0.0], np.cumsum(np.log(flips) - np.log(count + 1 - flips) + epsilon)])
    weights = np.exp(log_weights - log_weights.max())
    return Losses((count - 2 * highest) * epsilon, 2 * epsilon, weights / weights.sum())


def _many_outcomes(count: int, epsilon: float, outcomes: int, deviations: float) -> Losses:
    log_other = -np.logaddexp(epsilon, math.log(outcomes - 1))
    truth, other = math.exp(epsilon + log_other), math.exp(log_other)
    mean = truth - other
    # The variance as sums of small terms: 1 - mean^2 has no digits left where the truth is nearly certain.
    rare = (outcomes - 1) * other
    variance = truth * (rare + other) ** 2 + other * (1 + mean) ** 2 + (outcomes - 2) * other * mean**2
    half = math.ceil(deviations * math.sqrt(count * variance)) + _FURTHER_POINTS
    center = round(count * mean)
    lowest, highest = max(-count, center - half), min(count, center + half)
    size = highest - lowest + 1
    # The logarithm of the characteristic function of one loss, to full precision near 0: it is multiplied by `count`.
    angles = 2 * np.pi * np.fft.rfftfreq(size)
    real = -2 * (truth + other) * np.sin(angles / 2) ** 2
    imaginary = mean * np.sin(angles)
    with np.errstate(divide="ignore"):  # -inf where it vanishes
        log_size = count * np.log1p(2 * real + real**2 + imaginary**2) / 2
    turn = count * (np.arctan2(imaginary, 1 + real) - angles * mean) + angles * (count * mean - lowest)
    weights = np.maximum(0.0, np.fft.irfft(np.exp(log_size - 1j * turn), size))
    return Losses(lowest * epsilon, epsilon, weights / weights.sum())
