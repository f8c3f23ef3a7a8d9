"""The graph of nearest neighbours, built from blocks of similarities so that they never all exist at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Similarities = NDArray[np.float64]
Columns = NDArray[np.int64]


def nearest(similarities: NDArray[Any], k: int) -> tuple[Columns, NDArray[Any]]:
    """Per row the k most similar columns (fewer, where there are fewer), most similar first.

    Of equally similar columns the first counts as nearer, so that the choice depends on nothing else.
    """
    count, width = similarities.shape
    k = min(k, width)
    if not k:
        return np.zeros((count, 0), np.int64), similarities[:, :0]
    weakest = np.partition(similarities, width - k, axis=1)[:, width - k, None]
    rows, columns = np.nonzero(similarities >= weakest)
    values = similarities[rows, columns]
    order = np.lexsort((columns, -values, rows))
    first = order[np.searchsorted(rows, np.arange(count))[:, None] + np.arange(k)]
    return columns[first], values[first]


class Nearest:
    """The k nearest of every one of n points, from what is added so far."""

    def __init__(self, n: int, k: int) -> None:
        self._n, self._k = n, k
        self._columns = np.full((n, k), n, np.int64)
        self._similarities = np.full((n, k), -np.inf)

    def add(self, rows: range, columns: Columns, similarities: Similarities) -> None:
        """For each point in `rows`, a few candidates: their numbers and how similar they are."""
        part = slice(rows.start, rows.stop)
        both = np.concatenate([self._columns[part], columns], axis=1)
        values = np.concatenate([self._similarities[part], similarities], axis=1)
        order = np.lexsort((both, -values))[:, : self._k]
        self._columns[part] = np.take_along_axis(both, order, axis=1)
        self._similarities[part] = np.take_along_axis(values, order, axis=1)

    def add_block(self, rows: range, columns: range, similarities: Similarities) -> None:
        """All similarities between two ranges of points that share none."""
        for ours, theirs, block in ((rows, columns, similarities), (columns, rows, similarities.T)):
            found, values = nearest(block, self._k)
            self.add(ours, found + theirs.start, values)

    def add_own(self, rows: range, similarities: Similarities) -> None:
        """All similarities within a range of points; a point is not its own neighbour."""
        others = similarities.astype(np.float64)
        np.fill_diagonal(others, -np.inf)
        found, values = nearest(others, min(self._k, len(rows) - 1))
        self.add(rows, found + rows.start, values)

    def graph(self, power: float) -> sparse.csr_array:
        """W: similarities above 0 to that power, symmetrized and normalized. A point without neighbours is allowed."""
        rows, places = np.nonzero(self._similarities > 0)
        weights = self._similarities[rows, places] ** power
        directed = sparse.csr_array((weights, (rows, self._columns[rows, places])), (self._n, self._n))
        symmetric = directed + directed.T
        degrees: NDArray[np.float64] = np.asarray(symmetric.sum(axis=1)).reshape(-1)
        scale = sparse.diags_array(1 / np.sqrt(np.where(degrees > 0, degrees, 1.0)))
        return sparse.csr_array(scale @ symmetric @ scale)
