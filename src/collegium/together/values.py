"""What a value is, whatever type its column has: the text it is counted by, and the value of such a text.

A reader gives a whole column one type. One record may change it: among 500 codes, ``x`` makes 500 numbers texts. What
is counted must follow from each value alone, or a record would change the counts of all others. So a text that reads
as a number or as true or false is that number or truth value, and numbers are equal that agree in 15 digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError

_NUMBER: Final = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE)
_TRUTH: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_DIGITS: Final = 15
"""Further ones depend on who read a number, and on whether its column was one of whole numbers."""
_EXACT: Final = 10.0**_DIGITS


def number_of(value: Any) -> float | None:
    """The number that a value is, or that a text reads as; None for anything else."""
    if isinstance(value, str):
        said = value.strip()
        return float(said.replace(",", ".")) if _NUMBER.fullmatch(said) else None
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def text_of(value: Any, column: str | int) -> str:
    """A value as text: numbers as they are usually written, other texts in quotation marks."""
    plain = value.item() if isinstance(value, np.generic) else value
    number = number_of(plain)
    if number is not None:
        return _digits(number)
    if isinstance(plain, str):
        return json.dumps(_TRUTH.get(plain, plain), ensure_ascii=False)
    if plain is None or isinstance(plain, bool):
        return json.dumps(plain)
    raise ConfigError(
        f"Column {column!r} holds {type(plain).__name__}: turn it into text or numbers, or declare its categories."
    )


def _digits(number: float) -> str:
    rounded = float(f"{number:.{_DIGITS}g}")
    return str(int(rounded)) if rounded.is_integer() and abs(rounded) < _EXACT else json.dumps(rounded)


def value_of(text: str) -> str | int | float | None:
    """The value of a text; None for one that is missing, and for what a site may have spelled that is no value."""
    with suppress(ValueError, RecursionError, OverflowError):
        value = json.loads(text)
        if isinstance(value, str | int | float) and fits_a_file(value) and text_of(value, "") == text:
            return value
    return None


def fits_a_file(value: str | int | float) -> bool:
    """Whether a value can be written to a file: finite, not too long a number, and no half of a pair of surrogates."""
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    return isinstance(value, bool) or (math.isfinite(value) and (isinstance(value, float) or abs(value) < _EXACT))


def of_one_type(values: Sequence[Any]) -> tuple[Any, ...]:
    """The values as they are if all are numbers, texts or truth values; else all as text."""
    kinds = {"truth" if isinstance(v, bool) else "text" if isinstance(v, str) else "number" for v in values}
    return tuple(values) if len(kinds) < 2 else tuple(as_text(value) for value in values)


def as_text(value: Any) -> str:
    """A category as it is spelled in a column of texts."""
    return value if isinstance(value, str) else str(value) if isinstance(value, bool) else text_of(value, "")


def truth_of(value: Any) -> bool | None:
    """The truth value that a value is, or that a text reads as."""
    return _TRUTH.get(value) if isinstance(value, str) else value if isinstance(value, bool) else None


def numbers_in(column: pd.Series[Any]) -> NDArray[np.float64]:
    """A column as numbers; NaN for missing values, and for what does not read as one."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    plain = (_TRUTH.get(value, value) if isinstance(value, str) else value for value in column.tolist())
    read = (float(value) if isinstance(value, bool | np.bool_) else number_of(value) for value in plain)
    return np.array([np.nan if number is None else number for number in read], dtype=np.float64)
