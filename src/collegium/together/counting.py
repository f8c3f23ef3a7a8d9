"""At a site: how many of its rows lie in which cells, one marginal after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.releases import Counts
from collegium.errors import ConfigError
from collegium.together.columns import template_of
from collegium.together.grids import NOWHERE, Grid
from collegium.together.planning import MOST_CELLS

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite

Shape = tuple[int, ...]


def shapes(groups: Sequence[Any], marginals: Sequence[Sequence[int]]) -> list[Shape]:
    """The shape of every marginal's table."""
    return [tuple(int(max(groups[column])) + 1 for column in columns) for columns in marginals]


def split(counts: NDArray[np.float64], shapes: Sequence[Shape]) -> list[NDArray[np.float64]]:
    """One table per marginal, from all counts in a row."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(counts, ends[:-1]), shapes, strict=True)]


def count(
    site: ActiveSite, grids: list[Any], groups: list[Any], marginals: list[Any], cells: int, *, noted: bool = False
) -> Counts:
    """The site's own counts. A row that is in no cell of a column is not counted with that column.

    What is not as declared is `noted` in one sum: the others count the same rows.
    """
    columns = [Grid.from_plain(plain) for plain in grids]
    groups = [np.asarray(each, dtype=np.int64) for each in groups]
    _check(columns, groups, marginals, cells, site.n_classes)
    rows = site.data.opened()
    codes, outside = grouped(frame_of(rows.X), rows.codes, columns, groups)
    if noted:
        _note(site, columns, outside)
    tables = [
        table([codes[column] for column in columns], shape)
        for columns, shape in zip(marginals, shapes(groups, marginals), strict=True)
    ]
    return Counts(np.concatenate(tables).astype(np.int64))


def table(codes: Sequence[NDArray[np.int64]], shape: Shape) -> NDArray[np.intp]:
    there = np.logical_and.reduce([each != NOWHERE for each in codes])
    flat = np.ravel_multi_index([each[there] for each in codes], shape)
    return np.bincount(flat, minlength=math.prod(shape))


def grouped(
    frame: pd.DataFrame, codes: NDArray[Any], columns: Sequence[Grid], groups: Sequence[NDArray[np.int64]]
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """The group of every value, column by column, and how many values of each column are outside of all cells."""
    found = [
        grid.codes(frame[name])
        for grid, name in zip(columns, named(frame, [grid.name for grid in columns]), strict=True)
    ]
    coded = [each for each, _ in found]
    # the label is the last column where it is counted at all
    coded += [np.asarray(codes, dtype=np.int64)] if len(groups) > len(columns) else []
    found_groups = [np.where(each == NOWHERE, NOWHERE, group[each]) for each, group in zip(coded, groups, strict=True)]
    return found_groups, [outside for _, outside in found]


def _note(site: ActiveSite, columns: Sequence[Grid], outside: Sequence[int]) -> None:
    """Tell the site, and nobody else, what was not as declared."""
    for grid, many in zip(columns, outside, strict=True):
        if many and grid.kind == "category":
            site.log(f"Column {grid.name!r}: {many} values are none of the declared categories; they are not counted.")
        elif many:
            ends = f"{grid.edges[0]:g} .. {grid.edges[-1]:g}"
            site.log(f"Column {grid.name!r}: {many} values are outside {ends}; they count as its ends.")


def frame_of(X: Any) -> pd.DataFrame:
    """A site's rows as a table; what is none is an error."""
    template_of(X, "X")
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)


def named(frame: pd.DataFrame, names: Sequence[Any]) -> list[Any]:
    """The columns of a table that an order names; an array's have numbers, which it writes as text."""
    known = {str(name): name for name in frame.columns}
    for name in names:
        if str(name) not in known:
            raise ConfigError(f"There is no column {name!r} here.")
    return [known[str(name)] for name in names]


def _check(columns: Sequence[Grid], groups: Sequence[Any], marginals: Sequence[Any], cells: int, classes: int) -> None:
    sizes = [grid.cells for grid in columns] + ([classes] if len(groups) == len(columns) + 1 else [])
    if [len(group) for group in groups] != sizes or any(group.min() < 0 for group in groups):
        raise ConfigError("An order's groups do not fit its columns.")
    tables = shapes(groups, marginals)
    if cells != sum(math.prod(shape) for shape in tables) or cells > 2 * MOST_CELLS:
        raise ConfigError("An order asks for another number of counts than its marginals have, or for too many.")
