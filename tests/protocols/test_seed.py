from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium.errors import ConfigError
from collegium.protocols import seed
from collegium.protocols.hamming import plain

SEED = bytes(range(32))
PINNED = "9a26ca0d402b7b6e"


def test_the_hyperplanes_are_pinned() -> None:
    Pi = seed.projection(SEED, 300, 5)
    assert Pi.shape == (300, 5)
    steps = np.rint(Pi * 2**20).astype("<i8")
    assert np.array_equal(steps / 2**20, Pi)
    assert hashlib.sha256(steps.tobytes()).hexdigest()[:16] == PINNED
    assert not np.array_equal(Pi, seed.projection(bytes(32), 300, 5))


def test_the_hyperplanes_are_gaussian() -> None:
    entries = seed.projection(SEED, 1024, 51).ravel()
    assert stats.kstest(entries, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(entries[:-1], entries[1:])[0, 1]) < 0.02


def test_sketches_are_the_sides_of_the_hyperplanes() -> None:
    V = np.random.default_rng(0).standard_normal((20, 6))
    bits = seed.unpack(seed.sketches(V, SEED, 301), 301)
    assert np.array_equal(bits, V @ seed.projection(SEED, 301, 6).T >= 0)
    assert np.array_equal(seed.sketches(100 * V, SEED, 301), seed.sketches(V, SEED, 301))


def test_distances_of_sketches_give_the_angle() -> None:
    V = np.random.default_rng(1).standard_normal((30, 8))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    bits = seed.unpack(seed.sketches(V, SEED, 4096), 4096)
    cosines = np.cos(np.pi * plain.distances(bits, bits) / 4096)
    assert np.abs(cosines - V @ V.T).max() < 0.1


def test_opposite_points_have_complementary_sketches() -> None:
    V = np.random.default_rng(2).standard_normal((3, 4))
    both = seed.unpack(seed.sketches(np.vstack([V, -V]), SEED, 64), 64)
    assert np.array_equal(both[:3], 1 - both[3:])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_and_infinite_features_are_refused(bad: float) -> None:
    V = np.ones((4, 3))
    V[2, 1] = bad
    with pytest.raises(ConfigError, match=r"Row 2 of the features \(1 rows"):
        seed.sketches(V, SEED, 8)


def test_zero_vectors_are_about_as_far_from_all_others_as_a_right_angle() -> None:
    V = np.random.default_rng(3).standard_normal((30, 8))
    V[[4, 9]] = 0.0
    sketches = seed.sketches(V, SEED, 4096)
    bits = seed.unpack(sketches, 4096)
    H = plain.distances(bits[[4, 9]], bits)
    away = np.delete(np.cos(np.pi * H / 4096), [4, 9], axis=1)
    assert np.abs(away).max() < 0.1
    assert abs(np.cos(np.pi * H[0, 9] / 4096)) < 0.1
    others = np.delete(np.arange(30), [4, 9])
    assert np.array_equal(sketches[others], seed.sketches(V[others], SEED, 4096))


def test_sketches_of_zero_vectors_are_the_sites_own_and_can_be_repeated() -> None:
    one, other = np.eye(5), 2 * np.eye(5)
    one[2], other[2], other[0, 1] = 0.0, 0.0, 1.0
    assert np.array_equal(seed.sketches(one, SEED, 256), seed.sketches(one, SEED, 256))
    assert not np.array_equal(seed.sketches(one, SEED, 256)[2], seed.sketches(other, SEED, 256)[2])
    assert not np.array_equal(seed.sketches(one, SEED, 256)[2], seed.sketches(one, bytes(32), 256)[2])


@pytest.mark.parametrize("size", [2.0**-1000, 2.0**1000])
def test_sketches_do_not_depend_on_the_size_of_points(size: float) -> None:
    V = 100 * np.random.default_rng(4).standard_normal((20, 6))
    assert np.array_equal(seed.sketches(V * size, SEED, 301), seed.sketches(V, SEED, 301))
    largest = np.full((1, 6), np.finfo(float).max)
    assert np.array_equal(seed.sketches(largest, SEED, 301), seed.sketches(np.ones((1, 6)), SEED, 301))


@pytest.mark.parametrize("V", [np.ones(3), np.ones((0, 3)), np.array([["a"]])])
def test_what_is_no_table_of_numbers_is_refused(V: Any) -> None:
    with pytest.raises(ConfigError, match="table of numbers"):
        seed.sketches(V, SEED, 8)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one bit"):
        seed.projection(SEED, 0, 3)
    with pytest.raises(ConfigError, match="32 bytes"):
        seed.projection(b"", 8, 3)
