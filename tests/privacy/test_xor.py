"""The XOR mechanism: the right condition against all outcomes, and the published one that is false."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from collegium import privacy
from collegium.errors import ConfigError


def true_epsilon(matrix: NDArray[np.float64], flips: int) -> float:
    """The largest change of the exponent over all noises and all sets of at most `flips` bits."""
    bits = len(matrix)
    noises = np.array(list(itertools.product([0, 1], repeat=bits)))
    exponents = np.einsum("ni,ij,nj->n", noises, matrix, noises)
    worst = 0.0
    for size in range(1, flips + 1):
        for chosen in itertools.combinations(range(bits), size):
            mask = sum(1 << (bits - 1 - bit) for bit in chosen)
            worst = max(worst, float(np.max(exponents - exponents[np.arange(len(noises)) ^ mask])))
    return worst


def test_the_published_theorem_is_false() -> None:
    two, four = 0.1 * np.ones((2, 2)), 0.1 * np.ones((4, 4))
    assert privacy.xor_claimed_epsilon(two, 1) == pytest.approx(0.2)
    assert true_epsilon(two, 1) == pytest.approx(0.3)
    assert privacy.xor_epsilon(two, 1) == pytest.approx(0.3)
    assert privacy.xor_claimed_epsilon(four, 2) == pytest.approx(0.8)
    assert true_epsilon(four, 2) == pytest.approx(1.2)
    assert privacy.xor_epsilon(four, 2) == pytest.approx(1.4)


def test_the_published_theorem_calls_some_noise_free() -> None:
    """A matrix with eigenvalues 0 between two rows costs nothing by the theorem, and 5 in truth."""
    association = np.array([[0.0, 5.0], [0.0, 0.0]])
    whole = np.zeros((4, 4))
    whole[:2, 2:], whole[2:, :2] = association / 2, association.T / 2
    assert privacy.xor_claimed_epsilon(np.zeros((2, 2)), 1, [association]) == 0.0
    assert true_epsilon(whole, 1) == privacy.xor_epsilon(whole, 1) == 5.0


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_covers_every_outcome_and_one_flip_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(6, 6))
    matrix = matrix + matrix.T
    assert privacy.xor_epsilon(matrix, 1) == pytest.approx(true_epsilon(matrix, 1))
    for flips in (2, 3, 6):
        assert privacy.xor_epsilon(matrix, flips) >= true_epsilon(matrix, flips) - 1e-12


@pytest.mark.parametrize("flips", [1, 2, 4])
def test_independent_bits_exactly(flips: int) -> None:
    matrix = np.diag([0.3, -0.2, 0.1, 0.05])
    assert privacy.xor_epsilon(matrix, flips) == pytest.approx(true_epsilon(matrix, flips))
    same = 0.1 * np.eye(3000)
    assert privacy.xor_epsilon(same, 3000) == pytest.approx(300)


def test_bad_input() -> None:
    matrix: Any
    for matrix in ([[1.0, 2.0]], [[0.0, 1.0], [2.0, 0.0]], [[math.nan]], [1.0], []):
        for call in (privacy.xor_epsilon, privacy.xor_claimed_epsilon):
            with pytest.raises(ConfigError, match="square, symmetric and finite"):
                call(matrix, 1)
    for flips in (0, 3, -1, 1.5, True):
        with pytest.raises(ConfigError, match=r"flips must be (an integer of at least 1|at most 2)"):
            privacy.xor_epsilon(np.eye(2), flips)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="flips must be an integer of at least 1, got 0"):
        privacy.xor_claimed_epsilon(np.eye(2), 0)
