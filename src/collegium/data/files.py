"""Reading a user's own files, and verifying checksums."""

from __future__ import annotations

import hashlib
import lzma
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.wire.tables import Table

SUFFIXES: Final = (".csv", ".csv.gz", ".csv.xz", ".parquet", ".npz")
MOST_NAMES_SHOWN: Final = 12
_LOOKED_AT: Final = 200
"""Rows of a CSV file by which its decimal mark is found out."""
_MISSING: Final = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""What stands for a missing value in a CSV file: what pandas takes for one."""
_EXACTLY: Final[dict[str, Any]] = {"float_precision": "round_trip"} if pd.__version__.startswith("2.") else {}
"""Later versions read a number with 17 digits as what it is without being told."""
DAMAGED: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def sha256_of(path: Path) -> str:
    """The checksum of a file, cached until its size or modification time changes."""
    try:
        status = path.stat()
        return _digest(path.resolve(), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise _unreadable(path, error) from None


def read_table(path: Path, target: str | None, least_classes: int = 2) -> tuple[Table, NDArray[Any]]:
    """The features and labels in a CSV, Parquet or npz file, chosen by its suffix."""
    _check_there(path)
    if path.name.lower().endswith(".npz"):
        return _read_npz(path, target, least_classes)
    return take_target(_read_frame(path), target, path, least_classes)


def read_rows(path: Path, without: Iterable[str] = ()) -> Table:
    """The features in a file without labels; columns named in `without` are dropped if present."""
    _check_there(path)
    if path.name.lower().endswith(".npz"):
        X = _read_arrays(path, ("X",))[0]
        if np.ndim(X) < 2 or not len(X):
            raise ConfigError(f"{path}: 'X' has shape {np.shape(X)}; give one row per case.")
        return X
    frame = _read_frame(path)
    return frame.drop(columns=[column for column in frame.columns if str(column) in set(without)])


def read_frame(path: Path) -> pd.DataFrame:
    """The table in a CSV or Parquet file."""
    _check_there(path)
    return _read_frame(path)


def _read_frame(path: Path) -> pd.DataFrame:
    frame = _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path)
    if frame.empty:
        raise ConfigError(f"{path}: the file has no rows.")
    return frame


@lru_cache(maxsize=256)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_there(path: Path) -> None:
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; give the path of a file in it.")
        if not path.exists():
            beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
            raise ConfigError(f"There is no file {path}.{nearest(path.name, beside)} Check the path.")
        if path.stat().st_size == 0:
            raise ConfigError(f"{path}: the file is empty; save or copy it again.")
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"{path}: the file cannot be read ({type(error).__name__}). "
        "It may be damaged or incomplete, or you may lack permission. Copy it again, or check its permissions."
    )


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        dialect = _dialect(path)
        header = _cells(path, dialect["sep"], rows=1)
        check_names(header.iloc[0].tolist(), path)
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            # Without index_col, one cell more than there are names would silently make the first column row labels.
            table: pd.DataFrame = pd.read_csv(
                path, encoding="utf-8-sig", low_memory=False, index_col=False, **_EXACTLY, **dialect
            )
        return _with_gaps(table)
    except pd.errors.EmptyDataError:
        raise ConfigError(f"{path}: the file is empty; save or copy it again.") from None
    except pd.errors.ParserWarning:
        raise ConfigError(
            f"{path}: the rows have more cells than the header has names; give every column a name."
        ) from None
    except pd.errors.ParserError as error:
        raise ConfigError(f"{path}: this is not a table in CSV ({str(error).strip()}).") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the file is not UTF-8 text; save it as CSV in UTF-8.") from None
    except DAMAGED as error:
        raise _unreadable(path, error) from None


def _with_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """The table with missing values where words say so, also in columns that a number of 20 digits made text."""
    for name, dtype in table.dtypes.items():
        if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
            words = table[name].isin(_MISSING)
            if words.any():
                table[name] = table[name].mask(words)
    return table


def _dialect(path: Path) -> dict[str, Any]:
    """What separates cells and decimals: in many countries spreadsheets write semicolons, and commas in numbers."""
    if len(_cells(path, ",", rows=1).columns) > 1:
        return {"sep": ","}
    widths = {sep: len(_cells(path, sep, rows=1).columns) for sep in (";", "\t")}
    sep = max(widths, key=lambda each: widths[each])
    if widths[sep] == 1:
        return {"sep": ","}  # one column, whatever separates
    some_cells = _cells(path, sep, rows=_LOOKED_AT).iloc[1:].stack().astype(str).str.strip()
    by_comma, by_point = (int(some_cells.str.fullmatch(rf"[+-]?\d+{mark}\d+").sum()) for mark in (",", r"\."))
    return {"sep": sep, "decimal": "," if by_comma > by_point else "."}


def _cells(path: Path, sep: str, rows: int) -> pd.DataFrame:
    """The first rows of a CSV file, the header among them, as they are written."""
    cells: pd.DataFrame = pd.read_csv(
        path, header=None, nrows=rows, dtype=str, keep_default_na=False, encoding="utf-8-sig", sep=sep
    )
    return cells


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow import ArrowException

    try:
        frame = pd.read_parquet(path)
    except (ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    check_names([str(name) for name in frame.columns], path)
    return frame.reset_index(drop=True)


def check_names(names: list[str], path: Path | str) -> None:
    """A ConfigError if two columns have the same name."""
    # A second column of the target's name would carry the labels into the features.
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: several columns are called {some(twice)}; rename or drop them.")


def take_target(
    frame: pd.DataFrame, target: str | None, path: Path | str, least_classes: int = 2
) -> tuple[pd.DataFrame, NDArray[Any]]:
    """A frame's features, and the labels in the column `target`; `path` is for error messages."""
    names = [str(name) for name in frame.columns]
    if target is None:
        raise ConfigError(f"{path}: which column has the labels? Set target to one of {some(names)}.")
    if target not in names:
        separator = " There is only one column: what separates its cells?" if len(names) == 1 else ""
        raise ConfigError(
            f"{path}: there is no column {target!r} for target.{nearest(target, names)}{separator} "
            f"Set target to one of {some(names)}."
        )
    if len(names) == 1:
        raise ConfigError(f"{path}: there are no columns besides the target {target!r}; add features.")
    column = frame.columns[names.index(target)]
    labels = frame[column].to_numpy()
    _check_labels(labels, f"{path}: target {target!r}", least_classes)
    return frame.drop(columns=[column]), labels


def _read_npz(path: Path, target: str | None, least_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    label = "y" if target is None else target
    X, y = _read_arrays(path, ("X", label))
    shapes = f"'X' has shape {np.shape(X)} and {label!r} has shape {np.shape(y)}"
    if np.ndim(X) < 2 or np.ndim(y) != 1:
        raise ConfigError(f"{path}: {shapes}; give a row of 'X' and one label per case.")
    if len(X) != len(y):
        raise ConfigError(f"{path}: {shapes}; give one label per row of 'X'.")
    if not len(y):
        raise ConfigError(f"{path}: 'X' has no rows.")
    _check_labels(y, f"{path}: array {label!r}", least_classes)
    return X, y


def _read_arrays(path: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise ConfigError(f"{path}: this is not a complete npz file; write it again with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            there = archive.files
            arrays = [archive[name] for name in names if name in there]
    except DAMAGED as error:
        raise _unreadable(path, error) from None
    except ValueError:
        raise ConfigError(
            f"{path}: {' or '.join(map(repr, names))} holds Python objects, and loading them could run code; "
            "save them as numbers or text, e.g. y.astype(str)."
        ) from None
    for name in names:
        if name not in there:
            raise ConfigError(
                f"{path}: there is no array {name!r}.{nearest(name, there)} It holds {some(there)}. "
                "The features must be called 'X'; the labels 'y', or what target says."
            )
    return arrays


def _check_labels(labels: NDArray[Any], what: str, least_classes: int) -> None:
    missing = int(np.sum(pd.isna(labels)))
    if missing:
        raise ConfigError(
            f"{what}: {missing} of {len(labels)} rows have no label "
            "(in a CSV, words such as NA, None and null count as missing); drop these rows."
        )
    try:
        classes = len(pd.unique(labels))
    except TypeError:
        raise ConfigError(f"{what}: the labels are lists or tables; give one number or word per row.") from None
    if classes < least_classes:
        raise ConfigError(f"{what}: all rows have the same label, but learning needs two classes; is it the right one?")


def some(names: Iterable[str]) -> str:
    """A few names for a message."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - MOST_NAMES_SHOWN
    return ", ".join(quoted[:MOST_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
