"""A site asks teachers of its own: FedKT's first half, with and without noise on their votes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms import _teachers as teachers
from collegium.core.labels import Codes, Labels
from collegium.core.recipes import Recipe
from collegium.core.tally import winners
from collegium.errors import ConfigError
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite
    from collegium.privacy.mechanisms.noisy_max import NoisyMax


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
    the winner of noisy counts is all that becomes known, and that is charged.

    Parameters
    ----------
    partitions, subsets, queries:
        How many of each.
    learner:
        The teachers' learner (None: the site's own).
    mechanism:
        The noise on each partition's votes.
    data_dependent:
        Charge what the votes show it cost, which is private itself, instead of what was known beforehand.
    """
    if learner is None and site.has_private_learner:
        raise ConfigError("Teachers are ordinary learners and this site's own is private: say which teacher it uses.")
    trainer = site.trainer(learner)
    with site.watch.time("teachers"), site.watch.time("fit"):
        if mechanism is None:
            rows = site.data.opened()
            dealt = [teachers.random_subsets(len(rows), subsets, site.rng) for _ in range(partitions)]
        else:
            charge = _votes_charge(site, mechanism, partitions, queries)
            site.before_private_fit(charge)
            teachers.rehearse(trainer, site.public.X, site.n_classes, site.rng)
            rows = site.data.closed()
            dealt = [teachers.hashed_subsets(rows.X, subsets, j) for j in range(partitions)]
        asked = [np.sort(site.rng.choice(len(site.public), queries, replace=False)) for _ in dealt]
        votes = [
            teachers.count_votes(
                trainer,
                teachers.parts_of(rows, parts),
                tables.take(site.public.X, queried),
                site.n_classes,
                site.rng,
                private=mechanism is not None,
            )[0]
            for parts, queried in zip(dealt, asked, strict=True)
        ]
    _note_teachers(site, dealt, subsets)
    if mechanism is None:
        answers = [winners(counts.T, int(site.rng.integers(2**63))) for counts in votes]
    else:
        answers = [mechanism.release(counts, site.noise) for counts in votes]
        site.exposure.note_fit(_in_hindsight(mechanism, votes, charge) if data_dependent else charge)
    return [_sparse_labels(site, queried, codes) for queried, codes in zip(asked, answers, strict=True)]


def _votes_charge(site: ActiveSite, mechanism: NoisyMax, partitions: int, queries: int) -> Charge:
    each = mechanism.charge(queries, site.n_classes)
    # A row that is added or removed changes one teacher of each partition; one that is replaced may change two.
    charge = replace(each, events=tuple(e.times(partitions) for e in each.events), relation="add_remove")
    return charge.assuming(SEEDED_NOISE) if site.noise.seeded else charge


def _note_teachers(site: ActiveSite, dealt: list[list[teachers.Rows]], subsets: int) -> None:
    fewest = min(sum(len(rows) > 0 for rows in parts) for parts in dealt)
    if fewest < subsets:
        site.noted["teachers"] = fewest


def _sparse_labels(site: ActiveSite, rows: NDArray[np.intp], codes: Codes) -> Labels:
    """Labels of some public rows."""
    every = np.full(len(site.public), -1, dtype=codes.dtype)
    every[rows] = codes
    return Labels(every, site.n_classes)


def _in_hindsight(mechanism: NoisyMax, votes: list[NDArray[np.int64]], charge: Charge) -> Charge:
    # Imported here: the mechanisms need the kinds of release, and those this module's neighbours.
    from collegium.privacy.hindsight import hindsight_charge

    return hindsight_charge(mechanism, np.concatenate(votes), charge)
