"""Labels of the public set, as class codes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError

Codes = NDArray[np.signedinteger[Any]]
_MANY_VALUES: Final = 20


def code_dtype(n_classes: int) -> type[np.signedinteger[Any]]:
    """The smallest signed type that holds -1 .. n_classes - 1."""
    if n_classes <= 128:
        return np.int8
    return np.int16 if n_classes <= 32768 else np.int32


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array for those who share it: nobody can change it through this view."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class Labels:
    """One class code per public sample; -1 where there is no label (no consensus, or an abstention).

    Sites of one process may share them, so `codes` cannot be changed: copy them first.
    """

    codes: Codes
    n_classes: int

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ConfigError(f"Labels must be one integer per sample, got {codes.dtype} of shape {codes.shape}.")
        if len(codes) and (int(codes.min()) < -1 or int(codes.max()) >= self.n_classes):
            raise ConfigError(f"Labels must be class codes from -1 to {self.n_classes - 1}.")
        # Whoever made them may go on with that array: what is shared is a copy of it.
        codes = codes.astype(code_dtype(self.n_classes), copy=codes.flags.writeable)
        object.__setattr__(self, "codes", read_only(codes))

    def __len__(self) -> int:
        return len(self.codes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        return self.n_classes == other.n_classes and np.array_equal(self.codes, other.codes)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Which samples have a label."""
        return read_only(self.codes >= 0)

    @property
    def coverage(self) -> float:
        """The share of samples that have a label."""
        return np.count_nonzero(self.known) / len(self) if len(self) else 0.0

    @cached_property
    def digest(self) -> str:
        """A short name for exactly these labels, the same at every site."""
        named = hashlib.sha256(f"{self.n_classes}:".encode())
        named.update(np.ascontiguousarray(self.codes, dtype="<i4").data)
        return named.hexdigest()[:16]

    def changed_from(self, other: Labels | None) -> int:
        """How many samples have another label than in `other` (all that have one, if there is no `other`)."""
        if other is None:
            return int(self.known.sum())
        return int(np.count_nonzero(self.codes != other.codes))


def as_labels(y: Any, where: str) -> NDArray[Any]:
    """Labels as one flat array; missing labels are an error, since a private sample without one teaches nothing."""
    import pandas as pd  # a hospital's page knows labels, and reads no table

    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ConfigError(f"{where} must be one label per row, got an array of shape {values.shape}.")
    if np.any(pd.isna(values)):
        raise ConfigError(f"{where} has missing labels: drop those rows, or keep them as unlabeled data.")
    if values.dtype == object:
        kinds = {type(value) for value in values}
        if len(kinds) > 1:
            raise ConfigError(f"{where} mixes labels of types {sorted(kind.__name__ for kind in kinds)}: use one type.")
        values = np.array(values.tolist())
    return values


def encode_labels(y: NDArray[Any], classes: NDArray[Any], where: str) -> Codes:
    """Labels as positions in the study's classes."""
    if not len(y):  # of any type: a site may have no labels
        return np.zeros(0, code_dtype(len(classes)))
    positions = np.searchsorted(classes, y)
    found = np.minimum(positions, len(classes) - 1)
    if not np.all(classes[found] == y):
        unknown = np.unique(y[classes[found] != y])
        raise ConfigError(
            f"{where} has labels that are not classes of this study: {shorten(unknown)}. Classes: {shorten(classes)}."
        )
    return found.astype(code_dtype(len(classes)))


def names_of(classes: NDArray[Any]) -> list[str]:
    """How classes are written in tables and files."""
    return [str(value) for value in classes.tolist()]


def shorten(values: NDArray[Any], most: int = 8) -> str:
    """A few values for a message."""
    shown = ", ".join(repr(value) for value in values[:most].tolist())
    return shown + (", ..." if len(values) > most else "")


def look_like_measurements(y: NDArray[Any]) -> bool:
    """Whether labels are so many different numbers that they are hardly classes, but the target of a regression."""
    if y.dtype.kind != "f":
        return False
    values = np.unique(y)
    return len(values) > _MANY_VALUES and (not np.array_equal(values, np.round(values)) or len(values) > len(y) / 2)


def look_like_counts(y: NDArray[Any]) -> bool:
    """Whether labels are many whole numbers that are not 0, 1, 2, ... as codes of classes are: ages, days, amounts.

    They may be classes all the same, such as codes of diagnoses, so that this is no more than a reason to ask.
    """
    values = np.unique(y) if y.dtype.kind in "iu" else y[:0]
    in_a_row = len(values) > 0 and values[0] in (0, 1) and int(values[-1]) - int(values[0]) + 1 == len(values)
    return len(values) > _MANY_VALUES and not in_a_row


def plain_spelling(value: Any) -> str:
    """A label without its case and its blanks at the ends, or doubled."""
    return " ".join(str(value).split()).casefold()


def other_spellings(classes: NDArray[Any]) -> str:
    """Classes that differ from one another only by case or blanks, for a message; nothing if there are none."""
    alike: dict[str, list[str]] = {}
    for value in classes.tolist() if classes.dtype.kind in "US" else ():
        alike.setdefault(plain_spelling(value), []).append(repr(value))
    found = [" and ".join(spelled) for spelled in alike.values() if len(spelled) > 1]
    return ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
