"""Computing with private rows so that none of them decides between an answer and an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from collegium.wire import tables


def row_by_row(compute: Callable[[Any], Any], X: Any, instead: Any) -> Any:
    """`compute(X)`, where rows on which it fails give the one row `instead`.

    `compute` must treat rows one by one. Check it on public rows first: here, nothing is ever an error.
    """
    n = tables.n_rows(X)
    with suppress(Exception):  # whatever it is, it would tell something about these rows
        found = compute(X)
        if found.shape == (n, *instead.shape[1:]):
            return found
    if n < 2:
        return tables.take(instead, np.arange(n))
    halves = (tables.take(X, half) for half in np.array_split(np.arange(n), 2))
    return tables.stack([row_by_row(compute, half, instead) for half in halves])
