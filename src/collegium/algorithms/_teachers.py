"""Disjoint subsets of rows, a teacher on each, and how the teachers vote: the first half of PATE and of FedKT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype
from collegium.core.samples import LabelledData
from collegium.privacy.learners.assignment import teacher_of
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.learners.base import SiteModel, Trainer

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


def parts_of(rows: LabelledData, subsets: Sequence[Rows]) -> list[LabelledData | None]:
    """The rows of each subset; None where there are none."""
    return [LabelledData(tables.take(rows.X, own), rows.codes[own]) if len(own) else None for own in subsets]


def count_votes(
    trainer: Trainer,
    subsets: Sequence[LabelledData | None],
    queried: Any,
    n_classes: int,
    rng: np.random.Generator,
    *,
    private: bool = False,
) -> tuple[NDArray[np.int64], SiteModel | None]:
    """How many teachers, one per subset, vote for each class; of shape (queried rows, classes). And the last teacher.

    A subset without rows is None: its teacher has no opinion, and no other one's is moved by that. With `private` every
    vote is a function of that teacher's own rows, whatever happens to the others.
    """
    votes = np.zeros((tables.n_rows(queried), n_classes), dtype=np.int64)
    samples, teacher = np.arange(len(votes)), None
    # A generator for each teacher: what one of them draws moves no other one's numbers.
    for own, own_rng in zip(subsets, rng.spawn(len(subsets)), strict=True):
        if own is not None:
            trained, answers = _opinion(trainer, own, queried, own_rng, private=private)
            votes[samples, answers] += 1
            teacher = trained or teacher
    return votes, teacher


def rehearse(trainer: Trainer, public: Any, n_classes: int, rng: np.random.Generator) -> None:
    """Let a teacher learn public rows with made-up labels, so that a learner that cannot work fails on those."""
    rows = tables.take(public, np.arange(min(_REHEARSAL_ROWS, tables.n_rows(public))))
    made_up = (np.arange(tables.n_rows(rows)) % n_classes).astype(code_dtype(n_classes))
    _opinion(trainer, LabelledData(rows, made_up), rows, rng, private=False)


def _opinion(
    trainer: Trainer, subset: LabelledData, queried: Any, rng: np.random.Generator, *, private: bool
) -> tuple[SiteModel | None, Codes | int]:
    nothing = LabelledData(tables.take(subset.X, np.zeros(0, dtype=np.intp)), subset.codes[:0])
    try:
        teacher = trainer.fit(subset + nothing, None, rng)
        return teacher, teacher.predict_codes(queried)
    except Exception:
        if not private:
            raise
        # An error that gets out would tell of these rows: the teacher says what most of them are.
        return None, int(np.bincount(subset.codes).argmax())
