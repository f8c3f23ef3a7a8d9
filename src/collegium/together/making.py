"""At the coordinator: from noisy sums to rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError, DoubtfulResult
from collegium.secure.secret_counts import NoisySum
from collegium.together import naming
from collegium.together.columns import MOST_CATEGORIES, Column, widened
from collegium.together.grids import Grid, grid_of, search_grid
from collegium.together.planning import Floats, Groups, Measured, expected, number_of_rows
from collegium.together.values import as_text, number_of, text_of, truth_of, value_of

_SURE: Final = 4.0
"""By how many standard deviations of noise rows must stand out for a range to be beyond doubt."""
_LOST: Final = 3.0
"""With less than this there is no telling where values are."""
_BESIDE: Final = 2.0
"""Next to a range, counts of so much noise belong to it."""
_WIDEST: Final = 6
_NEAR_ZERO: Final = 8
"""A range whose ends are so many times apart begins at 0."""


def with_ranges(
    columns: Sequence[Column], counts: Mapping[str | int, Measured]
) -> tuple[tuple[Column, ...], dict[str | int, tuple[float, ...]]]:
    """Columns with the ranges that counts by powers of two show, and for each the powers of two where values are."""
    found, octaves, sure = [], {}, {}
    for column in columns:
        if column.name not in counts:
            found.append(column)
            continue
        _, seen, noise = counts[column.name]
        edges = search_grid(column).edges
        ends, sure[column.name] = _ends(seen[: len(edges) - 1], noise, edges)
        zero = float(seen[-2]) / noise
        if zero > max(_SURE, sure[column.name]):  # most values are 0, and others may not be seen at all
            ends = sorted({0.0, *(ends if sure[column.name] > _LOST else (1.0,))})
            sure[column.name] = zero
        ends = sorted({0.0, *ends}) if zero > _SURE else ends
        found.append(widened(column, ends[0], ends[-1]))
        octaves[column.name] = tuple(ends[1:-1])
    _require_ranges(sure, max(each.noise for each in counts.values()))
    return tuple(found), octaves


def with_names(
    columns: Sequence[Column], sought: Sequence[str | int], found: Sequence[naming.Value], key: str, total: NoisySum
) -> tuple[Column, ...]:
    """Columns with the categories that were found for them, the most frequent first.

    One for which none was found has nothing but missing values.
    """
    ordered = sorted(found, key=lambda value: (-naming.standing(value, sought, key, total.counts), value[1]))
    texts = {name: [text for number, text in ordered if sought[number] == name] for name in sought}
    _require_names(texts, total.noise)
    named = []
    for column in columns:
        own = texts.get(column.name, [])
        read = [value_of(text) for text in own]
        known = tuple(value for value in read if value is not None)[:MOST_CATEGORIES]
        missing = naming.NOTHING in own or not known if column.missing is None else column.missing
        named.append(replace(column, categories=known, missing=missing) if column.seeks_names else column)
    return tuple(named)


def _require_names(texts: Mapping[str | int, Sequence[str]], noise: float) -> None:
    """An error where most columns have no category that is known, and a warning where some have none."""
    lost = [repr(name) for name, known in texts.items() if not known]
    words = f"No value of {', '.join(lost)} stands out: every count has noise of +-{noise:,.0f} rows."
    if 2 * len(lost) > len(texts):
        raise ConfigError(f"{words} Declare them, as in columns={{{lost[0]}: ['first', 'second']}}, or spend more.")
    if lost:
        words += " Made-up rows have nothing there: declare its categories in columns."
        warnings.warn(words, DoubtfulResult, stacklevel=2)


def _require_ranges(sure: Mapping[str | int, float], noise: float) -> None:
    """An error where most ranges are guesses, and a warning where some are."""
    lost = [repr(name) for name, standing in sure.items() if standing < _LOST]
    if 2 * len(lost) > len(sure):
        raise ConfigError(
            f"The ranges of {len(lost)} columns could not be found ({', '.join(lost)}): every count has noise of "
            f"+-{noise:,.0f} rows, and no more than that was seen. Declare them, as in "
            f"columns={{{lost[0]}: (0, 100)}}, or spend more."
        )
    doubtful = [repr(name) for name, standing in sure.items() if standing < _SURE]
    if doubtful:
        words = f"Noise makes the ranges that were found for {', '.join(doubtful)} doubtful: declare them in columns."
        warnings.warn(words, DoubtfulResult, stacklevel=2)


def _ends(counts: Floats, noise: float, edges: Sequence[float]) -> tuple[list[float], float]:
    """The powers of two between which values lie: the neighbours that stand out most, and what lies beside them.

    Also by how many standard deviations they stand out.
    """
    best, first, last = -math.inf, 0, 0
    for width in range(1, _WIDEST + 1):
        standing = np.convolve(counts, np.ones(width), "valid") / (noise * math.sqrt(width))
        if standing.max() > best:
            best, first, last = float(standing.max()), int(standing.argmax()), int(standing.argmax()) + width - 1
    there = np.flatnonzero(counts > _SURE * noise)  # apart from the others, and beyond doubt
    first, last = min([first, *there.tolist()]), max([last, *there.tolist()])
    while first > 0 and counts[first - 1] > _BESIDE * noise:
        first -= 1
    while last + 1 < len(counts) and counts[last + 1] > _BESIDE * noise:
        last += 1
    between = [float(edge) for edge in edges[first : last + 2]]
    if 0 < between[0] <= between[-1] / _NEAR_ZERO:
        between.insert(0, 0.0)
    return between, best


def warn_of_noise(histograms: Sequence[Measured], marginals: Sequence[tuple[int, ...]]) -> None:
    """Say so where noise leaves nothing to be seen of what belongs together: how many rows there are is known now."""
    if all(len(columns) == 1 for columns in marginals):
        rows, noise = number_of_rows([each.counts for each in histograms]), histograms[0].noise
        warnings.warn(
            f"Every count has noise of +-{noise:,.0f} rows, and there are about {rows:,.0f}: no pair of columns can be "
            "counted, so every column of the made-up rows is drawn on its own. Spend more, or have more sites.",
            DoubtfulResult,
            stacklevel=2,
        )


def settled(
    columns: Sequence[Column], grids: Sequence[Grid], counts: Sequence[Measured]
) -> tuple[tuple[Grid, ...], list[Measured]]:
    """Grids and their histograms, with a cell for missing values only where it was declared or stands out."""
    kept, seen = list(grids), list(counts)
    for number, (column, grid, own) in enumerate(zip(columns, grids, counts[: len(grids)], strict=True)):
        if column.missing is None and grid.missing and grid.cells > 1 and own.counts[-1] < _SURE * own.noise:
            kept[number] = replace(grid, missing=False)
            seen[number] = own._replace(counts=own.counts[:-1])
    return tuple(kept), seen


def estimates(histograms: Sequence[Measured], tables: Sequence[Measured], groups: Sequence[Groups]) -> list[Floats]:
    """Every histogram, by its own counts and by the sums over all tables that the column is in."""
    total = number_of_rows([each.counts for each in histograms])
    found = []
    for column, (group, own) in enumerate(zip(groups, histograms, strict=True)):
        sizes = np.bincount(group)
        weight = 1 / (sizes * own.noise**2)
        mean = np.bincount(group, weights=own.counts) * weight
        for columns, counts, noise in tables:
            if column in columns:
                axis = columns.index(column)
                precision = counts.shape[axis] / (counts.size * noise**2)
                mean += precision * counts.sum(axis=tuple(other for other in range(counts.ndim) if other != axis))
                weight += precision
        coarse, fine = expected(mean / weight, weight**-0.5, total), expected(own.counts, own.noise, total)
        held = np.bincount(group, weights=fine)[group]
        within = np.where(held > 0, fine / np.where(held > 0, held, 1.0), 1 / sizes[group])
        found.append(within * coarse[group])
    return found


def by_group(histograms: Sequence[Floats], groups: Sequence[Groups]) -> list[Floats]:
    """Histograms of groups of cells."""
    return [np.bincount(group, weights=each).astype(np.float64) for group, each in zip(groups, histograms, strict=True)]


def pairs_of(tables: Sequence[Measured]) -> dict[tuple[int, int], Floats]:
    """The tables of two columns."""
    return {(each.columns[0], each.columns[1]): each.counts for each in tables if len(each.columns) == 2}


def cells_of(drawn: NDArray[np.int64], group: Groups, single: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """A cell of each drawn group, by the histogram."""
    cells = np.zeros(len(drawn), dtype=np.int64)
    for number in np.unique(drawn):
        members = np.flatnonzero(group == number)
        shares = single[members] + 1e-12
        chosen = drawn == number
        cells[chosen] = rng.choice(members, size=int(chosen.sum()), p=shares / shares.sum())
    return cells


def table(columns: Sequence[Column], grids: Sequence[Grid], made: Sequence[NDArray[Any]]) -> pd.DataFrame:
    """The rows as a table: text for categories, whole numbers where nothing is missing."""
    frame = {}
    for column, grid, values in zip(columns, grids, made, strict=True):
        whole = column.kind == "integer" and not grid.missing
        frame[column.name] = pd.Series(values).infer_objects() if column.kind == "category" else values
        if whole:
            frame[column.name] = np.asarray(values).astype(np.int64)
    return pd.DataFrame(frame)


def stand_ins(columns: Sequence[Column], rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Any rows of these columns, for rehearsals: nothing was counted for them."""
    known = [_any_of(column) for column in columns]
    grids = [grid_of(column) for column in known]
    return table(known, grids, [grid.values(rng.integers(0, grid.cells, rows), rng) for grid in grids])


def _any_of(column: Column) -> Column:
    if column.seeks_names:
        return replace(column, categories=("any",), missing=False)
    known = widened(column, 0.0, 1.0) if column.seeks_range else column
    return replace(known, missing=bool(known.missing))


def like(made: pd.DataFrame, template: Any) -> Any:
    """The made-up rows as a table of the same type as the sites' own."""
    if isinstance(template, np.ndarray):
        if template.dtype == object:
            return pd.DataFrame({name: _typed(made[name], own) for name, own in _columns(made, template)}).to_numpy()
        typed = pd.DataFrame({name: _typed(made[name], pd.Series(dtype=template.dtype)) for name in made})
        fits = template.dtype.kind not in "biuf" or (typed.dtypes == template.dtype).all()
        return typed.to_numpy(dtype=template.dtype) if fits else typed.to_numpy()  # other sites have gaps, or texts
    named = made.set_axis(template.columns, axis=1)
    return pd.DataFrame({name: _typed(named[name], template[name]) for name in template})


def warn_of_spelling(made: Any, template: Any) -> None:
    """A warning where made-up values are the sites' own, and yet spelled otherwise: 1 for 01, True for true."""
    if not isinstance(made, pd.DataFrame) or not isinstance(template, pd.DataFrame):
        return
    otherwise = []
    for name in made:
        if not _holds_text(template[name]):
            continue
        ours, theirs = (set(map(as_text, each[name].dropna())) for each in (made, template))
        read = {text_of(value, str(name)) for value in theirs}
        if any(value not in theirs and text_of(value, str(name)) in read for value in ours):
            otherwise.append(repr(name))
    if otherwise:
        warnings.warn(
            f"Made-up values of {', '.join(otherwise)} read as those of the sites and are spelled otherwise, as 1 for "
            "01 or True for true: sites may not know them. Declare the categories of these columns as they are there.",
            DoubtfulResult,
            stacklevel=3,
        )


def _columns(made: pd.DataFrame, template: NDArray[Any]) -> list[tuple[Any, pd.Series[Any]]]:
    return [(name, pd.Series(template[:, place], dtype=object)) for place, name in enumerate(made)]


def _holds_text(column: pd.Series[Any]) -> bool:
    return isinstance(column.dtype, pd.StringDtype) or (
        column.dtype == object and any(isinstance(value, str) for value in column)
    )


def _typed(values: pd.Series[Any], own: pd.Series[Any]) -> pd.Series[Any]:
    """Made-up values of a column as those of a site's own column, where they can be."""
    dtype: Any = own.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        spelled = {as_text(each): each for each in dtype.categories.tolist()}
        return values.map(lambda value: spelled.get(as_text(value)), na_action="ignore").astype(dtype)
    if _holds_text(own):
        return values.astype(object).map(as_text, na_action="ignore").astype(dtype)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        return values.astype(dtype)
    read = values if values.dtype.kind in "iuf" else values.map(truth_of if dtype.kind == "b" else number_of)
    if (read.isna() & values.notna()).any() or (dtype.kind == "b" and not read.dropna().isin([0, 1]).all()):
        return values  # other sites have texts here, or other numbers
    if dtype.kind == "b":
        return read.astype(object if read.isna().any() else dtype)
    if dtype.kind == "f" or read.isna().any() or (read % 1 != 0).any():  # other sites have gaps, or fractions
        return read.astype(dtype if dtype.kind == "f" else np.float64)
    return read.clip(np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)  # a range that was found may be wider
