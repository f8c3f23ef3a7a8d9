"""Which teacher learns from which record: decided by the record alone.

No record's presence may move another one, so a hash of a record's own values decides. Copies of a record go to the same
teacher. Column types are treated as public, as column names are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse


def teacher_of(X: Any, teachers: int) -> NDArray[np.intp]:
    """The teacher, 0 .. teachers-1, of each row of a table."""
    places = (value % teachers for value in row_hashes(X))
    return np.fromiter(places, dtype=np.intp, count=X.shape[0])


def row_hashes(X: Any) -> Iterator[int]:
    """A hash of each row's own values: equal rows have equal ones."""
    return (int.from_bytes(hashlib.blake2b(row, digest_size=8).digest()) for row in _rows(X))


def _rows(X: Any) -> Iterator[bytes]:
    """Each row as bytes that depend on its values only, and on no other row."""
    if isinstance(X, pd.DataFrame):
        columns = [_cells(X.iloc[:, place]) for place in range(X.shape[1])]
        return (repr(row).encode() for row in zip(*columns, strict=True))
    if sparse.issparse(X):
        return _sparse_rows(X)
    if X.dtype.kind in "biuf":
        return (np.asarray(row, dtype=np.float64).tobytes() for row in X)
    # The width of a text array is that of its longest text: take the texts themselves.
    return (repr([_cell(cell) for cell in row.ravel().tolist()]).encode() for row in X)


def _sparse_rows(X: Any) -> Iterator[bytes]:
    csr = X.tocsr().copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    for start, end in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        yield csr.indices[start:end].astype(np.int64).tobytes() + csr.data[start:end].astype(np.float64).tobytes()


def _cells(column: pd.Series[Any]) -> Iterable[Any]:
    """Cells as floats, texts or None: one missing value elsewhere would turn a column of integers into floats."""
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan).tolist()
    return [None if missing else _cell(cell) for cell, missing in zip(column, column.isna(), strict=True)]


def _cell(cell: Any) -> Any:
    if isinstance(cell, int) and abs(cell) >= 1 << 1000:
        return f"{cell:x}"  # too large for a float, and perhaps for decimal digits
    return float(cell) if isinstance(cell, int | float | np.number) else str(cell)
