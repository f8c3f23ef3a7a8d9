"""A tree of columns, fitted to noisy counts of pairs, and rows drawn along it.

Chow and Liu, "Approximating discrete probability distributions with dependence trees", 1968: the spanning tree of the
largest mutual information. Noise makes every pair look dependent, so tables are first shrunk towards independence, as
far as noise alone explains that they differ from it (James and Stein), and brought in line with the histograms.

Where there is little enough noise, two columns are counted with the label, and a column depends on its parent and on
the label (Friedman, Geiger, Goldszmidt: "Bayesian network classifiers", 1997). Such tables are shrunk towards what
their three pairs alone say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from collegium.together.planning import Floats, on_simplex

Pair = tuple[int, int]
_FITTING_STEPS: Final = 50
_NEVER_NOTHING: Final = 1e-6
"""Of what is expected without the table: a rare value whose cells all vanish in noise stays possible."""
_ROUNDING: Final = 1e-9
_LEAST: Final = 1e-12
"""What a tree takes for impossible is improbable at most: noise may have hidden it."""


@dataclass(frozen=True)
class Tree:
    """Every column's parents, in an order in which parents come first, with the tables to draw from."""

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    """By column: none for one that stands alone, its parent, or its parent and the label."""
    shares: tuple[Floats, ...]
    """By column: how probable its groups are (last axis), given those of its parents."""

    def draw(self, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Made-up rows, as numbers of groups."""
        drawn = np.zeros((rows, len(self.order)), dtype=np.int64)
        for column in self.order:
            shares = np.cumsum(self.shares[column], axis=-1)
            of_row = shares[tuple(drawn[:, parent] for parent in self.parents[column])]
            below = rng.random(rows)[:, None] * of_row[..., -1:] >= of_row
            drawn[:, column] = np.minimum(below.sum(axis=1), shares.shape[-1] - 1)
        return drawn

    def opinion(self, drawn: NDArray[np.int64]) -> Floats:
        """How probable each label is for these rows, by their other columns; the label is the last one."""
        label, labelled = len(self.order) - 1, drawn.copy()
        logs = np.zeros((len(drawn), self.shares[label].shape[-1]))
        for code in range(logs.shape[1]):
            labelled[:, label] = code
            for column in self.order:
                shares = self.shares[column][tuple(labelled[:, each] for each in (*self.parents[column], column))]
                logs[:, code] += np.log(np.maximum(shares, _LEAST))
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def fit_tree(histograms: Sequence[Floats], counted: Mapping[tuple[int, ...], Floats], sigma: float) -> Tree:
    """The tree of the pairs that tell most; `histograms` are estimates that all add up to the number of rows.

    `counted` are noisy tables of two columns, or of two and the label, which is the last column.
    """
    columns, label = len(histograms), len(histograms) - 1
    tables, with_labels = dict[Pair, Floats](), dict[Pair, Floats]()
    for of, noisy in counted.items():
        pair = of[0], of[1]
        if len(of) == 3:
            with_labels[pair] = with_label(noisy, histograms, pair, sigma)
            tables[pair] = with_labels[pair].sum(axis=2)
        else:
            tables[pair] = denoised(noisy, histograms, pair, sigma)
    linked = np.zeros((columns, columns))
    for pair in links(columns, tables):
        linked[pair] = 1.0
    known = _Known(histograms, tables, with_labels)
    order, parents, shares = list[int](), list[tuple[int, ...]]([()] * columns), list(histograms)
    for root in range(columns - 1, -1, -1):  # the label first
        if root not in order:
            found, before = breadth_first_order(csr_array(linked), root, directed=False)
            order += [int(column) for column in found]
            for column in map(int, found):
                parents[column], shares[column] = known.given(column, int(before[column]), label)
    return Tree(tuple(order), tuple(parents), tuple(shares))


class _Known(NamedTuple):
    """All tables without noise, by the columns that they are of."""

    histograms: Sequence[Floats]
    pairs: Mapping[Pair, Floats]
    with_label: Mapping[Pair, Floats]

    def given(self, column: int, parent: int, label: int) -> tuple[tuple[int, ...], Floats]:
        """The parents of a column and how probable its groups are given theirs; `parent` is below 0 for a root."""
        ways = [((parent, column), False), ((column, parent), True)]
        for of, turned in ways:
            if of in self.with_label:
                table = self.with_label[of].swapaxes(0, 1) if turned else self.with_label[of]
                return (parent, label), self._shares(column, table.swapaxes(1, 2))
        for of, turned in ways:
            if of in self.pairs:
                return (parent,), self._shares(column, self.pairs[of].T if turned else self.pairs[of])
        for of, table in self.with_label.items():
            if column in of:
                return (label,), self._shares(column, table.sum(axis=1 - of.index(column)).T)
        return (), self._shares(column, self.histograms[column])

    def _shares(self, column: int, table: Floats) -> Floats:
        """Shares along the last axis; where nobody is, those of the histogram."""
        held = table.sum(axis=-1, keepdims=True)
        own = self.histograms[column] / max(self.histograms[column].sum(), 1e-12)
        return np.asarray(np.where(held > 0, table / np.where(held > 0, held, 1.0), own))


def choose_links(histograms: Sequence[Floats], pairs: Mapping[Pair, Floats], sigma: float) -> list[Pair]:
    """The pairs that a tree is made of, by a first look at all of them."""
    tables = {pair: denoised(noisy, histograms, pair, sigma) for pair, noisy in pairs.items()}
    return sorted(links(len(histograms), tables))


def links(columns: int, tables: Mapping[Pair, Floats]) -> list[Pair]:
    """The spanning tree of the pairs that tell most; pairs that tell nothing are never in it."""
    weights = np.zeros((columns, columns))
    for pair, table in tables.items():
        weights[pair] = -information(table)  # the solver knows minimal trees, and takes 0 for no edge
    spanning = minimum_spanning_tree(csr_array(weights)).tocoo()
    return [(int(a), int(b)) for a, b in zip(spanning.row, spanning.col, strict=True)]


def denoised(noisy: Floats, histograms: Sequence[Floats], pair: Pair, sigma: float) -> Floats:
    """A table of pairs without what noise alone explains, that fits the two histograms."""
    first, second = histograms[pair[0]], histograms[pair[1]]
    rows = float(first.sum())
    independent = np.outer(first, second) / rows
    differs = noisy - independent
    energy = float((differs**2).sum())
    kept = max(0.0, 1 - noisy.size * sigma**2 / energy) if energy else 0.0
    if not kept:
        return np.asarray(independent)
    return _fitted(on_simplex(independent + differs * kept, rows) + _NEVER_NOTHING * independent, (first, second))


def with_label(noisy: Floats, histograms: Sequence[Floats], pair: Pair, sigma: float) -> Floats:
    """A table of two columns and the label, without what noise alone explains beyond its three pairs."""
    own = [histograms[pair[0]], histograms[pair[1]], histograms[-1]]
    rows, axes = float(own[0].sum()), ((0, 1), (0, 2), (1, 2))
    pairs = []
    for first, second in axes:
        left = 3 - first - second
        noise = sigma * float(np.sqrt(noisy.shape[left]))
        pairs.append((left, denoised(noisy.sum(axis=left), own, (first, second), noise)))
    table = np.full(noisy.shape, rows / noisy.size)
    for _ in range(_FITTING_STEPS):
        for left, wanted in pairs:
            table = table * np.expand_dims(_ratio(wanted, table.sum(axis=left)), left)
    differs = noisy - table
    energy = float((differs**2).sum())
    kept = max(0.0, 1 - noisy.size * sigma**2 / energy) if energy else 0.0
    if not kept:
        return np.asarray(table)
    return _fitted(on_simplex(table + differs * kept, rows) + _NEVER_NOTHING * table, own)


def _fitted(table: Floats, histograms: Sequence[Floats]) -> Floats:
    """The table, scaled so that it adds up to each of its histograms."""
    for _ in range(_FITTING_STEPS):
        for axis, wanted in enumerate(histograms):
            others = tuple(other for other in range(table.ndim) if other != axis)
            shape = [-1 if other == axis else 1 for other in range(table.ndim)]
            table = table * _ratio(wanted, table.sum(axis=others)).reshape(shape)
    return np.asarray(table)


def _ratio(wanted: Floats, found: Floats) -> Floats:
    return np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)


def information(table: Floats) -> float:
    """The mutual information of a table of counts."""
    shares = table / max(table.sum(), 1e-12)
    independent = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
    there = (shares > 0) & (independent > 0)
    told = float((shares[there] * np.log(shares[there] / independent[there])).sum())
    return told if told > _ROUNDING else 0.0
