"""Columns as they are declared: ranges, bins and categories, in Python, in a study, or by the sites' own tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api import types

from collegium.core.settings import FiniteFloat, Settings
from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.together.values import fits_a_file, of_one_type, text_of

Kind = Literal["category", "integer", "real"]
_KINDS: Final = ", ".join(repr(kind) for kind in get_args(Kind))
MOST_CATEGORIES: Final = 64
MOST_BINS: Final = 64
MOST_COLUMNS: Final = 200
_NOT_FOR_IMAGES: Final = (
    "Counts of pairs of columns say nothing useful about images, texts or sparse features. Use a public set of the "
    "same kind (a benchmark, openly licensed images or texts), or tables of features from a pre-trained network."
)


@dataclass(frozen=True)
class Column(Settings):
    """What is known of one column before anybody has counted anything."""

    name: str | int
    kind: Kind
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    """The range; values outside count as its ends. Without it, it is found with a share of the budget."""
    bins: int | tuple[float, ...] | None = None
    """How many cells of equal width to count in, or their edges."""
    categories: tuple[Any, ...] | None = None
    """All values. Without them, those that many records have are found with a share of the budget."""
    missing: bool | None = None
    """Whether made-up rows may have missing values here (None: where enough of the counted ones have)."""

    def __post_init__(self) -> None:
        for name in ("bins", "categories"):  # a study file has lists
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        super().__post_init__()
        if self.kind == "category":
            self._check_categories()
        else:
            self._check_range()

    def _check_categories(self) -> None:
        if self.categories is None:
            return
        if not all(isinstance(each, str | int | float) for each in self.categories):
            raise ConfigError(
                f"Column {self.name!r}: its categories must be text or numbers. Turn others into text at all sites, as "
                "intervals with .astype(str)."
            )
        if not all(map(fits_a_file, self.categories)):
            raise ConfigError(f"Column {self.name!r}: its categories must be text or numbers of at most 15 digits.")
        object.__setattr__(self, "categories", of_one_type(self.categories))
        empty = not self.categories and not self.missing
        if len({text_of(each, self.name) for each in self.categories or ()}) < len(self.categories) or empty:
            alike = "" if len(set(self.categories)) < len(self.categories) else " ('01' and '1' are the same number)"
            raise ConfigError(f"Column {self.name!r}: give its categories, each once{alike}.")
        if len(self.categories) > MOST_CATEGORIES:
            raise ConfigError(
                f"Column {self.name!r} has too many categories: {len(self.categories)}, and at most {MOST_CATEGORIES} "
                "can be counted. Group the rare ones first, or leave the column out."
            )

    def _check_range(self) -> None:
        if isinstance(self.bins, tuple):
            if len(self.bins) < 2 or not np.isfinite(self.bins).all() or (np.diff(self.bins) <= 0).any():
                raise ConfigError(f"Column {self.name!r}: the edges of its bins must be finite and increase.")
            object.__setattr__(self, "low", float(self.bins[0]))
            object.__setattr__(self, "high", float(self.bins[-1]))
        if (self.low is None) != (self.high is None):
            raise ConfigError(f"Column {self.name!r}: give both ends of its range, or none.")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ConfigError(
                f"Column {self.name!r}: its range must begin below its end, not {self.low} .. {self.high}."
            )
        many = self.bins if isinstance(self.bins, int) else len(self.bins or (0, 0)) - 1
        if not 1 <= many <= MOST_BINS:
            raise ConfigError(f"Column {self.name!r}: 1 to {MOST_BINS} bins can be counted, not {many}.")

    @property
    def seeks_range(self) -> bool:
        """Whether its range must be found first, with a share of the budget."""
        return self.kind != "category" and self.low is None

    @property
    def seeks_names(self) -> bool:
        """Whether its categories must be found first, with a share of the budget."""
        return self.kind == "category" and self.categories is None

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for a study file."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v is not None}


def read_column(name: str | int, said: Any, dtype: Any = None) -> Column:
    """A column from what a user says of it: ``(17, 90)``, ``["F", "M"]``, its kind, or a table of settings."""
    column = _read(name, said, dtype)
    holds = dtype is None or column.missing is not None or _may_miss(dtype)
    return column if holds else replace(column, missing=False)


def _read(name: str | int, said: Any, dtype: Any) -> Column:
    kind = None if dtype is None else kind_of(dtype, name)
    if isinstance(said, Column):
        return said
    if said is None:
        return Column(name, kind or "real", categories=_categories_of(dtype))
    if isinstance(said, str) and said in get_args(Kind):
        return Column(name, said, categories=_categories_of(dtype) if said == "category" else None)  # type: ignore[arg-type]
    if isinstance(said, Mapping):
        known = [field.name for field in fields(Column)][1:]
        for key in said:
            if key not in known:
                raise ConfigError(f"Column {name!r}: unknown setting {key!r}.{nearest(key, known)} Known: {known}.")
        settings = {"kind": _kind(said, kind)} | dict(said)
        if settings["kind"] == "category":
            settings.setdefault("categories", _categories_of(dtype))
        return Column(name, **{key: _number(key, value) for key, value in settings.items()})
    if isinstance(said, Sequence) and not isinstance(said, str | bytes):
        values = [value.item() if isinstance(value, np.generic) else value for value in said]
        if len(values) == 2 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            given: dict[str, Any] = {"low": values[0], "high": values[1]}
            return Column(name, _kind(given, kind), float(values[0]), float(values[1]))
        return Column(name, "category", categories=tuple(map(plain, values)))
    raise ConfigError(
        f"Column {name!r}: declare its range as (low, high), its categories as a list, its kind ({_KINDS}) or a table "
        f"of settings such as {{'low': 0, 'high': 90, 'bins': 18}}, not {type(said).__name__}."
    )


def _kind(said: Mapping[str, Any], kind: Kind | None) -> Kind:
    if "categories" in said:
        return "category"
    if kind in ("integer", "real") or (kind is not None and "low" not in said and "bins" not in said):
        return kind
    ends = [said.get("low"), said.get("high")]
    return "integer" if all(isinstance(end, int) for end in ends) and "low" in said else "real"


def _number(key: str, value: Any) -> Any:
    if key in ("low", "high") and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if key == "bins" and isinstance(value, list | tuple):
        return tuple(float(edge) for edge in value)
    if key == "categories" and isinstance(value, list | tuple | np.ndarray):
        return tuple(map(plain, value))
    return value


def kind_of(dtype: Any, name: str | int) -> Kind:
    """What kind of column a dtype makes."""
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype):
        return "category"
    if types.is_integer_dtype(dtype):
        return "integer"
    if types.is_float_dtype(dtype):
        return "real"
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        return "category"
    raise ConfigError(f"Column {name!r} holds {dtype}: turn it into numbers or categories first, or leave it out.")


def _categories_of(dtype: Any) -> tuple[Any, ...] | None:
    if isinstance(dtype, pd.CategoricalDtype):
        return tuple(map(plain, dtype.categories.tolist()))
    return (False, True) if dtype is not None and types.is_bool_dtype(dtype) else None


def _may_miss(dtype: Any) -> bool:
    """Whether a column of this type can have missing values."""
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def plain(value: Any) -> Any:
    """A category without NumPy's types."""
    return value.item() if isinstance(value, np.generic) else value


def template_of(X: Any, where: str) -> pd.DataFrame:
    """A table's columns and types without its rows; what is no table of columns is an error that says what to do."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[:0]
    if not isinstance(X, np.ndarray) or X.ndim != 2:
        shape = f"rows of shape {X.shape[1:]}" if isinstance(X, np.ndarray) else "sparse rows"
        raise ConfigError(f"{where}: a public set is made together for tables only, not for {shape}. {_NOT_FOR_IMAGES}")
    if X.dtype == object:  # numbers and text in one array: what its columns hold says what they are
        return pd.DataFrame(X).infer_objects().iloc[:0]
    return pd.DataFrame(X[:0])


def check_number(columns: int) -> None:
    """An error where there are more columns than can be counted."""
    if not 1 <= columns <= MOST_COLUMNS:
        raise ConfigError(
            f"A public set is made together for 1 to {MOST_COLUMNS} columns, not {columns}: noise grows with every "
            f"column. Choose those that matter. {_NOT_FOR_IMAGES}"
        )


def require_table(columns: Sequence[Column]) -> None:
    """An error where rows are nothing but one text each, for which no categories were declared."""
    if len(columns) == 1 and columns[0].seeks_names:
        raise ConfigError(
            f"Column {columns[0].name!r} is all there is, and it holds text: a public set is made together for tables "
            f"only, not for texts. {_NOT_FOR_IMAGES} If it holds categories, declare them in columns."
        )


def read_columns(said: Mapping[Any, Any] | None, template: pd.DataFrame) -> tuple[Column, ...]:
    """All columns of a table by what was declared; one that is not in the table is an error."""
    check_number(len(template.columns))
    declared = {} if said is None else dict(said)
    for name in declared:
        if name not in template.columns:
            known = [str(each) for each in template.columns]
            raise ConfigError(f"columns: there is no column {name!r}.{nearest(str(name), known)}")
    found = [read_column(_plain_name(name), declared.get(name), template[name].dtype) for name in template.columns]
    require_table(found)
    return tuple(found)


def _plain_name(name: Any) -> str | int:
    if isinstance(name, str):
        return name
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return int(name)
    raise ConfigError(f"Columns are named by text or numbers, not {name!r}.")


def same_columns(first: Sequence[Column], other: Sequence[Column]) -> str | None:
    """How two sites' columns differ, in words; None where they agree."""
    for mine, theirs in zip(first, other, strict=True):
        if mine.kind != theirs.kind:
            return f"column {mine.name!r} is {theirs.kind} here and {mine.kind} there"
        if mine.categories != theirs.categories:
            return f"column {mine.name!r} has other categories, or the same in another order"
    return None


def without_table(said: Mapping[str, Any]) -> tuple[Column, ...]:
    """Columns of a study whose sites bring their own tables: each must be declared."""
    return tuple(read_column(name, each) for name, each in said.items())


def widened(column: Column, low: float, high: float) -> Column:
    """The column with the range that was found for it."""
    if column.kind == "integer":
        low, high = math.floor(low), math.ceil(high)
    return replace(column, low=float(low), high=float(high))
