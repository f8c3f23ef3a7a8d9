"""How far labels reach over a graph, and what they say of each point.

(I - alpha W)^-1 is never computed as a whole: only its columns of labeled points are, by Cholesky's factors where the
graph is small and by conjugate gradients, many columns at a time, where it is large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray
from scipy import linalg, sparse

from collegium.core.labels import Codes, code_dtype
from collegium.errors import ConfigError

Balance = Literal["influence", "count", "none"]
"""What the classes are divided by."""
DENSE_POINTS: Final = 5000
"""Up to so many points the graph is factorized as a whole."""
LARGEST_ALPHA: Final = 0.99999
"""Nearer to 1, single precision can no longer tell the system from a singular one: from 1 - 1e-8 on it fails."""
Reach = Annotated[float, Gt(0), Le(LARGEST_ALPHA)]
"""alpha: how far labels reach."""
_TOLERANCE: Final = 1e-8
_ROUGHLY: Final = 1e-4  # what single precision reaches without trouble
_MOST_STEPS: Final = 20_000  # of conjugate gradients; the square root of the condition, 450 at most, should do
_COLUMNS_AT_A_TIME: Final = 64


def influence(W: sparse.csr_array, columns: NDArray[np.integer[Any]], alpha: float) -> NDArray[np.float64]:
    """Columns of (I - alpha W)^-1: how much each of those points says about every point."""
    n = W.shape[0]
    units = np.zeros((n, len(columns)))
    units[columns, np.arange(len(columns))] = 1.0
    if n <= DENSE_POINTS:
        system = -alpha * W.toarray()
        system[np.diag_indices(n)] += 1.0
        try:
            factors = linalg.cho_factor(system, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            raise _unsolved(alpha) from None
        solved: NDArray[np.float64] = linalg.cho_solve(factors, units, overwrite_b=True, check_finite=False)
        if not np.isfinite(solved).all():
            raise _unsolved(alpha)
        return solved
    rough = W.astype(np.float32)
    for start in range(0, len(columns), _COLUMNS_AT_A_TIME):
        part = slice(start, start + _COLUMNS_AT_A_TIME)
        refined = _refined(W, rough, alpha, np.ascontiguousarray(units[:, part]))
        refined[np.abs(refined) < _TOLERANCE] = 0.0  # less than what the solution is exact to says nothing
        units[:, part] = refined
    return units


def _unsolved(alpha: float) -> ConfigError:
    return ConfigError(
        f"Labels cannot be propagated with alpha={alpha}: the system has no exact solution. Lower alpha."
    )


def _refined(
    W: sparse.csr_array, rough: sparse.csr_array, alpha: float, units: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve in single precision, which is twice as fast, and then for what that left over, until nothing is left."""
    solution, residual = np.zeros_like(units), units
    sizes = np.ones(units.shape[1])
    while sizes.max() > _TOLERANCE:
        scale = np.maximum(sizes, np.finfo(float).tiny)
        solution += scale * _conjugate_gradients(rough, alpha, (residual / scale).astype(np.float32))
        residual = units - solution + alpha * (W @ solution)
        before, sizes = sizes.max(), np.sqrt(np.einsum("ij,ij->j", residual, residual))
        if not sizes.max() < before / 2:  # also where it is NaN
            raise _unsolved(alpha)
    return solution


def _conjugate_gradients(W: sparse.csr_array, alpha: float, residual: NDArray[np.float32]) -> NDArray[np.float32]:
    """Solve (I - alpha W) x = b roughly for columns b of length 1, each by itself, all in step.

    Who asked looks at what is left: steps that lead nowhere end after a while.
    """
    solution, direction = np.zeros_like(residual), residual.copy()
    left = np.einsum("ij,ij->j", residual, residual)
    smallest = np.finfo(np.float32).tiny
    for _ in range(_MOST_STEPS):
        if not (left > _ROUGHLY**2).any():
            break
        image = W @ direction
        image *= np.float32(-alpha)
        image += direction
        # A column that is solved exactly has no direction left to go.
        step = left / np.maximum(np.einsum("ij,ij->j", direction, image), smallest)
        image *= step
        residual -= image
        np.multiply(direction, step, out=image)
        solution += image
        remaining = np.einsum("ij,ij->j", residual, residual)
        direction *= remaining / np.maximum(left, smallest)
        direction += residual
        left = remaining
    return solution


@dataclass(frozen=True)
class Labelled:
    """Class codes of points, and how sure they are: 0 (nothing known) to 1 (one class only)."""

    codes: Codes
    confidences: NDArray[np.float64]


def label_points(
    Z: NDArray[np.float64],
    totals: NDArray[np.float64],
    *,
    balanced: bool = True,
    relative: bool = False,
    noise: float = 0.0,
) -> Labelled:
    """Labels and confidences from what the labeled points of each class say, of shape (points, classes).

    `balanced`: classes are divided by `totals`, so that one with many or well connected labels does not win everywhere.
    A point that no label reaches, by more than the `noise` that each value may have, gets the class with the largest
    total, with confidence 0. `relative`: divide confidences by the largest.
    """
    if not totals.any():
        raise ConfigError("No participating site has labeled points: there is nothing to propagate.")
    scores = np.maximum(Z, 0.0) / np.where(balanced & (totals > 0), totals, 1.0)
    sums = scores.sum(axis=1, keepdims=True)
    reached = Z.sum(axis=1) > noise * len(totals)
    shares = np.where(sums > 0, scores, 1.0) / np.where(sums > 0, sums, len(totals))
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    confidences = np.clip(1 - entropy / np.log(max(len(totals), 2)), 0.0, 1.0) * reached
    if relative and confidences.any():
        confidences = confidences / confidences.max()
    codes = np.where(reached, scores.argmax(axis=1), totals.argmax())
    return Labelled(codes.astype(code_dtype(len(totals))), confidences)
