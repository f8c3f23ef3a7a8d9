"""What stands in a table's cells as arrays that need no pickle, and the way back: cells of any kind, and columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError

Header: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

# Array kinds whose bytes are their values: bool, integers, floats, times, text of fixed width.
PLAIN_KINDS: Final = "biufMmUS"
# Wider floats have padding bytes, and differ from machine to machine.
WIDEST_FLOAT: Final = 8
# Bytes of an array of texts of fixed width: all are as wide as the widest.
MOST_FIXED: Final = 2**24

TEXT, NONE, NAN, NA, FALSE, TRUE, INTEGER, FLOAT = range(8)
CONSTANTS: Final[dict[int, Any]] = {NONE: None, NAN: float("nan"), NA: pd.NA, FALSE: False, TRUE: True}


def plain(array: NDArray[Any], where: str) -> NDArray[Any]:
    """The array, if its bytes are its values; else a ConfigError that names where it stands."""
    kind, width = array.dtype.kind, array.dtype.itemsize
    if kind not in PLAIN_KINDS or (kind == "f" and width > WIDEST_FLOAT):
        raise _inexpressible(where, array.dtype)
    return array


def _inexpressible(where: str, what: object) -> ConfigError:
    return ConfigError(
        f"{where}: values of type {what} cannot be stored or compared without pickle; "
        "convert them to numbers, text, datetime64 without time zone, or a categorical of these, or leave them out."
    )


def _text(values: list[str], where: str) -> Arrays:
    """Texts as an array of fixed width or, where one long text would make that large, as one run of bytes."""
    if any(value.endswith("\0") for value in values):
        raise ConfigError(f"{where}: holds text that ends in a NUL character; strip it, e.g. with .str.rstrip('\\0').")
    widest = max(map(len, values), default=0)
    if 4 * widest * len(values) <= MOST_FIXED:
        return {"text": np.array(values, dtype=str)}
    pieces = [value.encode("utf-8", "surrogatepass") for value in values]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return {"utf8": np.frombuffer(b"".join(pieces), dtype=np.uint8), "ends": ends}


def _texts(arrays: Arrays) -> list[str]:
    """What `_text` took apart."""
    if "utf8" not in arrays:
        texts: list[str] = arrays["text"].tolist()
        return texts
    whole, ends = arrays["utf8"].astype(np.uint8, casting="equiv").tobytes(), arrays["ends"].tolist()
    if [0, *ends] != sorted([0, *ends]) or (ends[-1] if ends else 0) != len(whole):
        raise ValueError("texts that do not follow each other")
    return [whole[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise([0, *ends])]


def encode_cells(cells: NDArray[Any], where: str) -> Arrays:
    """Cells of any kind, each with its own, as arrays; `decode_cells` is the way back."""
    kinds = np.array([_cell_kind(cell, where) for cell in cells], dtype=np.uint8)
    pairs = list(zip(cells, kinds, strict=True))
    texts = [str(cell) if kind == TEXT else str(int(cell)) if kind == INTEGER else "" for cell, kind in pairs]
    arrays = {"kind": kinds, **_text(texts, where)}
    if FLOAT in kinds:
        arrays["number"] = np.array([cell if kind == FLOAT else 0.0 for cell, kind in pairs], dtype=np.float64)
    return arrays


def _cell_kind(cell: Any, where: str) -> int:
    if isinstance(cell, str):
        return TEXT
    if cell is None:
        return NONE
    if cell is pd.NA:
        return NA
    if isinstance(cell, bool | np.bool_):
        return TRUE if cell else FALSE
    if isinstance(cell, float | np.float32 | np.float16):
        return NAN if np.isnan(cell) else FLOAT
    # np.timedelta64 is a np.integer by class, but not by kind
    if isinstance(cell, int) or (isinstance(cell, np.integer) and cell.dtype.kind in "iu"):
        return INTEGER
    raise _inexpressible(where, type(cell).__name__)


def decode_cells(arrays: Arrays) -> NDArray[Any]:
    """What `encode_cells` took apart."""
    kinds, texts = arrays["kind"], _texts(arrays)
    cells = np.empty(len(kinds), dtype=object)
    for row, (kind, text) in enumerate(zip(kinds.tolist(), texts, strict=True)):
        if kind == TEXT:
            cells[row] = text
        elif kind == INTEGER:
            cells[row] = int(text)
        elif kind == FLOAT:
            cells[row] = float(arrays["number"][row])
        else:
            cells[row] = CONSTANTS[kind]
    return cells


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def encode_column(column: Any, where: str) -> tuple[Header, Arrays]:
    """A column of a DataFrame: of what kind it is, and its arrays; `decode_column` is the way back."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _encode_categorical(column, where)
    if isinstance(dtype, pd.StringDtype):
        missing = column.isna().to_numpy(dtype=bool)
        texts = column.to_numpy(dtype=object, na_value="").tolist()
        spec = {"kind": "string", "missing": "NA" if dtype.na_value is pd.NA else "nan", "storage": dtype.storage}
        return spec, {**_text(texts, where), "mask": missing}
    if isinstance(column.array, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        values = column.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return {"kind": "nullable"}, {"values": values, "mask": column.isna().to_numpy(dtype=bool)}
    if dtype.kind == "O":
        return {"kind": "object"}, encode_cells(column.to_numpy(), where)
    if isinstance(dtype, np.dtype):
        return {"kind": "plain"}, {"values": plain(column.to_numpy(), where)}
    raise _inexpressible(where, dtype)


def decode_column(spec: Header, arrays: Arrays) -> pd.Series[Any]:
    """The column that `encode_column` took apart."""
    match spec["kind"]:
        case "plain":
            return pd.Series(arrays["values"])
        case "object":
            return pd.Series(decode_cells(arrays), dtype=object)
        case "nullable":
            values, makers = arrays["values"], {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
            return pd.Series(makers.get(values.dtype.kind, pd.arrays.IntegerArray)(values, arrays["mask"]))
        case "string":
            missing = {"na_value": np.nan} if spec["missing"] == "nan" else {}
            texts = np.array(_texts(arrays), dtype=object)
            texts[arrays["mask"].astype(bool)] = None
            column: pd.Series[Any] = pd.Series(texts, dtype=_string_dtype(spec["storage"], missing))
            return column
        case "categorical":
            known = decode_column(spec["categories"], _below("categories.", arrays))
            categories: Any = pd.Index(known, dtype=known.dtype)
            return pd.Series(pd.Categorical.from_codes(arrays["codes"], categories=categories, ordered=spec["ordered"]))
    raise ValueError("a column of no kind")


def _string_dtype(storage: Any, missing: dict[str, Any]) -> Any:
    try:
        return pd.StringDtype(storage, **missing)
    except ImportError:  # pandas has no Arrow here: how text is stored is not what it says
        return pd.StringDtype("python", **missing)


def _encode_categorical(column: Any, where: str) -> tuple[Header, Arrays]:
    categories = column.cat.categories
    spec, arrays = encode_column(pd.Series(categories, dtype=categories.dtype), where)
    below = {f"categories.{part}": array for part, array in arrays.items()}
    header = {"kind": "categorical", "ordered": bool(column.cat.ordered), "categories": spec}
    return header, {"codes": column.cat.codes.to_numpy(), **below}
