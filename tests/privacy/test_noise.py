"""Noise: the distributions that privacy claims assume, from the system's generator and from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from collegium.errors import ConfigError
from collegium.privacy.noise import Noise, SecureNoise, SeededNoise, noise_source

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
    ("add", "law", "variance"), [(Noise.add_laplace, stats.laplace, 2.0), (Noise.add_normal, stats.norm, 1.0)]
)
def test_laplace_and_normal(noise: Noise, add: Callable[..., Any], law: Any, variance: float, scale: float) -> None:
    values = add(noise, np.full((N, 1), 5.0), scale, 1.0) - 5.0
    assert values.shape == (N, 1)
    assert abs(values.mean()) < 6 * scale * np.sqrt(variance / N)
    assert values.var() == pytest.approx(variance * scale**2, rel=0.05)
    assert stats.kstest(values.ravel(), law(scale=scale).cdf).pvalue > SURPRISING


def discrete(kind: str, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The integers that have a probability worth the name, and these, by definition."""
    x = np.arange(-40 * size, 40 * size + 1)
    weights = np.exp(-np.abs(x) / size if kind == "laplace" else -((x / size) ** 2) / 2)
    return x, weights / weights.sum()


@pytest.mark.parametrize("kind", ["laplace", "normal"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_integers_have_the_probabilities_of_the_definition(noise: Noise, kind: str, size: int) -> None:
    """On a coarse grid, where every single integer can be counted; 0 is where a sign too many would show."""
    x, chances = discrete(kind, size)
    drawn = getattr(noise, f"_{kind}")(size, N)
    often = N * chances > 5
    seen = np.bincount(drawn - x[0], minlength=len(x))
    rest = [max(0, N - seen[often].sum()) + 5], [N * (1 - chances[often].sum()) + 5]
    seen_or_rest, expected = np.append(seen[often], rest[0]), np.append(N * chances[often], rest[1])
    assert stats.chisquare(seen_or_rest, expected * seen_or_rest.sum() / expected.sum()).pvalue > SURPRISING


def test_far_tails_are_as_likely_as_they_should_be(noise: Noise) -> None:
    far = noise._geometric(1.0, N)
    assert stats.binomtest(int((far >= 10).sum()), N, np.exp(-10)).pvalue > SURPRISING
    survived = noise._survives(np.full(N, 9.5))
    assert stats.binomtest(int(survived.sum()), N, np.exp(-9.5)).pvalue > SURPRISING


def test_noise_has_no_largest_value() -> None:
    """A 64-bit word ends at 44 spreads; rare words in a row go on."""

    class Rare(Noise):
        seeded = True
        left = 30

        def words(self, n: int) -> NDArray[np.uint64]:
            self.left -= 1
            return np.full(n, 0 if self.left > 0 else 2**63, dtype=np.uint64)

    assert Rare()._geometric(1.0, 1)[0] == 29 * 8


@pytest.mark.parametrize("kind", ["laplace", "normal"])
def test_no_point_of_the_grid_is_impossible_for_a_neighbour(kind: str) -> None:
    """What a site's secret was cannot be told from low bits: in the tails too, all residues are as likely."""
    noise, n = SecureNoise(), 1_000_000
    for value in (0.0, 1.0, 1 / 3):
        noisy = getattr(noise, f"add_{kind}")(np.full(n, value), 1.0, 1.0)
        cells = noisy / 2.0**-40
        assert np.array_equal(cells, np.rint(cells))
        tail = np.abs(noisy - value) > (6 if kind == "laplace" else 3)
        residues = np.bincount(cells[tail].astype(np.int64) % 16, minlength=16)
        assert residues.sum() > 1000
        assert stats.chisquare(residues).pvalue > SURPRISING


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_discrete_gaussian_costs_what_the_gaussian_costs(epsilon: float) -> None:
    """delta differs by less than (cell / sigma)^2: 10^-24 at the 2^40 cells that are used."""
    for sigma in (2**4, 2**7, 2**10, 2**13):
        x = np.arange(-40 * sigma, 40 * sigma + 1) / sigma
        chances = stats.norm.pdf(x) / stats.norm.pdf(x).sum()
        exact = np.maximum(chances - np.exp(epsilon) * np.roll(chances, sigma), 0)[sigma:].sum()
        gaussian = stats.norm.cdf(0.5 - epsilon) - np.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon)
        assert abs(exact - gaussian) < 1 / sigma**2


@pytest.mark.parametrize(("add", "cells"), [(Noise.add_laplace, 10_000), (Noise.add_normal, 100)])
def test_noise_pays_for_what_rounding_adds_to_the_sensitivity(add: Callable[..., Any], cells: int) -> None:
    sizes = []

    class Spy(SeededNoise):
        def _signed(self, scale: int, n: int, *law: Any) -> NDArray[np.int64]:
            sizes.append(scale)
            return super()._signed(scale, n, *law)

    spy = Spy(np.random.default_rng(0))
    grid = 2.0**-40
    for sensitivity in (1.0, 1e-4):
        add(spy, np.zeros(10_000), 1.0, sensitivity)
        assert sizes[-1] * grid / (sensitivity + cells * grid) >= 1.0 / sensitivity
        assert sizes[-1] * grid == pytest.approx(1.0, abs=2e-4)
    with pytest.raises(ConfigError, match="sensitivity"):
        add(spy, np.zeros(10_000), 1.0, 1e-12)


def test_no_value_is_an_error() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1e308, 1e9, 0.1])
    for add in (Noise.add_laplace, Noise.add_normal):
        noisy = add(noise_source(0), values, 1e-6, 1.0)
        assert np.isfinite(noisy).all()
        assert abs(noisy[0]) < 1
        assert noisy[1] == -noisy[2] == 1e150
        np.testing.assert_allclose(noisy[4:], values[4:], atol=1e-4)
        assert add(noise_source(0), np.zeros((0, 3)), 1.0, 1.0).shape == (0, 3)


@pytest.mark.parametrize("size", [0.0, 1e-101, 1e101, float("inf"), float("nan")])
def test_noise_out_of_range(size: float) -> None:
    with pytest.raises(ConfigError, match="size"):
        noise_source(0).add_normal(np.zeros(1), size, 1.0)


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
