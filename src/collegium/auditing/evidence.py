"""What an attacker reads about each canary from one thing that it sees: a number from 0 to 1, larger for a member.

A release of labels says of a canary whether the site gives it the canary's own label, at the canary's own row of a
forged public set and at the rows that are nearest to it; weights say how probable the canary's label is to the net.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from collegium.core.labels import Labels
from collegium.core.releases import ApprovalBits, HardLabels, RawRecords, VoteCounts, VoteSum
from collegium.core.samples import LabelledData
from collegium.core.weights import SomeSoftLabels, Weights
from collegium.errors import ConfigError
from collegium.secure.secret_counts import NoisySum
from collegium.together.evidence import evidence
from collegium.wire import tables

Floats = NDArray[np.float64]
_NEAREST: Final = 10


@dataclass(frozen=True, eq=False)
class Reading:
    """Numbers from 0 to 1, one row per target and one column per place where it was looked for."""

    values: Floats
    hard: bool
    """Yes or no, rather than a probability."""
    expected: Floats | None = None
    """The same numbers by a model that has seen no canary, where there is one."""


@dataclass(frozen=True, eq=False)
class Targets:
    """The records that are looked for: the canaries, then the population (which is never there)."""

    X: Any
    codes: NDArray[np.int64]
    canaries: int
    rows: NDArray[np.intp]
    """Of the public set, for each canary: its own row first if it was forged into it, then the nearest ones."""
    net: Callable[[str, Mapping[str, NDArray[Any]]], Any] | None = None
    """A net with given weights, of a given site's kind."""
    expected: Floats | None = None
    """How probable each target's label is to a model that has seen no canary, in one column."""
    expected_at_rows: Floats | None = None
    """The same at `rows`."""
    known: LabelledData | None = None
    """All records but the canaries, which an attacker is granted to know."""

    def look(self, value: Any, args: Mapping[str, Any]) -> Reading | None:
        """What a value says of each canary, beside what was to be expected; None if nothing can be read from it."""
        reading: Reading | None = self.read(value, args)
        return reading if reading is None else self._beside(reading)

    def _beside(self, reading: Reading) -> Reading:
        at_rows = self.rows.shape[1] and reading.values.shape == self.rows.shape
        beside = self.expected_at_rows if at_rows else self.expected
        if beside is None or reading.expected is not None:
            return reading
        return replace(reading, expected=np.broadcast_to(beside[: len(reading.values)], reading.values.shape))

    @singledispatchmethod
    def read(self, value: Any, args: Mapping[str, Any]) -> Reading | None:
        """What one kind of value says of each canary."""
        return None

    @read.register
    def _(self, value: Labels, args: Mapping[str, Any]) -> Reading:
        said = value.codes[self.rows]
        known = np.where(said < 0, 0.5, said == self._own_codes)
        return Reading(np.asarray(known, dtype=np.float64), hard=True)

    @read.register
    def _(self, value: HardLabels, args: Mapping[str, Any]) -> Reading:
        return cast(Reading, self.read(value.labels, args))

    @read.register
    def _(self, value: ApprovalBits, args: Mapping[str, Any]) -> Reading:
        return Reading(value.to_bits()[self.rows, self._own_codes].astype(np.float64), hard=True)

    @read.register
    def _(self, value: VoteCounts, args: Mapping[str, Any]) -> Reading:
        return self._share(np.asarray(value.counts, dtype=np.float64))

    @read.register
    def _(self, value: VoteSum, args: Mapping[str, Any]) -> Reading:
        return self._share(value.tally.counts.T.astype(np.float64))

    @read.register
    def _(self, value: NoisySum, args: Mapping[str, Any]) -> Reading | None:
        """By the cells that a canary is in, for an attacker who knows all other records."""
        if self.known is None:
            return None
        canaries = LabelledData(tables.take(self.X, np.arange(self.canaries)), self.codes[: self.canaries])
        told = evidence(value.counts, value.noise, self.known, canaries, args)
        likely = expit(np.clip(told, -6.0, 6.0))[:, None]
        return Reading(likely, hard=False, expected=np.full(likely.shape, 0.5))  # no model says anything about cells

    @read.register
    def _(self, value: SomeSoftLabels, args: Mapping[str, Any]) -> Reading | None:
        known = np.asarray(value.values, dtype=np.float64)
        asked = [each for each in args.values() if isinstance(each, np.ndarray) and each.dtype.kind in "iu"]
        about = next((each for each in asked if each.ndim == 1 and len(each) == len(known)), None)
        if about is None:
            return self._soft(known)
        size = int(max(self.rows.max(initial=0), about.max(initial=0))) + 1
        whole = np.full((size, known.shape[1]), np.nan)
        whole[about] = known
        return self._soft(whole)

    @read.register
    def _(self, value: np.ndarray, args: Mapping[str, Any]) -> Reading:
        return self._soft(value.astype(np.float64))

    @read.register
    def _(self, value: Weights, args: Mapping[str, Any]) -> Reading | None:
        reading: Reading | None = self.read(value.arrays, args)
        return reading

    @read.register
    def _(self, value: dict, args: Mapping[str, Any]) -> Reading | None:  # type: ignore[type-arg]
        """By a net's weights; of several nets in one, named with prefixes, each by itself and their sum."""
        nets: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in value.items():
            prefix, _, inner = name.rpartition(": ")
            nets.setdefault(prefix, {})[inner] = array
        parts = list(nets.values())
        if len(parts) > 1 and all(part.keys() == parts[0].keys() for part in parts):
            parts.append({name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]})
        readings = []
        for part in parts:
            with suppress(ConfigError):  # the weights of something else than the net
                if self.net is not None:
                    readings.append(self._of_model(self.net(str(args.get("like", "")), part)).values)
        return Reading(np.hstack(readings), hard=False) if readings else None

    @read.register
    def _(self, value: RawRecords, args: Mapping[str, Any]) -> Reading:
        handed = _row_hashes(tables.from_arrays(value.header, value.columns), value.codes)
        wanted = _row_hashes(tables.take(self.X, np.arange(self.canaries)), self.codes[: self.canaries])
        return Reading(np.isin(wanted, handed).astype(np.float64)[:, None], hard=True)

    def by_model(self, model: Any) -> Reading:
        """What a model says of the records themselves: how probable their labels are, or whether it gives them."""
        return self._beside(self._of_model(model))

    def _of_model(self, model: Any) -> Reading:
        places = np.arange(len(self.codes))
        try:
            likely = np.asarray(model.predict_proba(self.X), dtype=np.float64)[places, self.codes]
        except AttributeError:  # a learner without probabilities
            return Reading((model.predict_codes(self.X) == self.codes).astype(np.float64)[:, None], hard=True)
        return Reading(np.nan_to_num(likely, nan=0.5)[:, None], hard=bool(np.isin(likely, (0.0, 1.0)).all()))

    def by_labels(self, right: NDArray[np.bool_], sure: Floats) -> Reading:
        """What labels of the canaries say, with how sure each one is."""
        return self._beside(Reading(np.where(right, sure, 1 - sure)[:, None], hard=False))

    @property
    def _own_codes(self) -> NDArray[np.int64]:
        return self.codes[: self.canaries, None]

    def _share(self, counts: Floats) -> Reading:
        total = np.maximum(counts.sum(axis=1), 1.0)
        return Reading((counts / total[:, None])[self.rows, self._own_codes], hard=False)

    def _soft(self, values: Floats) -> Reading:
        known = ~np.isnan(values).any(axis=1)
        if known.any() and (values[known].min() < -1e-6 or values[known].max() > 1 + 1e-6):  # before the softmax
            values = softmax(values, axis=1)
        return Reading(np.nan_to_num(values[self.rows, self._own_codes], nan=0.5), hard=False)


@dataclass
class Evidence:
    """All that one run of the game told the attacker, by where it comes from."""

    readings: dict[str, Reading] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    """Kinds of what was seen and could not be read, and how many."""

    def add(self, name: str, value: Any, reading: Reading | None) -> None:
        """Keep what was read from a value."""
        if reading is None:
            kind = type(value).__name__
            self.unread[kind] = self.unread.get(kind, 0) + 1
            return
        number = sum(known.rpartition("#")[0] == name for known in self.readings)
        self.readings[f"{name}#{number}"] = reading


def nearest_rows(public: Any, X: Any, *, own_row: bool) -> NDArray[np.intp]:
    """For each row of X the nearest public rows; those of a forged set, which begins with X, have their own first."""
    if public is None or not tables.n_rows(public):
        return np.zeros((tables.n_rows(X), 0), dtype=np.intp)
    own = np.arange(tables.n_rows(X), dtype=np.intp)[:, None]
    numbers = _numbers(tables.stack([public, X]))
    if numbers is None:
        return own if own_row else own[:, :0]
    split = tables.n_rows(public)
    count = min(_NEAREST + own_row, split)
    found = NearestNeighbors(n_neighbors=count).fit(numbers[:split]).kneighbors(numbers[split:], return_distance=False)
    if not own_row:
        return np.asarray(found, dtype=np.intp)
    others = [row[row != place][: count - 1] for place, row in enumerate(found)]
    return np.hstack([own, np.asarray(others, dtype=np.intp).reshape(len(own), count - 1)])


def _numbers(X: Any) -> Any:
    """A table as numbers of comparable size; None if that cannot be done, as with text."""
    if sparse.issparse(X):
        return X
    if isinstance(X, pd.DataFrame):
        X = pd.get_dummies(X, dummy_na=False).to_numpy(dtype=np.float64, na_value=np.nan)
    if X.dtype.kind not in "biuf":
        return None
    return StandardScaler().fit_transform(np.nan_to_num(X.reshape(len(X), -1).astype(np.float64)))


def _row_hashes(X: Any, codes: NDArray[Any]) -> NDArray[np.uint64]:
    dense: Any = X.toarray() if hasattr(X, "toarray") else X
    frame = (
        dense.reset_index(drop=True) if isinstance(dense, pd.DataFrame) else pd.DataFrame(dense.reshape(len(dense), -1))
    )
    labelled = frame.assign(**{"its class": np.asarray(codes, dtype=np.int64)}).set_axis(
        range(frame.shape[1] + 1), axis=1
    )
    return np.asarray(pd.util.hash_pandas_object(labelled, index=False), dtype=np.uint64)
