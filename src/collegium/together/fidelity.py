"""For a site's owner: how made-up rows compare with the site's own. None of this may leave the site."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from collegium.errors import ConfigError

_BINS: Final = 10
_MOST_ROWS: Final = 2000


def distributions(made: Any, own: Any) -> pd.DataFrame:
    """Per column and value (numbers: in tenths of the site's own rows) the share of made-up rows and of its own."""
    made, own = _frames(made, own)
    tables = []
    for name in own.columns:
        cells = _cells(own[name])
        shares = pd.DataFrame({"made": _shares(cells(made[name])), "own": _shares(cells(own[name]))}).fillna(0.0)
        tables.append(shares.rename_axis("value").reset_index().assign(column=str(name)))
    return pd.concat(tables, ignore_index=True)[["column", "value", "made", "own"]]


def distances(shares: pd.DataFrame) -> pd.Series[float]:
    """Per column, how many rows would have to change for the shares to agree (total variation, 0 to 1)."""
    differs = (shares["made"] - shares["own"]).abs().groupby(shares["column"], sort=False).sum() / 2
    return differs.rename("difference")


def nearest(made: Any, own: Any, seed: int = 0) -> pd.DataFrame:
    """How near the site's own rows are to the nearest made-up row, and to the nearest other row of their own.

    Distances are Gower's: the mean over columns of differences in units of the range, or 0 and 1 for categories.
    Made-up rows that were copies of real ones would be much nearer than other real rows are.
    """
    made, own = _frames(made, own)
    rng = np.random.default_rng(seed)
    some = [table.iloc[np.sort(rng.permutation(len(table))[:_MOST_ROWS])] for table in (made, own)]
    points = _points(some[1], some[0]), _points(some[1], some[1])
    to_made, to_own = _least(points[1], points[0]), _least(points[1], points[1], others=True)
    quantiles = (0.01, 0.05, 0.25, 0.5, 0.75)
    table = {"to a made-up row": to_made, "to another own row": to_own}
    return pd.DataFrame(
        {name: np.quantile(each, quantiles) for name, each in table.items()}, index=quantiles
    ).rename_axis("share of own rows")


def _frames(made: Any, own: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    tables = [table if isinstance(table, pd.DataFrame) else pd.DataFrame(table) for table in (made, own)]
    if list(tables[0].columns) != list(tables[1].columns):
        raise ConfigError("The made-up rows and the site's own have different columns: compare tables of one kind.")
    if not len(tables[0]) or not len(tables[1]):
        raise ConfigError("There are no rows to compare.")
    return tables[0], tables[1]


def _is_number(values: pd.Series[Any]) -> bool:
    return is_numeric_dtype(values) and not is_bool_dtype(values)


def _cells(own: pd.Series[Any]) -> Any:
    """What turns a column's values into those that shares are counted of."""
    if not _is_number(own) or own.nunique() <= _BINS:
        return lambda values: values.astype(object).where(values.notna(), "missing").map(str)
    inner = np.unique(np.quantile(own.dropna(), np.linspace(0, 1, _BINS + 1)))[1:-1]
    edges = [-np.inf, *inner.tolist(), np.inf]
    return lambda values: pd.cut(values, edges).astype(object).where(values.notna(), "missing").map(str)


def _shares(values: pd.Series[Any]) -> pd.Series[float]:
    return values.value_counts(normalize=True)


def _points(own: pd.DataFrame, table: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Numbers in units of the own range, and categories as numbers."""
    numbers = [name for name in own.columns if _is_number(own[name])]
    spans = {name: max(float(own[name].max() - own[name].min()), 1e-12) for name in numbers}
    scaled = [table[name].fillna(own[name].median()).to_numpy(dtype=np.float64) / spans[name] for name in numbers]
    others = [name for name in own.columns if name not in numbers]
    words = [pd.Categorical(table[name].map(str), categories=sorted(set(own[name].map(str)))).codes for name in others]
    rows = len(table)
    return (
        np.stack(scaled, axis=1) if scaled else np.zeros((rows, 0)),
        np.stack(words, axis=1).astype(np.int64) if words else np.zeros((rows, 0), dtype=np.int64),
    )


def _least(points: Any, others_points: Any, *, others: bool = False) -> NDArray[np.float64]:
    """The distance of each point to the nearest of the others."""
    (numbers, words), (other_numbers, other_words) = points, others_points
    columns = max(numbers.shape[1] + words.shape[1], 1)
    least = np.empty(len(numbers))
    for row in range(len(numbers)):
        apart = np.minimum(np.abs(other_numbers - numbers[row]), 1.0).sum(axis=1) + (other_words != words[row]).sum(
            axis=1
        )
        if others:
            apart[row] = np.inf
        least[row] = apart.min() / columns
    return least
