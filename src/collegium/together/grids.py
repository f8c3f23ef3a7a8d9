"""Cells to count in: a column's values become numbers of cells at the sites, and values again in made-up rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.together.columns import MOST_BINS, Column, plain
from collegium.together.values import numbers_in, text_of

OCTAVES: Final = tuple(2.0**power for power in range(-10, 31))
"""Where a range is not declared, it is found among powers of two."""
_USUAL_BINS: Final = 32
_TRUTH_AS: Final = {"1": "true", "0": "false", "true": "1", "false": "0"}
NOWHERE: Final = -1
"""A value that is in no cell: it is not counted."""


@dataclass(frozen=True)
class Grid:
    """The cells of one column: its categories, or intervals between edges; a cell for 0 alone; one for missing values.

    Zero has a cell of its own where it lies inside the range: many columns are 0 for most rows.
    """

    name: str | int
    kind: str
    categories: tuple[Any, ...] = ()
    edges: tuple[float, ...] = ()
    zero: bool = False
    missing: bool = False

    @property
    def cells(self) -> int:
        """How many cells there are."""
        own = len(self.categories) if self.kind == "category" else len(self.edges) - 1
        return own + self.zero + self.missing

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for an order."""
        return {
            "name": self.name, "kind": self.kind, "categories": list(self.categories), "edges": list(self.edges),
            "zero": self.zero, "missing": self.missing,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, said: Mapping[str, Any]) -> Grid:
        """From an order; what is not a grid is an error."""
        try:
            grid = cls(**{**said, "categories": tuple(said["categories"]), "edges": tuple(map(float, said["edges"]))})
        except (TypeError, KeyError, ValueError):
            raise ConfigError("An order names columns that are no grids.") from None
        if grid.kind != "category" and (len(grid.edges) < 2 or not (np.diff(grid.edges) > 0).all()):
            raise ConfigError("An order names a grid whose edges do not increase.")
        return grid

    def codes(self, values: pd.Series[Any]) -> tuple[NDArray[np.int64], int]:
        """The cell of every value, and how many values were outside of all cells."""
        absent = values.isna().to_numpy()
        found = self._categories_at(values) if self.kind == "category" else None
        outside = 0
        if found is None:
            found, outside, absent = self._intervals_at(values, absent)
        else:
            outside = int((found[~absent] == NOWHERE).sum())
        found[absent] = self.cells - 1 if self.missing else NOWHERE
        return found, outside

    def _categories_at(self, values: pd.Series[Any]) -> NDArray[np.int64]:
        numbers = {text_of(value, self.name): number for number, value in enumerate(self.categories)}
        # A truth value is 1 or 0 where only these are declared, and the other way round.
        numbers = {other: numbers[text] for text, other in _TRUTH_AS.items() if text in numbers} | numbers
        known: dict[tuple[type, Any], int] = {}  # with its type: 1 and True are equal, and not the same value
        cells = np.full(len(values), NOWHERE, dtype=np.int64)
        for place, value in enumerate(map(plain, values.tolist())):
            if not isinstance(value, str | int | float):
                continue
            key = type(value), value
            if key not in known:
                known[key] = numbers.get(text_of(value, self.name), NOWHERE)
            cells[place] = known[key]
        return cells

    def _intervals_at(
        self, values: pd.Series[Any], absent: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], int, NDArray[np.bool_]]:
        numbers = numbers_in(values)
        absent = absent | np.isnan(numbers)
        low, high = self.edges[0], self.edges[-1]
        outside = int(((numbers < low) | (numbers > high)).sum())
        last = len(self.edges) - 2
        cells = np.clip(np.searchsorted(self.edges, numbers, side="right") - 1, 0, last)
        found = np.where(self.zero & (numbers == 0), last + 1, cells).astype(np.int64)
        return found, outside, absent

    def values(self, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        """A value for every cell: a category, or a number anywhere in the interval; None where it is missing."""
        if self.kind == "category":
            drawn = np.array([*self.categories, None], dtype=object)
            return drawn[np.where(codes < len(self.categories), codes, len(self.categories))]
        edges, last = np.asarray(self.edges), len(self.edges) - 2
        cell = np.minimum(codes, last)
        low, high = edges[cell], edges[cell + 1]
        if self.kind == "integer":
            first, beyond = np.ceil(low), np.where(cell == last, np.floor(high) + 1, np.ceil(high))
            drawn = first + np.floor(rng.random(len(codes)) * np.maximum(beyond - first, 1))
        else:
            drawn = low + rng.random(len(codes)) * (high - low)
        drawn = np.where(codes == last + 1, 0.0, drawn) if self.zero else drawn
        return np.where(codes > last + self.zero, np.nan, drawn)


def search_grid(column: Column) -> Grid:
    """The cells in which a range is looked for."""
    edges = (*(-edge for edge in reversed(OCTAVES)), *OCTAVES)
    return Grid(column.name, "real", edges=edges, zero=True, missing=True)


def grid_of(column: Column, octaves: tuple[float, ...] = ()) -> Grid:
    """The cells in which a column with a known range is counted; `octaves` are powers of two to keep apart in it."""
    missing = column.missing is not False
    if column.kind == "category":
        return Grid(column.name, "category", categories=column.categories or (), missing=missing)
    if column.low is None or column.high is None:
        raise ConfigError(f"Column {column.name!r}: its range is not known.")
    if isinstance(column.bins, tuple):
        edges = np.asarray(column.bins)
    elif column.kind == "integer" and column.bins is None and column.high - column.low < MOST_BINS:
        edges = np.arange(math.floor(column.low), math.ceil(column.high) + 2) - 0.5
    else:
        edges = np.linspace(column.low, column.high, (column.bins or _USUAL_BINS) + 1)
        edges = np.unique([*edges, *(edge for edge in octaves if column.low < edge < column.high)])
    zero = column.low <= 0 <= column.high and not (column.kind == "integer" and len(edges) > column.high - column.low)
    return Grid(column.name, column.kind, edges=tuple(map(float, edges)), zero=zero, missing=missing)
