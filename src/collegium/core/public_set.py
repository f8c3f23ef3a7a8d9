"""The public set: rows without labels that everybody has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.labels import Labels, read_only
from collegium.core.samples import LabelledData, PseudoLabelled
from collegium.wire import tables

T = TypeVar("T")


def with_opinion(public: Any, opinion: pd.DataFrame | None) -> Any:
    """The public rows, with how probable each class is for each of them, if that is known."""
    if opinion is None or isinstance(public, tuple):  # a method that learns from labels has no use for it
        return public
    before = public if isinstance(public, PublicSet) else PublicSet(tables.as_table(public, "public"))
    known = PublicSet(before.X)
    known.made, known.opinion = before.made, opinion
    return known


class PublicSet:
    """The unlabeled data that everybody has, identified by its hash."""

    made: Mapping[str, Any] | None = None
    """How it was made, as plain data, if it is made up."""
    opinion: pd.DataFrame | None = None
    """How probable each class is for each row, by the model that made them up; for the coordinator's rules alone."""

    def __init__(self, X: Any) -> None:
        self.X = tables.frozen(X)
        self.digest = tables.digest(X)
        self._derived: dict[str, Any] = {}
        self._last: tuple[NDArray[np.bool_], Any] | None = None
        self._last_labelled: tuple[Labels, LabelledData] | None = None
        self._taken: tuple[NDArray[Any], Any] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return tables.n_rows(self.X)

    def derived(self, name: str, make: Callable[[Any], T]) -> T:
        """Something computed from the public rows alone, once for all sites in this process."""
        with self._lock:
            if name not in self._derived:
                self._derived[name] = make(self.X)
            value: T = self._derived[name]
            return value

    def labelled(self, L: Labels | None) -> LabelledData:
        """(U, L): the public samples that have a label (none of them, before the first consensus)."""
        if L is None:
            return LabelledData(tables.take(self.X, []), np.zeros(0, dtype=np.int8))
        last = self._last_labelled  # sites of one process often learn from the very same labels
        if last is None or last[0] is not L:
            known = L.known
            codes = L.codes if known.all() else read_only(L.codes[known])
            last = self._last_labelled = L, PseudoLabelled(self._some(known), codes, known)
        return last[1]

    def _some(self, known: NDArray[np.bool_]) -> Any:
        """These rows. Those of the last call are kept, since all sites of a round learn from the same ones."""
        if known.all():
            return self.X
        with self._lock:
            if self._last is None or not np.array_equal(self._last[0], known):
                self._last = known, tables.frozen(tables.take(self.X, known))
            return self._last[1]

    def take(self, rows: NDArray[np.integer[Any]]) -> Any:
        """These rows, in this order. Those of the last call are kept: all sites of a round are asked about the same."""
        with self._lock:
            if self._taken is None or not np.array_equal(self._taken[0], rows):
                self._taken = np.array(rows), tables.frozen(tables.take(self.X, rows))
            return self._taken[1]
