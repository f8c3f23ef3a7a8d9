"""Disjoint subsets of rows, a teacher on each, and how the teachers vote: the first half of PATE and of FedKT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core import tables
from collegium.core.labels import Codes, code_dtype
from collegium.core.samples import LabelledData
from collegium.learners.base import LocalUpdate, Trainer
from collegium.privacy.learners.assignment import teacher_of

Rows = NDArray[np.intp]
_REHEARSAL_ROWS: Final = 50


def random_subsets(n: int, subsets: int, rng: np.random.Generator) -> list[Rows]:
    """`n` rows dealt out at random, in equal parts; fewer subsets where there are fewer rows than that."""
    return np.array_split(rng.permutation(n), min(n, subsets))


def hashed_subsets(X: Any, subsets: int, partition: int = 0) -> list[Rows]:
    """Rows dealt out by a hash of their own values, so that no row's presence moves another; some may get none.

    Each partition of the same rows takes another digit of the hash, in base `subsets`: they are independent.
    """
    digits = teacher_of(X, subsets ** (partition + 1)) // subsets**partition
    return [np.flatnonzero(digits == subset) for subset in range(subsets)]


def count_votes(
    trainer: Trainer,
    rows: LabelledData,
    subsets: Sequence[Rows],
    queried: Any,
    n_classes: int,
    rng: np.random.Generator,
    *,
    private: bool = False,
) -> NDArray[np.int64]:
    """How many teachers, one per subset, vote for each class; of shape (queried rows, classes).

    With `private` every vote is a function of that teacher's own rows, whatever happens to the others.
    """
    votes = np.zeros((tables.n_rows(queried), n_classes), dtype=np.int64)
    samples = np.arange(len(votes))
    # A generator for each teacher: what one of them draws moves no other one's numbers.
    for own, own_rng in zip(subsets, rng.spawn(len(subsets)), strict=True):
        if len(own):  # a teacher without rows has no opinion
            subset = LabelledData(tables.take(rows.X, own), rows.codes[own])
            votes[samples, _opinion(trainer, subset, queried, own_rng, private=private)] += 1
    return votes


def rehearse(trainer: Trainer, public: Any, n_classes: int, rng: np.random.Generator) -> None:
    """Let a teacher learn public rows with made-up labels, so that a learner that cannot work fails on those."""
    rows = tables.take(public, np.arange(min(_REHEARSAL_ROWS, tables.n_rows(public))))
    made_up = (np.arange(tables.n_rows(rows)) % n_classes).astype(code_dtype(n_classes))
    _opinion(trainer, LabelledData(rows, made_up), rows, rng, private=False)


def _opinion(
    trainer: Trainer, subset: LabelledData, queried: Any, rng: np.random.Generator, *, private: bool
) -> Codes | int:
    nothing = LabelledData(tables.take(subset.X, np.zeros(0, dtype=np.intp)), subset.codes[:0])
    try:
        return trainer.fit(subset + nothing, None, rng, LocalUpdate()).predict_codes(queried)
    except Exception:
        if not private:
            raise
        # An error that gets out would tell of these rows: the teacher says what most of them are.
        return int(np.bincount(subset.codes).argmax())
