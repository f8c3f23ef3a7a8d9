"""Which counts to ask for: histograms say how coarse the cells of pairs must be to outweigh the noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]
Noise = Callable[[int], float]
MOST_CELLS: Final = 10_000
"""In one sum; with four bytes each, a site stays below 100 kB."""
FEWER_CELLS: Final = 2_400
"""The same where values of text are found first, which takes many of these bytes."""
_GROUPS: Final = (32, 24, 20, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2)
_MOST_OF_ALL: Final = 8
"""Groups that are enough to see which columns belong together."""
_NOISE_ALLOWED: Final = 0.5
"""How much noise a table may have, as a share of all rows."""
_NOISE_ENDURED: Final = 1.3
"""The same for a first look at all pairs: what belongs together shows in whole tables before it shows in cells."""
_FEWEST_OF_ALL: Final = 4
_NOISE_OF_ONE: Final = 0.8
"""The mean size of Gaussian noise, in standard deviations."""
_HALVINGS: Final = 60
_TINY: Final = 1e-12


class Workload(NamedTuple):
    """What is to be counted."""

    groups: tuple[Groups, ...]
    """For every column, the group of each of its cells."""
    marginals: tuple[tuple[int, ...], ...]
    """Which columns are counted together."""


class Measured(NamedTuple):
    """One table of the sums: which columns were counted together, the noisy counts, and the noise of each."""

    columns: tuple[int, ...]
    counts: Floats
    noise: float


def on_simplex(noisy: NDArray[Any], total: float) -> Floats:
    """The nearest table without negative numbers that adds up to `total`."""
    flat = np.asarray(noisy, dtype=np.float64).ravel()
    if total <= 0:
        return np.full(np.shape(noisy), 0.0)
    ordered = np.sort(flat)[::-1]
    above = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    shift = above[np.flatnonzero(ordered > above)[-1]]
    return np.asarray(np.maximum(flat - shift, 0.0).reshape(np.shape(noisy)))


def expected(noisy: NDArray[Any], noise: float | Floats, total: float) -> Floats:
    """What tables hold by noisy counts, on average: none holds less than nothing, and all of them add up to `total`.

    A cell that noise may hide is not taken to be empty: rare values stay possible, the more so the more noise there is.
    Counts are taken to be exponentially distributed beforehand, with the mean by which they add up.
    """
    counts = np.asarray(noisy, dtype=np.float64)
    if total <= 0:
        return np.full(counts.shape, 0.0)
    low, high = float(counts.min()) - total, float(counts.max()) + 40 * float(np.max(noise))
    for _ in range(_HALVINGS):
        shift = (low + high) / 2
        if _above_nothing(counts - shift, noise).sum() > total:
            low = shift
        else:
            high = shift
    found = _above_nothing(counts - high, noise)
    return np.asarray(found * (total / max(float(found.sum()), _TINY)))


def _above_nothing(mean: Floats, noise: float | Floats) -> Floats:
    """The mean of Gaussians, each given that it is not negative."""
    parts = mean / noise
    beyond = np.exp(-(parts**2) / 2 - log_ndtr(parts)) / math.sqrt(2 * math.pi)
    return np.asarray(noise * np.maximum(parts + beyond, 0.0))  # far below nothing, rounding errors are all there is


def number_of_rows(histograms: Sequence[Floats]) -> float:
    """How many rows all sites have, by histograms with equal noise per cell."""
    weights = np.array([1 / len(each) for each in histograms])
    sums = np.array([each.sum() for each in histograms])
    return max(float((weights * sums).sum() / weights.sum()), 1.0)


def first_look(
    histograms: Sequence[Floats], ordered: Sequence[bool], noise_of: Noise, cells: int = MOST_CELLS
) -> Workload:
    """What to count to see which columns belong together: all pairs, each column with the label, or columns alone.

    The last histogram is the label's. `noise_of(n)` is the noise of a cell when n marginals are counted.
    """
    last = len(histograms) - 1
    singles = tuple((column,) for column in range(last + 1))
    pairs, labels = tuple(itertools.combinations(range(last + 1), 2)), tuple((column, last) for column in range(last))
    options = (
        (pairs, _FEWEST_OF_ALL, _MOST_OF_ALL, _NOISE_ALLOWED),
        (pairs, _FEWEST_OF_ALL, _FEWEST_OF_ALL, _NOISE_ENDURED),
        (labels, 3, _MOST_OF_ALL, _NOISE_ALLOWED),
    )
    for marginals, fewest, most, noise in options:
        groups = groups_for(
            histograms, ordered, marginals, noise_of, fewest=fewest, most=most, cells=cells, allowed=noise
        )  # fmt: skip
        if groups is not None:
            return Workload(groups, marginals)
    return Workload(tuple(np.arange(len(each)) for each in histograms), singles)


def groups_for(
    histograms: Sequence[Floats], ordered: Sequence[bool], marginals: Sequence[tuple[int, ...]], noise_of: Noise, *,
    fewest: int = 2, most: int = _GROUPS[0], cells: int = MOST_CELLS, allowed: float = _NOISE_ALLOWED,
) -> tuple[Groups, ...] | None:  # fmt: skip
    """The finest groups of cells with which noise stays well below the counts; None where `fewest` are too many."""
    rows = number_of_rows(histograms)
    for many in (each for each in _GROUPS if fewest <= each <= most):
        groups = tuple(
            grouped(each, many, rows, in_order=in_order) for each, in_order in zip(histograms, ordered, strict=True)
        )
        sizes = [int(each.max()) + 1 for each in groups]
        tables = np.array([math.prod(sizes[column] for column in columns) for columns in marginals])
        noise = _NOISE_OF_ONE * noise_of(len(marginals)) * float((tables**2).sum() / tables.sum()) / rows
        if tables.sum() <= cells and noise <= allowed:
            return groups
    return None


def grouped(histogram: Floats, most: int, rows: float, *, in_order: bool) -> Groups:
    """At most so many groups of cells: of neighbours with equal shares of the rows, or of the rarest categories."""
    if len(histogram) <= most:
        return np.arange(len(histogram))
    counts = on_simplex(histogram, rows)
    if not in_order:
        ranks = np.empty(len(counts), dtype=np.int64)
        ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        return np.minimum(ranks, most - 1)
    return _neighbours(counts, most)


def _neighbours(counts: Floats, most: int) -> Groups:
    """Cells joined from left to right: a cell that holds more than a group's share stays alone."""
    groups, group, held = np.zeros(len(counts), dtype=np.int64), 0, 0.0
    left = counts.sum()
    for cell, count in enumerate(counts):
        share = (left + held) / max(most - group, 1)
        if cell and held > 0 and group < most - 1 and held + count / 2 > share:
            group, held = group + 1, 0.0
        groups[cell] = group
        held += count
        left -= count
    return groups
