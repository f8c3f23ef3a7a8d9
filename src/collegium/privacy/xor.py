"""The XOR mechanism: random bits, dependent on each other, on top of released bits.

The noise b has probability proportional to exp(b' Pi b) for a symmetric matrix Pi. With a diagonal Pi all bits are
flipped independently, each with probability 1 / (1 + exp(|Pi_kk|)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.settings import PositiveInt, check
from collegium.errors import ConfigError


def xor_epsilon(Pi: ArrayLike, flips: int) -> float:
    """An upper bound on the mechanism's epsilon if neighbouring data sets differ in at most `flips` released bits.

    Proved: one bit k changes the exponent by at most g_k, the larger of |Pi_kk + 2 sum of the positive Pi_kl| and
    |Pi_kk + 2 sum of the negative Pi_kl| (l other than k), so `flips` bits change it by the `flips` largest g_k. It is
    exact for one flip and for a diagonal Pi.
    """
    matrix = _symmetric("xor_epsilon", Pi)
    if check(PositiveInt, flips, "xor_epsilon: flips") > len(matrix):
        raise ConfigError(f"xor_epsilon: flips must be at most {len(matrix)}, the number of bits, not {flips}.")
    diagonal = np.diag(matrix)
    others = matrix - np.diag(diagonal)
    highest = np.abs(diagonal + 2 * np.maximum(others, 0).sum(axis=1))
    lowest = np.abs(diagonal + 2 * np.minimum(others, 0).sum(axis=1))
    return float(np.sort(np.maximum(highest, lowest))[::-1][:flips].sum())


def xor_claimed_epsilon(theta: ArrayLike, flips: int, associations: Iterable[ArrayLike] = ()) -> float:
    """The epsilon of the published theorem, which is FALSE unless all matrices are diagonal: for comparison only.

    It takes `flips` times the sum of the norms of the eigenvalues of `theta` and of the `associations` between rows
    (Ji et al. 2021, Theorem 1; the FedCT paper's Corollary 1). With theta = 0.1 everywhere, two bits and one flip it
    claims 0.2, and the mechanism has 0.3.
    """
    matrix = _symmetric("xor_claimed_epsilon", theta)
    check(PositiveInt, flips, "xor_claimed_epsilon: flips")
    norms = [np.linalg.norm(np.linalg.eigvals(each)) for each in (matrix, *map(np.asarray, associations))]
    return float(flips * math.fsum(norms))


def _symmetric(where: str, matrix: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(matrix, dtype=np.float64)
    square = values.ndim == 2 and values.shape[0] == values.shape[1] and values.size > 0
    if not square or not np.all(np.isfinite(values)) or not np.allclose(values, values.T):
        raise ConfigError(f"{where}: the matrix must be square, symmetric and finite.")
    return values
