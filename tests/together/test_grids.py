from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from collegium.errors import ConfigError
from collegium.together.columns import Column, read_column
from collegium.together.grids import NOWHERE, Grid, grid_of, search_grid


def test_every_integer_of_a_short_range_has_a_cell_of_its_own() -> None:
    grid = grid_of(read_column("age", (18, 30), np.dtype("int64")))
    codes, outside = grid.codes(pd.Series([18, 19, 30]))
    assert grid.cells == 13
    assert codes.tolist() == [0, 1, 12]
    assert outside == 0
    assert grid.values(codes, np.random.default_rng(0)).tolist() == [18, 19, 30]


def test_values_outside_a_range_count_as_its_ends_and_are_counted() -> None:
    codes, outside = grid_of(read_column("age", (18, 30), np.dtype("int64"))).codes(pd.Series([3, 200, 20]))
    assert codes.tolist() == [0, 12, 2]
    assert outside == 2


def test_zero_and_missing_values_have_cells_of_their_own() -> None:
    grid = grid_of(read_column("gain", {"low": 0, "high": 10.0, "bins": 5, "missing": True}, np.dtype("float64")))
    codes, outside = grid.codes(pd.Series([0.0, 0.1, 10.0, np.nan]))
    assert codes.tolist() == [5, 0, 4, 6]
    assert outside == 0
    values = grid.values(codes, np.random.default_rng(0))
    assert values[0] == 0
    assert 0 < values[1] <= 2
    assert np.isnan(values[3])


def test_a_value_that_was_not_declared_is_in_no_cell() -> None:
    grid = grid_of(read_column("sex", ["F", "M"]))
    codes, outside = grid.codes(pd.Series(["M", "X", None, "F"]))
    assert codes.tolist() == [1, NOWHERE, 2, 0]
    assert outside == 1  # a missing value is no strange one
    full = grid_of(read_column("sex", {"categories": ["F", "M"], "missing": False}))
    assert full.codes(pd.Series(["M", None]))[0].tolist() == [1, NOWHERE]


def test_made_up_numbers_lie_in_their_cells() -> None:
    grid = grid_of(Column("x", "real", -3.0, 5.0, bins=(-3.0, -1.0, 0.5, 5.0)))
    codes = np.array([0, 1, 2] * 100)
    values = grid.values(codes, np.random.default_rng(1))
    assert (grid.codes(pd.Series(values))[0] == codes).all()


def test_a_range_is_looked_for_among_all_powers_of_two() -> None:
    grid = search_grid(Column("x", "real"))
    values = pd.Series([-1e6, -0.3, 0.0, 1e-9, 7.0, 1e9, np.nan])
    codes, outside = grid.codes(values)
    assert outside == 0
    assert len(set(codes.tolist())) == 7
    assert grid.from_plain(grid.to_plain()) == grid


@pytest.mark.parametrize(
    "plain",
    [{}, {"name": "x"}, Grid("x", "real", edges=(1.0, 0.0)).to_plain(), Grid("x", "real").to_plain()],
    ids=["nothing", "a name", "edges that decrease", "no edges"],
)
def test_an_order_with_something_else_than_grids_is_refused(plain: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="An order names"):
        Grid.from_plain(plain)


def test_a_column_without_known_categories_has_nothing_but_missing_values() -> None:
    grid = grid_of(Column("sex", "category", categories=(), missing=True))
    assert grid.cells == 1
    assert grid.codes(pd.Series(["M", None]))[0].tolist() == [NOWHERE, 0]
    assert grid.values(np.zeros(3, dtype=np.int64), np.random.default_rng(0)).tolist() == [None] * 3
