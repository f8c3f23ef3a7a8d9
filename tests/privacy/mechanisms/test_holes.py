"""The attack on porous noise: outputs that only one of two neighbouring values can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from collegium.privacy.mechanisms.gaussian import Gaussian
from collegium.privacy.mechanisms.laplace import Laplace

N = 2_000_000
_UNIT = 2.0**-52
GRID_BITS = 40


def inverted(name: str, uniform: NDArray[Any]) -> NDArray[np.float64]:
    """Noise of size 1 from uniform numbers in (0, 1/2), by the inverse of its distribution function."""
    return np.log(2 * uniform) if name == "laplace" else np.asarray(ndtri(uniform))


def to_grid(values: NDArray[Any], spread: float) -> NDArray[np.float64]:
    grid = 2.0 ** (np.ceil(np.log2(spread)) - GRID_BITS)
    return np.asarray(np.round(values / grid) * grid)


def can_be(name: str, noise: NDArray[np.float64], spread: float) -> NDArray[np.bool_]:
    """Whether noise made of 52-bit uniforms can have this value; in the tails, where such uniforms are sparse."""
    tail = -np.abs(noise) / spread
    chance = np.exp(tail) / 2 if name == "laplace" else ndtr(tail)
    found = chance > 2.0**-11
    first = np.floor(chance / _UNIT - 0.5)
    for step in range(-3, 4):
        uniform = (np.maximum(first + step, 0) + 0.5) * _UNIT
        found |= to_grid(spread * inverted(name, uniform), spread) == -np.abs(noise)
    return np.asarray(found)


def told_apart(name: str, outputs: NDArray[np.float64], spread: float) -> tuple[int, int]:
    """How many outputs, of the value 0, only 0 can have, and how many only its neighbour 1 can have."""
    outputs = outputs[np.abs(outputs) > 3 * spread]
    mine, other = (can_be(name, to_grid(outputs - value, spread), spread) for value in (0.0, 1.0))
    return int((mine & ~other).sum()), int((other & ~mine).sum())


@pytest.mark.parametrize("made", [Laplace(1.0), Gaussian(1.0)], ids=["laplace", "gaussian"])
def test_an_attacker_who_looks_for_impossible_outputs_is_wrong_as_well(made: Laplace | Gaussian) -> None:
    words = np.random.default_rng(0).integers(1 << 51, size=N).astype(np.float64)
    porous = to_grid(made.spread * inverted(made.name, (words + 0.5) * _UNIT), made.spread)
    porous *= np.random.default_rng(1).choice([-1.0, 1.0], size=N)
    right, wrong = told_apart(made.name, porous, made.spread)
    assert right > 20  # where noise has holes, the attacker is certain, and right
    assert wrong == 0
    _, wrong = told_apart(made.name, made.release(np.zeros(N)), made.spread)
    assert wrong > 20
