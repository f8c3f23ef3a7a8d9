"""The tables a user may hand in - numpy arrays, scipy sparse matrices, pandas DataFrames - behind one set of functions.

A table has its cases as rows. Row labels (a DataFrame's index) carry no meaning here and are dropped;
column names do, and are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from collegium.errors import ConfigError, WireError
from collegium.wire.columns import Arrays, Header, decode_cells, decode_column, encode_cells, encode_column, plain

Csr: TypeAlias = "sparse.csr_array[Any] | sparse.csr_matrix[Any]"
Table: TypeAlias = "NDArray[Any] | Csr | pd.DataFrame"

_WORDS_OF_A_TEXT: Final = 3
_HASHED_AT_ONCE: Final = 1 << 17  # bytes: for much more, each copy would get new pages of memory


def n_rows(X: Table) -> int:
    """How many cases the table has."""
    return int(X.shape[0])


def n_columns(X: Table) -> int:
    """How many columns the table has; of an array with more dimensions, the length of the second."""
    return int(X.shape[1])


def row_shape(X: Table) -> tuple[int, ...]:
    """The shape of one case: (columns,) for a flat table, (28, 28) for an array of images."""
    return tuple(int(length) for length in X.shape[1:])


def in_order_of(first: Any, X: Any) -> Any:
    """The same rows, with the columns in the order of `first`, where both are DataFrames with the same columns."""
    both = isinstance(first, pd.DataFrame) and isinstance(X, pd.DataFrame)
    if not both or list(first.columns) == list(X.columns) or not X.columns.is_unique:
        return X
    return X[list(first.columns)] if set(first.columns) == set(X.columns) else X


def as_table(X: Any, where: str) -> Table:
    """`X` as a table of the supported types; `where` names it in the error if it cannot be one."""
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    if sparse.issparse(X):
        return _as_csr(X, where)
    if isinstance(X, np.ma.MaskedArray):
        raise ConfigError(f"{where}: a masked array would lose its mask; fill it first, e.g. X.filled(numpy.nan).")
    if isinstance(X, pd.Series | np.ndarray | list | tuple) and (texts := _as_texts(X)) is not None:
        return texts
    if isinstance(X, np.ndarray | list | tuple):
        array = np.asarray(X) if isinstance(X, np.ndarray) else _array_of_cells(X, where)
        if array.ndim == 1 and (other := _beside_texts(X)) is not None:
            raise ConfigError(
                f"{where}: texts must be strings, or None where one is missing, but among them is a value of type "
                f"{other}; make it a string, or give a DataFrame if these are columns."
            )
        if array.ndim < 2:
            raise ConfigError(
                f"{where}: has shape {array.shape}, but a table has rows and columns; "
                "reshape it: X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
            )
        return array
    if isinstance(X, pd.Series):
        raise ConfigError(f"{where}: a pandas Series is one column, not a table; use series.to_frame().")
    raise ConfigError(
        f"{where}: a {type(X).__name__} is not a table; "
        "give a numpy array, a scipy sparse matrix, a pandas DataFrame or a list of texts."
    )


def texts_of(X: Any) -> Any:
    """The only column of a table, for whoever takes texts; anything else as it is."""
    if isinstance(X, pd.DataFrame | np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        return X.iloc[:, 0] if isinstance(X, pd.DataFrame) else pd.Series(X[:, 0])
    return X


def no_texts(X: Any) -> str | None:
    """What a table holds instead of one text per row; None if it holds texts, of which some may be missing."""
    texts = texts_of(X)
    if not isinstance(texts, pd.Series):
        return f"has {n_columns(X)} columns" if np.ndim(X) == 2 else f"is a {type(X).__name__}"
    there = [cell for cell in texts if not _is_blank(cell)]
    kind = next((type(cell).__name__ for cell in there if not isinstance(cell, str)), None)
    if kind is not None:
        return f"holds values of type {kind}"
    return None if any(map(str.strip, there)) else "has none with a word in it: all are missing or empty"


def holds_texts(column: pd.Series) -> bool:
    """Whether its cells have several words each, and hardly repeat: texts, not values."""
    known = column.dropna().astype(str)
    if not len(known) or known.nunique() <= 0.5 * len(known):
        return False
    return bool(np.mean([len(text.split()) for text in known]) > _WORDS_OF_A_TEXT)


def take(X: Table, rows: ArrayLike) -> Table:
    """The rows of `X` with these numbers, in this order, or those where a boolean mask is true."""
    numbers = _row_numbers(rows, n_rows(X))
    if isinstance(X, pd.DataFrame):
        return X.iloc[numbers].reset_index(drop=True)
    taken: Table = X[numbers]
    return taken


def frozen(X: Table) -> Table:
    """The same table, read-only if it is an array: a learner may then keep a copy of it where it works, on a GPU."""
    if type(X) is not np.ndarray:
        return X
    view = X.view()
    view.flags.writeable = False
    return view


def stack(tables: Iterable[Table]) -> Table:
    """The rows of all tables, one below the other.

    Categorical columns stay categorical where all tables agree on the categories; where they do not, the
    column becomes a plain one.
    """
    parts: list[Any] = list(tables)
    if not parts:
        raise ConfigError("There are no tables to stack; give at least one.")
    if all(isinstance(part, pd.DataFrame) for part in parts):
        return _stack_frames(parts)
    dense = all(isinstance(part, np.ndarray) for part in parts)
    if not dense and not all(sparse.issparse(part) for part in parts):
        kinds = ", ".join(sorted({type(part).__name__ for part in parts}))
        raise ConfigError(f"Tables of different types ({kinds}) cannot be stacked; convert them to one type first.")
    shapes = sorted({row_shape(part) for part in parts})
    if len(shapes) > 1:
        raise ConfigError(f"Tables whose rows have different shapes {shapes} cannot be stacked; give the same columns.")
    stacked: Table = _stack_arrays(parts) if dense else sparse.vstack(parts, format="csr")
    return stacked


def to_arrays(X: Table) -> tuple[Header, Arrays]:
    """The table as a JSON-able header and arrays without object dtypes; `from_arrays` is the way back.

    Numbers in object cells come back as Python numbers of the same value.
    """
    table = as_table(X, "table")
    if isinstance(table, pd.DataFrame):
        return _encode_frame(table)
    if isinstance(table, np.ndarray):
        if table.dtype == object:
            return {"table": "array", "shape": list(table.shape)}, encode_cells(table.ravel(), "the array")
        return {"table": "array"}, {"values": plain(table, "the array")}
    flavour = "array" if isinstance(table, sparse.sparray) else "matrix"
    arrays = {"data": plain(table.data, "the sparse table"), "indices": table.indices, "indptr": table.indptr}
    return {"table": "sparse", "shape": list(table.shape), "storage": flavour}, arrays


def from_arrays(header: Header, arrays: Arrays) -> Table:
    """The table that `to_arrays` took apart. Header and arrays that do not fit together raise a WireError."""
    decoders = {"array": _decode_array, "sparse": _decode_sparse, "frame": _decode_frame}
    try:
        if any(array.dtype.hasobject for array in arrays.values()):
            raise ValueError("an array has an object dtype")
        return decoders[header["table"]](header, arrays)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise WireError(f"Not a valid table: its header and arrays do not fit ({type(error).__name__}).") from error


def digest(X: Table) -> str:
    """SHA-256 of the table's values, dtypes and column names, as hex.

    Where and how the values lie in memory (order, byte order, explicit zeros of a sparse table) does not
    count; the order of a categorical's categories does.
    """
    header, arrays = _canonical_csr(X) if sparse.issparse(X) else to_arrays(X)
    sha = hashlib.sha256(_line("collegium table 1", _without_storage(header)))
    for name in sorted(arrays):
        array = np.atleast_1d(arrays[name])
        sha.update(_line(name, array.dtype.newbyteorder("<").str, array.shape))
        rows = max(1, _HASHED_AT_ONCE * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), rows):  # some rows at a time: copies of a whole public set take longest
            sha.update(_canonical_array(array[start : start + rows]).tobytes())
    return sha.hexdigest()


def _as_texts(X: pd.Series | Sequence[Any] | NDArray[Any]) -> pd.DataFrame | None:
    """Texts, one per case, as a table with the one column "text"; None if these are no texts."""
    if getattr(X, "ndim", 1) != 1 or not all(isinstance(cell, str) or _is_blank(cell) for cell in X):
        return None
    if not any(isinstance(cell, str) for cell in X) and not (len(X) and all(cell is None for cell in X)):
        return None
    return pd.DataFrame({"text": np.asarray(X, dtype=object).tolist()}, dtype=object)


def _beside_texts(X: Iterable[Any]) -> str | None:
    """The type of what stands among texts and is none; None if there are no texts, or nothing else."""
    kinds = {type(cell) for cell in X if not _is_blank(cell)}
    others = sorted(kind.__name__ for kind in kinds if not issubclass(kind, str))
    return others[0] if others and any(issubclass(kind, str | bytes) for kind in kinds) else None


def _is_blank(cell: Any) -> bool:
    return cell is None or cell is pd.NA or (isinstance(cell, float) and cell != cell)


def _array_of_cells(rows: Sequence[Any], where: str) -> NDArray[Any]:
    try:
        array = np.array(rows)
        if array.dtype.kind not in "SU":
            return array
        cells = np.array(rows, dtype=object)
    except ValueError:
        raise ConfigError(f"{where}: the rows of the list differ in length; give every row the same columns.") from None
    # numpy turns the numbers of a mixed table into text; keep them as numbers.
    return array if all(isinstance(cell, str | bytes) for cell in cells.flat) else cells


def _as_csr(X: Any, where: str) -> Csr:
    if X.ndim != 2:
        raise ConfigError(f"{where}: has shape {X.shape}, but a sparse table has two dimensions; reshape it.")
    csr: Csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _row_numbers(rows: ArrayLike, n: int) -> NDArray[np.intp]:
    wanted = np.asarray(rows)
    if wanted.dtype == bool:
        if wanted.shape != (n,):
            raise ConfigError(
                f"A mask of shape {wanted.shape} does not fit a table of {n} rows; give one flag per row."
            )
        return np.flatnonzero(wanted)
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise ConfigError("Rows are taken by a one-dimensional array of row numbers or a boolean mask.")
    return wanted.astype(np.intp)


def _stack_frames(parts: Sequence[Any]) -> pd.DataFrame:
    if any(list(part.columns) != list(parts[0].columns) for part in parts):
        raise ConfigError("DataFrames with different columns cannot be stacked; give all the same, in the same order.")
    stacked: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return stacked


def _stack_arrays(parts: Sequence[Any]) -> NDArray[Any]:
    kinds = {part.dtype.kind for part in parts}
    try:
        if kinds & {"S", "U"} and kinds - {"S", "U"} and "O" not in kinds:
            raise TypeError  # numpy would silently write the numbers out as text
        return np.concatenate(parts)
    except TypeError:
        dtypes = sorted({str(part.dtype) for part in parts})
        raise ConfigError(f"Arrays of {', '.join(dtypes)} cannot be stacked; convert them to one dtype.") from None


def _decode_array(header: Header, arrays: Arrays) -> NDArray[Any]:
    array = decode_cells(arrays).reshape(header["shape"]) if "shape" in header else arrays["values"]
    if array.ndim < 2:
        raise ValueError(f"a table cannot have the shape {array.shape}")
    return array


def _decode_sparse(header: Header, arrays: Arrays) -> Csr:
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    shape = (int(header["shape"][0]), int(header["shape"][1]))
    csr: Csr = sparse.csr_array(parts, shape=shape) if header["storage"] == "array" else sparse.csr_matrix(parts, shape)
    # indices out of range would read beyond the arrays later on
    csr.check_format(full_check=True)
    return csr


def _encode_frame(frame: pd.DataFrame) -> tuple[Header, Arrays]:
    columns, arrays = [], {}
    for position, name in enumerate(frame.columns):
        spec, parts = encode_column(frame.iloc[:, position], f"column {name!r}")
        columns.append({"name": _column_name(name), **spec})
        arrays.update({f"{position}.{part}": array for part, array in parts.items()})
    return {"table": "frame", "rows": len(frame), "columns": columns}, arrays


def _column_name(name: Any) -> str | int:
    if isinstance(name, str):
        return str(name)
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return int(name)
    raise ConfigError(
        f"column {name!r}: a column's name must be text or an integer, not {type(name).__name__}; "
        "rename it, e.g. X.columns = [str(name) for name in X.columns]."
    )


def _decode_frame(header: Header, arrays: Arrays) -> pd.DataFrame:
    rows = pd.RangeIndex(header["rows"])
    parts: dict[str, Arrays] = {}  # by column, in one pass: a table may have very many
    for name, array in arrays.items():
        at, _, part = name.partition(".")
        parts.setdefault(at, {})[part] = array
    columns = {at: decode_column(spec, parts.get(str(at), {})) for at, spec in enumerate(header["columns"])}
    if any(len(column) != len(rows) for column in columns.values()):
        raise ValueError("a column has another number of rows")
    frame = pd.DataFrame(columns, index=rows)
    frame.columns = pd.Index([_column_name(spec["name"]) for spec in header["columns"]])
    return frame


def _line(*parts: object) -> bytes:
    return json.dumps(parts, sort_keys=True).encode() + b"\n"


def _without_storage(header: Any) -> Any:
    """The header without the keys that say how, not what, is stored."""
    if isinstance(header, dict):
        return {key: _without_storage(value) for key, value in header.items() if key != "storage"}
    if isinstance(header, list):
        return [_without_storage(value) for value in header]
    return header


def _canonical_csr(X: Any) -> tuple[Header, Arrays]:
    csr = _as_csr(X, "table").copy()
    csr.eliminate_zeros()
    header, arrays = to_arrays(csr)
    return header, {name: array if name == "data" else array.astype(np.int64) for name, array in arrays.items()}


def _canonical_array(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        # -0.0 equals 0.0, and any NaN stands for any other, though their bytes differ
        array = array + array.dtype.type(0)
        array[np.isnan(array)] = np.nan
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
