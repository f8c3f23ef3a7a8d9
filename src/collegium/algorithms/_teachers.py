"""Disjoint subsets of rows, a teacher on each, and how the teachers vote: the first half of PATE and of FedKT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, Labels, code_dtype
from collegium.core.meeting import abreast
from collegium.core.recipes import Recipe
from collegium.core.samples import LabelledData
from collegium.core.tally import winners
from collegium.errors import ConfigError
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.hindsight import hindsight_charge
from collegium.privacy.learners.assignment import teacher_of
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite
    from collegium.learners.base import SiteModel, Trainer
    from collegium.privacy.mechanisms.noisy_max import NoisyMax

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
    return [
        LabelledData(tables.frozen(tables.take(rows.X, own)), rows.codes[own]) if len(own) else None for own in subsets
    ]


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
    asked = [
        partial(_opinion, trainer, own, queried, own_rng, private=private)
        for own, own_rng in zip(subsets, rng.spawn(len(subsets)), strict=True)
        if own is not None
    ]
    for trained, answers in abreast(asked):
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


def ask_teachers(
    site: ActiveSite,
    partitions: int,
    subsets: int,
    queries: int,
    learner: Recipe | None = None,
    mechanism: NoisyMax | None = None,
    *,
    data_dependent: bool = False,
) -> list[Labels]:
    """What teachers of disjoint subsets of the private rows say of public rows: labels from each partition.

    Each partition divides all private rows into `subsets`, trains a teacher on each, and has them label `queries`
    public rows of its own, drawn at random. Without a mechanism rows are dealt at random (into fewer subsets where
    there are fewer rows), count as read, and the majority wins. With one, each row's hash says where it belongs,
    the winner of noisy counts is all that becomes known, and that is charged; `data_dependent`: by what the votes show,
    which is private itself, instead of what was known beforehand. `learner` is the teachers' (None: the site's own).
    """
    if learner is None and site.has_private_learner:
        raise ConfigError("Teachers cannot be private learners, as this site's own is: name a teacher to use instead.")
    trainer = site.trainer(learner)

    def asked() -> list[NDArray[np.intp]]:
        return [np.sort(site.rng.choice(len(site.public), queries, replace=False)) for _ in range(partitions)]

    with site.watch.time("teachers"), site.watch.time("fit"):
        if mechanism is None:
            rows = site.data.opened()
            dealt = [random_subsets(len(rows), subsets, site.rng) for _ in range(partitions)]
            queried = asked()
            votes = _votes(site, trainer, rows, dealt, queried, subsets)
            answers = [winners(counts.T, int(site.rng.integers(2**63))) for counts in votes]
        else:
            charge = _votes_charge(site, mechanism, partitions, queries)
            site.before_private_fit(charge)
            rehearse(trainer, site.public.X, site.n_classes, site.rng)
            queried = asked()

            def vote() -> list[NDArray[np.int64]]:
                rows = site.data.closed()
                dealt = [hashed_subsets(rows.X, subsets, j) for j in range(partitions)]
                return _votes(site, trainer, rows, dealt, queried, subsets, private=True)

            def nobody() -> list[NDArray[np.int64]]:
                return [np.zeros((queries, site.n_classes), dtype=np.int64) for _ in range(partitions)]

            votes = site.privately(charge, vote, nobody)
            answers = [mechanism.release(counts, site.noise) for counts in votes]
            if data_dependent:
                site.exposure.restate_fit(hindsight_charge(mechanism, np.concatenate(votes), charge))
    return [_sparse_labels(site, own, codes) for own, codes in zip(queried, answers, strict=True)]


def _votes(
    site: ActiveSite,
    trainer: Trainer,
    rows: LabelledData,
    dealt: Sequence[Sequence[Rows]],
    queried: Sequence[Rows],
    subsets: int,
    *,
    private: bool = False,
) -> list[NDArray[np.int64]]:
    """The teachers' votes on the queried rows of each partition."""
    fewest = min(sum(len(own) > 0 for own in parts) for parts in dealt)
    if fewest < subsets:
        site.noted["teachers"] = fewest
    votes = []
    for parts, asked in zip(dealt, queried, strict=True):
        own, U = parts_of(rows, parts), tables.frozen(tables.take(site.public.X, asked))
        votes.append(count_votes(trainer, own, U, site.n_classes, site.rng, private=private)[0])
    return votes


def _votes_charge(site: ActiveSite, mechanism: NoisyMax, partitions: int, queries: int) -> Charge:
    each = mechanism.charge(queries, site.n_classes)
    # A row that is added or removed changes one teacher of each partition; one that is replaced may change two.
    charge = replace(each, events=tuple(e.times(partitions) for e in each.events), relation="add_remove")
    return charge.assuming(SEEDED_NOISE) if site.noise.seeded else charge


def _sparse_labels(site: ActiveSite, rows: NDArray[np.intp], codes: Codes) -> Labels:
    """Labels of some public rows."""
    every = np.full(len(site.public), -1, dtype=codes.dtype)
    every[rows] = codes
    return Labels(every, site.n_classes)
