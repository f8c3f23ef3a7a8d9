"""From what was counted first to rows: which pairs are counted again, and the tree that is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.together import making
from collegium.together.estimating import domain_of, draw_from, estimate, require_mbi
from collegium.together.planning import MOST_CELLS, Floats, Groups, Measured, Noise, Workload, groups_for
from collegium.together.tree import Pair, choose_links, fit_tree

_FEWEST: Final = 3
"""With fewer groups of cells, or less than half of those without it, the label in a table costs more than it tells."""
Count = Callable[[Sequence[Groups], Sequence[tuple[int, ...]]], list[Measured]]
"""Asks all sites for noisy counts of some columns together, in groups of their cells."""


@dataclass(frozen=True)
class Looked:
    """What is known after a first look at all columns, and how to count again."""

    histograms: Sequence[Measured]
    look: Workload
    pairs: Sequence[Measured]
    ordered: Sequence[bool]
    noise_of: Noise
    """The noise of a cell where so many pairs are counted again."""
    again: Count
    cells: int = MOST_CELLS
    """How many cells there may be in a sum."""
    timed: Callable[[], AbstractContextManager[None]] = nullcontext
    """Measures the time that the model takes."""

    @property
    def counts(self) -> list[Floats]:
        """Every histogram, by all counts so far."""
        return making.estimates(self.histograms, self.pairs, self.look.groups)

    def tree(self) -> list[Pair]:
        """The pairs that a tree is made of."""
        known = making.by_group(self.counts, self.look.groups)
        return choose_links(known, making.pairs_of(self.pairs), self.pairs[0].noise)

    def finer(self, chosen: Sequence[tuple[int, ...]]) -> Sequence[Groups]:
        """Groups of cells for counting these pairs again."""
        return groups_for(self.counts, self.ordered, chosen, self.noise_of, cells=self.cells) or self.look.groups


class Drawn(NamedTuple):
    """Made-up rows, as numbers of cells or of groups of them."""

    numbers: NDArray[np.int64]
    opinion: Floats | None = None
    """How probable each label is for each row, where the model says so without more ado."""


Draw = Callable[[Sequence[Floats], Sequence[Measured], Sequence[Groups], int, np.random.Generator], Drawn]
"""Rows, as numbers of groups, from histograms and the tables of a tree."""


def by_tree(looked: Looked, rows: int, rng: np.random.Generator) -> Drawn:
    """Made-up rows, as numbers of cells, along a tree whose pairs are counted once more, with the label if they can."""
    return _once_more(looked, rows, rng, _in_closed_form)


def by_fitted_tree(looked: Looked, rows: int, rng: np.random.Generator) -> Drawn:
    """The same counts, with mbi as the estimator."""
    require_mbi()
    return _once_more(looked, rows, rng, _by_mbi)


def _once_more(looked: Looked, rows: int, rng: np.random.Generator, draw: Draw) -> Drawn:
    chosen, groups = _counted_again(looked)
    counted = looked.again(groups, chosen)
    with looked.timed():
        counts = making.estimates(looked.histograms, counted, groups)
        drawn = draw(making.by_group(counts, groups), counted, groups, rows, rng)
        opinion = None if drawn.opinion is None else _of_each(drawn.opinion, groups[-1], counts[-1])
        return Drawn(in_cells(drawn.numbers, groups, counts, rng), opinion)


def _of_each(opinion: Floats, group: Groups, counts: Floats) -> Floats:
    """How probable each label is where rare ones were counted as one: each has its share of what they have together."""
    held = np.bincount(group, weights=counts)[group]
    alike = 1 / np.bincount(group)[group]
    return np.asarray(opinion[:, group] * np.where(held > 0, counts / np.where(held > 0, held, 1.0), alike))


def _in_closed_form(
    histograms: Sequence[Floats], counted: Sequence[Measured], groups: Sequence[Groups], rows: int,
    rng: np.random.Generator,
) -> Drawn:  # fmt: skip
    tables = {each.columns: each.counts for each in counted if len(each.columns) > 1}
    tree = fit_tree(histograms, tables, counted[0].noise)
    drawn = tree.draw(rows, rng)
    return Drawn(drawn, tree.opinion(drawn))


def _by_mbi(
    histograms: Sequence[Floats], counted: Sequence[Measured], groups: Sequence[Groups], rows: int,
    rng: np.random.Generator,
) -> Drawn:  # fmt: skip
    return Drawn(draw_from(estimate(domain_of(groups), histograms, counted), len(groups), rows, rng))


def _counted_again(looked: Looked) -> tuple[Sequence[tuple[int, ...]], Sequence[Groups]]:
    """What is counted again, and in which groups of cells: with the label, unless that makes them too coarse."""
    tree, label = looked.tree(), len(looked.histograms) - 1
    # where nothing belongs together, histograms are what is left
    chosen: Sequence[tuple[int, ...]] = tree or [each.columns for each in looked.histograms]
    groups = looked.finer(chosen)
    with_label = [pair if label in pair else (*pair, label) for pair in tree]
    coarser = (
        groups_for(looked.counts, looked.ordered, with_label, looked.noise_of, fewest=_FEWEST, cells=looked.cells)
        if tree
        else None
    )
    if coarser is not None and 2 * _finest(coarser) >= _finest(groups):
        return with_label, coarser
    return chosen, groups


def _finest(groups: Sequence[Groups]) -> int:
    return max(int(group.max()) + 1 for group in groups)


def in_cells(
    drawn: NDArray[np.int64], groups: Sequence[Groups], counts: Sequence[Floats], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cells of drawn groups, column by column."""
    columns = zip(drawn.T, groups, counts, strict=True)
    return np.stack([making.cells_of(*column, rng) for column in columns], axis=1)
