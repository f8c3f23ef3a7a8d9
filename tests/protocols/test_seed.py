from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused, seed
from collegium.protocols.hamming import pairwise

SEED = bytes(range(32))
PINNED = "9a26ca0d402b7b6e"


def test_all_sites_get_the_leaders_seed(meet: Any) -> None:
    sites = meet("a", "b", "c")
    drawn, envelopes = seed.share(sites["b"])
    assert set(envelopes) == {"a", "c"}
    assert {seed.receive(sites[party], "b", envelopes[party]) for party in "ac"} == {drawn}
    assert drawn not in b"".join(envelope.tobytes() for envelope in envelopes.values())
    with pytest.raises(Reused):
        seed.receive(sites["a"], "b", envelopes["a"])


def test_a_seed_of_another_size_names_the_leader(meet: Any) -> None:
    sites = meet("a", "b")
    short = sites["b"].seal("a", np.zeros(16, np.uint8), seed.CONTEXT)
    with pytest.raises(ProtocolError, match="'b' sent 16 bytes"):
        seed.receive(sites["a"], "b", short)


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


def test_codes_are_the_sides_of_the_hyperplanes() -> None:
    V = np.random.default_rng(0).standard_normal((20, 6))
    bits = seed.unpack(seed.codes(V, SEED, 301), 301)
    assert np.array_equal(bits, V @ seed.projection(SEED, 301, 6).T >= 0)
    assert np.array_equal(seed.codes(100 * V, SEED, 301), seed.codes(V, SEED, 301))


def test_distances_of_codes_give_the_angle() -> None:
    V = np.random.default_rng(1).standard_normal((30, 8))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    bits = seed.unpack(seed.codes(V, SEED, 4096), 4096)
    cosines = np.cos(np.pi * pairwise(bits, bits, "plain") / 4096)
    assert np.abs(cosines - V @ V.T).max() < 0.1


def test_opposite_points_have_complementary_codes() -> None:
    V = np.random.default_rng(2).standard_normal((3, 4))
    both = seed.unpack(seed.codes(np.vstack([V, -V]), SEED, 64), 64)
    assert np.array_equal(both[:3], 1 - both[3:])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_and_infinite_features_are_refused(bad: float) -> None:
    V = np.ones((4, 3))
    V[2, 1] = bad
    with pytest.raises(ConfigError, match=r"Row 2 of the features \(1 rows"):
        seed.codes(V, SEED, 8)


def test_zero_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Row 1 .* no direction"):
        seed.codes(np.array([[1.0, 0.0], [0.0, 0.0]]), SEED, 8)


@pytest.mark.parametrize("V", [np.ones(3), np.ones((0, 3)), np.array([["a"]])])
def test_what_is_no_table_of_numbers_is_refused(V: Any) -> None:
    with pytest.raises(ConfigError, match="table of numbers"):
        seed.codes(V, SEED, 8)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one bit"):
        seed.projection(SEED, 0, 3)
    with pytest.raises(ConfigError, match="32 bytes"):
        seed.projection(b"", 8, 3)
