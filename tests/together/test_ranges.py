from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from collegium.errors import ConfigError, DoubtfulResult
from collegium.together.columns import Column
from collegium.together.grids import grid_of, search_grid
from collegium.together.making import settled, with_ranges
from collegium.together.planning import Measured


def counted(kind: str, values: list[float], noise: float = 1.0, times: int = 100) -> tuple[Column, Measured]:
    """A column, and the cells of so many rows with each of these values."""
    column = Column("x", kind)  # type: ignore[arg-type]
    grid = search_grid(column)
    codes, _ = grid.codes(pd.Series(np.repeat(values, times)))
    return column, Measured((0,), np.bincount(codes, minlength=grid.cells).astype(float), noise)


def ends(kind: str, values: list[float], **settings: float) -> tuple[float | None, float | None]:
    column, seen = counted(kind, values, **settings)  # type: ignore[arg-type]
    (found,), _ = with_ranges([column], {"x": seen})
    return found.low, found.high


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([20, 30, 60], 16, 64),
        ([-3.0, -1.5, 1.5, 3.0], -4, 4),
        ([0.3, 5.0, 100.0], 0, 128),  # so far apart that it begins at 0
        ([0.0, 40.0], 0, 64),
        ([0.0], 0, 1),
        ([1000.0, 2000.0], 512, 2048),
    ],
)
def test_a_range_is_found_between_powers_of_two(values: list[float], low: float, high: float) -> None:
    assert ends("real", values) == (low, high)


def histogram(missing: bool | None, of_missing: float) -> bool:
    """Whether a column keeps its cell for missing values, with so many of them beside noise of 10."""
    column = Column("x", "real", 0.5, 1.5, bins=2, missing=missing)
    (grid,), (seen,) = settled([column], [grid_of(column)], [Measured((0,), np.array([50.0, 50.0, of_missing]), 10.0)])
    assert len(seen.counts) == grid.cells
    return grid.missing


def test_missing_values_are_kept_where_they_stand_out_or_are_declared() -> None:
    assert histogram(None, 60.0)
    assert not histogram(None, 20.0)
    assert histogram(True, 20.0)


def test_what_is_declared_stays() -> None:
    declared = Column("y", "real", 0.0, 7.0)
    column, seen = counted("real", [3.0])
    assert with_ranges([declared, column], {"x": seen})[0][0] is declared


def test_ranges_that_noise_hides_must_be_declared() -> None:
    with pytest.raises(
        ConfigError, match=r"ranges of 1 columns could not be found \('x'\).*noise of \+-50 rows.*Declare"
    ):
        ends("real", [3.0], noise=50.0)
    with pytest.warns(DoubtfulResult, match="ranges that were found for 'x' doubtful"):
        assert ends("real", [3.0], noise=30.0) == (2, 4)
