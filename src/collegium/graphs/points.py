"""Rows of any table as points with a direction, of which similarities are the cosines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols.seed import at_one_scale
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.site import Site

Points = NDArray[np.float64]


def as_points(table: Any, where: str) -> Points:
    """One row of numbers per row of a table; images are flattened, sparse rows filled up."""
    if isinstance(table, pd.DataFrame):
        words = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
        if words:
            raise ConfigError(f"{where}: column {words[0]!r} is not numeric: encode it first.")
        table = table.to_numpy(dtype=np.float64, na_value=np.nan)
    values: NDArray[Any] = np.asarray(table.toarray() if hasattr(table, "toarray") else table)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"{where}: features of type {values.dtype} are not numeric: encode them first.")
    return values.reshape(len(values), -1).astype(np.float64)


def directions(points: Points) -> Points:
    """The points at length 1. One that is zero in all features has no direction, and stays: it is like no other."""
    points = at_one_scale(points)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(lengths > 0, lengths, 1.0)


def check_points(site: Site, *, embed: bool) -> None:
    """Refuse a site whose points have no similarities, or whose learner cannot `embed` them, before anything runs."""
    if embed and not hasattr(site.learner, "embed"):
        raise ConfigError(
            "embed=True uses the features of a trained learner, and this one has no 'embed': give each site one that "
            "has, such as run.global_model.estimator of cg.FedAvg, or cg.VisionClassifier."
        )
    for name, table in (("X", site.X), ("unlabeled", site.unlabeled)):
        if not embed and table is not None and tables.n_rows(table):
            _check_rows(as_points(table, name), name)


def _check_rows(points: Points, where: str) -> None:
    for bad, why in (
        (~np.isfinite(points).all(axis=1), "has a value that is NaN or infinite: impute it, or drop the row"),
        (~points.any(axis=1), "is zero in all features and has no direction: drop it, or shift the features"),
    ):
        if bad.any():
            raise ConfigError(f"{where}: row {int(np.argmax(bad))} ({int(bad.sum())} rows in all) {why}.")
