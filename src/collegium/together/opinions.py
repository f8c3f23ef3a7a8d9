"""What a model says of the rows that were drawn from it, and which rows these are."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import pandas as pd

from collegium.together.values import text_of

_ROWS: Final = "rows"


def about(opinion: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """What is said of made-up rows, with the hash of these rows; a Parquet file keeps it."""
    marked = opinion.copy()
    marked.attrs[_ROWS] = {"columns": [str(name) for name in rows.columns], "sha256": _hash_of(rows)}
    return marked


def is_about(opinion: pd.DataFrame, rows: Any) -> bool:
    """Whether it was said of these rows, or says nothing of that."""
    said = opinion.attrs.get(_ROWS)
    if said is None or not isinstance(rows, pd.DataFrame):
        return True
    named = rows.set_axis([str(name) for name in rows.columns], axis=1)
    there = all(name in named.columns for name in said["columns"])
    return there and _hash_of(named[said["columns"]]) == said["sha256"]


def _hash_of(rows: pd.DataFrame) -> str:
    """The same for equal values in the same order, whatever their types: a CSV file does not keep these."""
    digest = hashlib.sha256()
    for name in rows.columns:
        column = rows[name].astype(object)
        said = [None if gone else text_of(value, name) for value, gone in zip(column, column.isna(), strict=True)]
        digest.update(json.dumps([str(name), said]).encode())
    return digest.hexdigest()
