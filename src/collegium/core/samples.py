"""Rows with labels, and the mixture of private and pseudo-labeled rows that co-training learns from.

Steps get a site's private rows as `PrivateData`: they can be mixed and passed to ``site.fit`` unread, and every read is
recorded. So the gate knows of every release whether private data reached it other than through a private learner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, read_only
from collegium.wire import tables


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Rows with class codes."""

    X: Any
    codes: Codes

    def __len__(self) -> int:
        return len(self.codes)

    def __add__(self, pseudo: LabelledData) -> Mixture:
        return Mixture(self, pseudo)


class PrivateData(LabelledData):
    """A site's private rows. A step may read them, but that is recorded: what it releases then is unprotected."""

    def __init__(self, rows: LabelledData, on_read: Callable[[], None]) -> None:
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_on_read", on_read)

    def opened(self) -> LabelledData:
        """The rows themselves, recorded as read."""
        self._on_read()  # type: ignore[attr-defined]
        return self.closed()

    def closed(self) -> LabelledData:
        """The rows for a private learner, which pays for them. Only ``site.fit`` calls this."""
        rows: LabelledData = self._rows  # type: ignore[attr-defined]
        return rows

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows' features."""
        return self.opened().X

    @property
    def codes(self) -> Codes:
        """The rows' class codes."""
        return self.opened().codes


class PrivateRows:
    """A site's own rows without labels. Reading them is recorded, as for those with labels."""

    def __init__(self, X: Any, on_read: Callable[[], None]) -> None:
        self._X, self._on_read = X, on_read

    def __len__(self) -> int:
        self._on_read()
        return tables.n_rows(self._X)

    @property
    def X(self) -> Any:  # noqa: N802 - the papers' symbol
        """The rows' features."""
        self._on_read()
        return self._X


@dataclass(frozen=True, eq=False)
class PseudoLabelled(LabelledData):
    """Public rows with labels; `known` says which rows of the public set they are.

    Sites of one process share them where they learn from the same labels.
    """

    known: NDArray[np.bool_]

    def values(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The labels as values of these classes, made once for all sites."""
        made: tuple[NDArray[Any], NDArray[Any]] | None = vars(self).get("_values")
        if made is None or made[0] is not classes:
            made = classes, read_only(classes[self.codes])
            object.__setattr__(self, "_values", made)
        return made[1]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Private rows, and pseudo-labeled public rows beside them (the papers' D_i u P)."""

    private: LabelledData
    pseudo: LabelledData
    weights: NDArray[np.float64] | None = None
    """What each pseudo-labeled row counts, where a private one counts 1 (None: 1)."""

    def weighted(self, share: float) -> Mixture:
        """The same, with all pseudo-labeled rows counting `share` as much."""
        if share == 1:
            return self
        before = np.ones(len(self.pseudo)) if self.weights is None else self.weights
        return replace(self, weights=share * before)

    def thinned(self, rng: np.random.Generator) -> Mixture:
        """For learners that take no weights: a pseudo-labeled row is kept as probably as it weighs, and counts 1."""
        if self.weights is None:
            return self
        largest = max(1.0, float(self.weights.max(initial=0.0)))
        kept = np.flatnonzero(rng.random(len(self.pseudo)) * largest < self.weights)
        return Mixture(self.private, LabelledData(tables.take(self.pseudo.X, kept), self.pseudo.codes[kept]))

    @property
    def sample_weight(self) -> NDArray[np.float64] | None:
        """The weight of each row of `joined`."""
        return None if self.weights is None else np.concatenate([np.ones(len(self.private)), self.weights])

    def joined(self) -> LabelledData:
        """Both as one table, for learners that do not tell them apart."""
        if not len(self.pseudo):
            return self.private
        X = tables.stack([self.private.X, self.pseudo.X])
        return LabelledData(X, np.concatenate([self.private.codes, self.pseudo.codes]))
