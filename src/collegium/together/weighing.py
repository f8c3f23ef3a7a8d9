"""Drawn rows weighed by all pairs of the first look: a tree knows those of its edges only.

Deville, Särndal: "Calibration estimators in survey sampling", JASA 1992 (raking), with a penalty for noise as in ridge
calibration (Chambers: "Robust case-weighting for multipurpose establishment surveys", 1996). The weights are those
nearest to equal ones (by relative entropy) with which the rows' pairs come as near to the counted ones as noise lets us
know them: exp(sum of an effect per pair of groups). Rows whose parts were each seen, but hardly ever together, become
rare. It is post-processing: the first look is paid for.

All pairs at once have no closed form, and no junction tree of a bearable size; weights need neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from collegium.together.planning import Floats, Groups, Measured

_TIMES: Final = 10
_MOST_DRAWN: Final = 200_000
"""So many rows are drawn for each one that is kept, but not more in all; of large sets two for each."""
_TRUST: Final = 0.1
"""What equal weights count, as a share of all rows."""
_STEPS: Final = 60
_MOST_ENTRIES: Final = 8_000_000
"""Of the rows that effects are found with, times the tables."""


def drawn_for(rows: int) -> int:
    """How many rows to draw where so many are to be kept."""
    return rows * min(_TIMES, max(2, _MOST_DRAWN // rows))


def weights_of(cells: NDArray[np.int64], groups: Sequence[Groups], tables: Sequence[Measured], total: float) -> Floats:
    """What each row counts, so that all of them together have the pairs that were counted.

    `cells` are drawn rows, `tables` noisy counts in `groups` of their cells, and `total` is the number of rows counted.
    """
    pairs = [each for each in tables if len(each.columns) > 1]
    if not pairs:
        return np.ones(len(cells))
    effects = _effects(cells[: max(1, _MOST_ENTRIES // len(pairs))], groups, pairs, total)
    logs = np.zeros(len(cells))
    for each, own in zip(pairs, effects, strict=True):
        logs += own[_places(cells, groups, each)]
    return np.asarray(np.exp(logs - logs.max()))


def _places(cells: NDArray[np.int64], groups: Sequence[Groups], pair: Measured) -> NDArray[np.intp]:
    """In which cell of a table each row is."""
    own = [groups[column][cells[:, column]] for column in pair.columns]
    return np.ravel_multi_index(own, pair.counts.shape)


def _effects(
    cells: NDArray[np.int64], groups: Sequence[Groups], pairs: Sequence[Measured], total: float
) -> list[Floats]:
    """An effect per cell of every table: the largest penalized likelihood of the counts."""
    rows, firsts = len(cells), np.cumsum([0, *(each.counts.size for each in pairs)])
    counted = np.concatenate([each.counts.ravel() for each in pairs])
    noise = np.concatenate([np.full(each.counts.size, each.noise**2) for each in pairs])
    places = [first + _places(cells, groups, each) for first, each in zip(firsts, pairs, strict=False)]
    starts = np.arange(0, rows * len(pairs) + 1, len(pairs))
    member = csr_array(
        (np.ones(rows * len(pairs)), np.stack(places, axis=1).ravel(), starts), shape=(rows, len(counted))
    )

    def loss(effects: Floats) -> tuple[float, Floats]:
        logs = np.asarray(member @ effects)
        most = logs.max()
        shares = np.exp(logs - most)
        mean = shares.mean()
        held = np.asarray(member.T @ (shares * (total / (rows * mean))))
        pull = _TRUST * noise * effects
        value = total * (most + np.log(mean)) - counted @ effects + pull @ effects / 2
        return float(value) / total, (held - counted + pull) / total

    found = minimize(loss, np.zeros(len(counted)), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.split(np.asarray(found.x), firsts[1:-1])


def evenly(weights: Floats, rows: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """So many rows by their weights: each as often as it weighs, rounded up or down."""
    ends = np.cumsum(weights)
    marks = (np.arange(rows) + rng.random()) * (ends[-1] / rows)
    return np.asarray(np.minimum(np.searchsorted(ends, marks, side="right"), len(weights) - 1))
