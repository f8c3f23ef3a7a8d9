"""More edges than a tree, chosen by what the model gets wrong, and a graphical model of all counts by the package mbi.

McKenna, Mullins, Sheldon, Miklau: "AIM: An adaptive and iterative mechanism for differentially private synthetic data",
VLDB 2022, and Maddock, Cormode, Maple: FLAIM, KDD 2024: select what the model errs in most, measure it, estimate anew.
The workload is all pairs of columns, and pairs with the label count twice. Where AIM selects by a mechanism of its own,
the first look at all pairs, which is noisy and paid for, says how far the model is off; so a round of selection costs
nothing, and each round of measurements one sum. mbi (Apache-2.0, extra `together`) is the estimator: McKenna, Sheldon,
Miklau: "Graphical-model based estimation and inference for differential privacy", ICML 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.together import making
from collegium.together.drawing import Drawn, Looked, in_cells
from collegium.together.estimating import domain_of, draw_from, estimate, require_mbi
from collegium.together.planning import Floats, Groups, Measured
from collegium.together.tree import Pair

ROUNDS: Final = 2
"""Of measurements: the tree, and what a model of it gets wrong."""
_MOST_MEGABYTES: Final = 0.5
_SEEN: Final = 100_000
"""Rows drawn from a model to see what it gets wrong: so many that their own scatter is far below any noise."""
_OF_LABEL: Final = 2.0
_MEAN_NOISE: Final = math.sqrt(2 / math.pi)


def adaptively(looked: Looked, rows: int, rng: np.random.Generator) -> Drawn:
    """Made-up rows, as numbers of cells, from a model that grows where it errs."""
    mbi = require_mbi()
    chosen: list[tuple[int, ...]] = [*looked.tree()] or [each.columns for each in looked.histograms]
    groups = looked.finer(chosen)
    domain = domain_of(groups)
    known, measured = set[tuple[int, ...]](), list[Measured]()
    model: Any = None
    for turn in range(ROUNDS):
        measured += looked.again(groups, chosen) if chosen else []
        known |= set(chosen)
        with looked.timed():
            counts = making.estimates(looked.histograms, measured, groups)
            model = estimate(domain, making.by_group(counts, groups), measured, model)
            last = turn == ROUNDS - 1
            drawn = draw_from(model, len(groups), rows if last else _SEEN, rng)
            if not last:
                errors = pair_errors(looked, groups, counts, _tables(drawn, groups, float(counts[0].sum())))
                chosen = worst(errors, known, len(groups), _room(mbi, domain, known))
    return Drawn(in_cells(drawn, groups, counts, rng))


def _tables(drawn: NDArray[np.int64], groups: Sequence[Groups], total: float) -> Callable[[Pair], Floats]:
    """A model's pairs, as rows drawn from it have them: to compute each would take JAX a program of its own."""
    sizes = [int(group.max()) + 1 for group in groups]

    def table(pair: Pair) -> Floats:
        cells = np.ravel_multi_index(drawn[:, list(pair)].T, (sizes[pair[0]], sizes[pair[1]]))
        found = np.bincount(cells, minlength=sizes[pair[0]] * sizes[pair[1]])
        return np.asarray(found * (total / len(drawn)))

    return table


def pair_errors(
    looked: Looked, groups: Sequence[Groups], counts: Sequence[Floats], modelled: Callable[[Pair], Floats]
) -> dict[Pair, float]:
    """By how many rows a model is off in each pair of the first look, beyond what noise explains; labels count twice.

    `modelled` gives a pair's table in `groups`, which need not be those of the first look: rows of a group are taken to
    be spread over its cells as the histograms say.
    """
    spread = [_spread(group, look, own) for group, look, own in zip(groups, looked.look.groups, counts, strict=True)]
    found = {}
    for first, second, noisy, noise in ((*each.columns, each.counts, each.noise) for each in _two(looked.pairs)):
        table = modelled((first, second)).reshape(spread[first].shape[1], spread[second].shape[1])
        off = np.abs(noisy - spread[first] @ table @ spread[second].T).sum() - _MEAN_NOISE * noise * noisy.size
        found[first, second] = float(off) * (_OF_LABEL if second == len(groups) - 1 else 1.0)
    return found


def _two(pairs: Sequence[Measured]) -> Iterator[Any]:
    return (each for each in pairs if len(each.columns) == 2)


def _spread(group: Groups, look: Groups, own: Floats) -> Floats:
    """Which share of a group's rows is in which group of the first look."""
    cells = np.zeros((int(look.max()) + 1, int(group.max()) + 1))
    np.add.at(cells, (look, group), own + 1e-12)
    return np.asarray(cells / cells.sum(axis=0))


def worst(
    errors: Mapping[Pair, float], known: set[tuple[int, ...]], most: int, fits: Callable[[Pair], bool]
) -> list[tuple[int, ...]]:
    """The pairs to count next: those with the largest errors that are not known yet, and no more than so many."""
    chosen: list[tuple[int, ...]] = []
    for pair in sorted(errors, key=lambda each: (-errors[each], each)):
        if len(chosen) >= most or errors[pair] <= 0:
            break
        if pair not in known and fits(pair):
            chosen.append(pair)
    return sorted(chosen)


def _room(mbi: Any, domain: Any, known: set[tuple[int, ...]]) -> Callable[[Pair], bool]:
    """Whether a model stays small with one more pair; what fits is taken."""
    taken = [*known]

    def fits(pair: Pair) -> bool:
        small = mbi.junction_tree.hypothetical_model_size(domain, [*taken, pair]) <= _MOST_MEGABYTES
        if small:
            taken.append(pair)
        return bool(small)

    return fits
