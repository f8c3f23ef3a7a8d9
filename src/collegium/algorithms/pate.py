"""PATE: private aggregation of teacher ensembles. The upper bound of FedKT, where all data is in one place.

Papernot, Abadi, Erlingsson, Goodfellow, Talwar: "Semi-supervised Knowledge Transfer for Deep Learning from Private
Training Data", arXiv 1610.05755. With noise on the votes it is ``dp_pate``.

All records are pooled (in a simulation only) and dealt to disjoint teachers, which are trained by the sites, each with
its own learner, so that the work is shared out. ``teachers="sites"`` pools nothing: each site is one teacher. The
teachers vote on the public set, and the global model, the papers' student, learns (U, votes).

Reproduces: the PATE column of FedKT's Table 1.

Deviations from the papers, on purpose: ties are broken at random by the study's seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from collegium.algorithms._teachers import Rows, count_votes, random_subsets, rehearse
from collegium.algorithms.centralized import hand_over, pooled
from collegium.core import ActiveSite, Algorithm, Federation, HardLabels, LabelledData, Labels, Steps, step
from collegium.core.releases import VoteCounts
from collegium.core.settings import PositiveInt
from collegium.core.tally import winners
from collegium.wire import tables


@step
def teach(site: ActiveSite, subsets: list[dict[str, Any] | None], private: bool) -> VoteCounts:
    """A teacher of each subset votes on the public set; with `private`, as its own rows say and no others."""
    trainer, U = site.trainer(), site.public.X
    with site.watch.time("teachers"), site.watch.time("fit"):
        if private:
            rehearse(trainer, U, site.n_classes, site.rng)
        parts = [None if each is None else _labelled(each) for each in subsets]
        votes, site.model = count_votes(trainer, parts, U, site.n_classes, site.rng, private=private)
    return VoteCounts(votes)


@step
def vote(site: ActiveSite) -> HardLabels:
    """This site is one teacher."""
    with site.watch.time("teachers"):
        site.fit(site.data)
        return HardLabels(site.predict(site.public))


@dataclass(frozen=True)
class Pate(Algorithm):
    """Teachers of disjoint data vote; the global model learns their votes."""

    asks_for: ClassVar[Steps] = (hand_over, teach, vote)
    _private: ClassVar[bool] = False
    teachers: PositiveInt | Literal["sites"] = 50
    """How many teachers share the pooled data; "sites": nothing is pooled, and each site is a teacher."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Of the instance, not of the class: only the pool must never leave a simulation.
        object.__setattr__(self, "simulation_only", self.teachers != "sites")

    def unasked(self) -> Steps:
        return (hand_over, teach) if self.teachers == "sites" else (vote,)

    def coordinate(self, fed: Federation) -> None:
        for _ in fed.rounds(1):
            counts = fed.total(vote()).tally.counts if self.teachers == "sites" else self._pooled_counts(fed)
            fed.announce(self._labels(fed, counts.astype(np.int64)))

    def _labels(self, fed: Federation, counts: Any) -> Labels:
        """The winners, by counts of shape (classes, public samples)."""
        return Labels(winners(counts, fed.seed), fed.n_classes)

    def _pooled_counts(self, fed: Federation) -> Any:
        X, codes = pooled(fed)
        # Also subsets without rows have a place, so that no record's presence moves another one's teacher.
        subsets = [_plain(X, codes, rows) if len(rows) else None for rows in self._deal(X, fed)]
        share = {party: subsets[number :: len(fed.parties)] for number, party in enumerate(fed.parties)}
        replies = fed.ask({party: teach(mine, self._private) for party, mine in share.items() if mine})
        return np.sum([reply.counts for reply in replies.values()], axis=0).T

    def _deal(self, X: Any, fed: Federation) -> list[Rows]:
        return random_subsets(tables.n_rows(X), int(self.teachers), fed.rng)


def _labelled(subset: dict[str, Any]) -> LabelledData:
    return LabelledData(tables.from_arrays(subset["header"], subset["columns"]), subset["codes"])


def _plain(X: Any, codes: Any, rows: Rows) -> dict[str, Any]:
    header, columns = tables.to_arrays(tables.take(X, rows))
    return {"header": header, "columns": columns, "codes": codes[rows]}
