"""Noise: the distributions that privacy claims assume, from the system's generator and from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from collegium.errors import ConfigError
from collegium.privacy.noise import Noise, SecureNoise, SeededNoise, noise_source, to_grid

N = 200_000
SURPRISING = 1e-6
"""A correct generator fails a test of this level once in a million runs."""


class Words(Noise):
    """A source that gives the words it was made with."""

    seeded = True

    def __init__(self, *words: int) -> None:
        self._words = words

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.array(self._words[:n], dtype=np.uint64)


@pytest.fixture(params=["secure", "seeded"])
def noise(request: pytest.FixtureRequest) -> Noise:
    return SecureNoise() if request.param == "secure" else noise_source(0)


def test_words_are_uniform_in_every_byte(noise: Noise) -> None:
    for column in noise.words(N).view(np.uint8).reshape(N, 8).T:
        assert stats.chisquare(np.bincount(column, minlength=256)).pvalue > SURPRISING


def test_uniform(noise: Noise) -> None:
    values = noise.uniform((N // 2, 2))
    assert values.shape == (N // 2, 2)
    assert 0 < values.min() < values.max() < 1
    assert stats.kstest(values.ravel(), "uniform").pvalue > SURPRISING


def test_uniform_is_never_0() -> None:
    assert Words(0).uniform(1)[0] > 0
    assert Words(2**64 - 1).uniform(1)[0] < 1


@pytest.mark.parametrize("probability", [1e-3, 0.25, 0.4999916667, 0.9])
def test_happens(noise: Noise, probability: float) -> None:
    happened = int(noise.happens(probability, (N, 5)).sum())
    assert stats.binomtest(happened, 5 * N, probability).pvalue > SURPRISING


def test_happens_is_exact_to_the_last_bit_of_a_word() -> None:
    """Of the words 0 .. 2^64 - 1 exactly floor(p 2^64) are hits."""
    for probability in (0.25, 0.1, 1 / 3, 2.0**-60, 1 - 2.0**-53):
        limit = int(probability * 2**64)
        assert Words(limit - 1, limit).happens(probability, 2).tolist() == [True, False]
    assert Words(0).happens(0.0, 1).tolist() == [False]
    assert Words((1 << 64) - 1).happens(1.0, 1).tolist() == [True]


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_bad_probability(probability: float) -> None:
    with pytest.raises(ConfigError, match="probability"):
        noise_source(0).happens(probability, 1)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000])
def test_below_is_unbiased(noise: Noise, k: int) -> None:
    counts = np.bincount(noise.below(k, N), minlength=k)
    assert len(counts) == k
    if k > 1:
        assert stats.chisquare(counts).pvalue > SURPRISING


@pytest.mark.parametrize("k", [3, 10, 2**31 - 1])
def test_below_gives_each_number_the_same_share_of_words(k: int) -> None:
    """Number i owns the words from ceil(i 2^64 / k): shares differ by one word at most."""
    for i in (1, k // 2, k - 1):
        first = -(-i * 2**64 // k)
        assert Words(first - 1, first).below(k, 2).tolist() == [i - 1, i]
    assert Words(0, 2**64 - 1).below(k, 2).tolist() == [0, k - 1]


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize(
    ("draw", "law", "variance"), [(Noise.laplace, stats.laplace, 2.0), (Noise.normal, stats.norm, 1.0)]
)
def test_laplace_and_normal(noise: Noise, draw: Callable[..., Any], law: Any, variance: float, scale: float) -> None:
    values = draw(noise, scale, (N, 1))
    assert values.shape == (N, 1)
    assert abs(values.mean()) < 6 * scale * np.sqrt(variance / N)
    assert values.var() == pytest.approx(variance * scale**2, rel=0.05)
    assert stats.kstest(values.ravel(), law(scale=scale).cdf).pvalue > SURPRISING


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_noise_lies_on_a_grid(scale: float) -> None:
    grid = 2.0 ** (np.ceil(np.log2(scale)) - 40)
    for values in (noise_source(0).laplace(scale, 100), noise_source(0).normal(scale, 100)):
        assert np.all(values / grid == np.round(values / grid))
    assert np.all(np.abs(to_grid(np.array([0.1, 0.7]), scale) - [0.1, 0.7]) <= grid / 2)


def test_a_seed_repeats_and_the_system_does_not() -> None:
    assert np.array_equal(noise_source(7).words(4), noise_source(7).words(4))
    assert np.array_equal(noise_source(7).words(4), noise_source(np.random.default_rng(7)).words(4))
    assert not np.array_equal(noise_source(7).words(4), noise_source(8).words(4))
    assert not np.array_equal(SecureNoise().words(4), SecureNoise().words(4))


def test_noise_source() -> None:
    assert isinstance(noise_source(None), SecureNoise)
    assert not noise_source(None).seeded
    assert isinstance(noise_source(np.int64(3)), SeededNoise)
    assert noise_source(3).seeded
    mine = noise_source(3)
    assert noise_source(mine) is mine
    bad: Any
    for bad in ("3", True, 1.5):
        with pytest.raises(ConfigError, match="rng must be None"):
            noise_source(bad)
