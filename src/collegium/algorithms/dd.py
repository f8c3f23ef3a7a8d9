"""DD: distributed distillation by soft labels of the public set.

Bistritz, Mann, Bambos: "Distributed Distillation for On-Device Learning", NeurIPS 2020, as the FedCT paper (arXiv
2310.05696) compares with it: FedCT's loop with class probabilities in the place of labels, and their mean as consensus.

    s_i <- train on D_i and (U, z)        every device: its own loss + rho x the distance of its soft decisions from z
    z <- mean of s_1(U) .. s_m(U)         every `period` updates

Reproduces: the DD rows of FedCT's Tables 1 and 2.

Deviations from the papers, all on purpose:

- The sites do train on the consensus. In FedCT's public code this baseline never did.
- The distance is the divergence KL(z || s_i), drawn in mini-batches beside the private ones (the first paper: squared).
- All sites hear from all others through the coordinator (the first paper: from neighbours in a graph, again and again).
- Nets answer in eval mode, without dropout. One optimizer throughout, as in FedCT.
- The paper makes no global model. We fit one more on (U, the most probable class of the final z): `run.global_model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._starting import Started, begin_from
from collegium.core import ActiveSite, Federation, LocalTerms, Nothing, Order, SoftLabels, Steps, step
from collegium.core.settings import PositiveFloat, PositiveInt, Share
from collegium.core.terms import SoftTargets
from collegium.core.weights import SoftMean
from collegium.errors import ConfigError


@step
def train(
    site: ActiveSite, z: NDArray[np.float32] | None, weight: float, epochs: int | None, steps: int | None
) -> Nothing:
    """The local loss, and the distance of the soft decisions from their mean."""
    if z is None:
        site.fit(site.data, epochs=epochs, steps=steps)
    else:
        soft = SoftTargets(site.public.X, z, weight)
        site.fit(site.data, epochs, steps, LocalTerms([soft], keep_optimizer=True))
    return Nothing()


@step
def soft_label(site: ActiveSite) -> SoftLabels:
    """s_i(U)"""
    return SoftLabels(site.probabilities(site.public))


def mean_of(fed: Federation, order: Order[Any], parties: Sequence[str], samples: int) -> NDArray[np.float64]:
    """The mean of what sites say of `samples` public samples; one that speaks of others is left out, and reported."""
    mean = SoftMean(samples, fed.n_classes)
    for party, release in fed.stream(order, parties):
        if not mean.add(release):
            fed.reject(party)
    return mean.values


@dataclass(frozen=True)
class DistributedDistillation(Started):
    """Sites share class probabilities of the public set and learn from their mean."""

    asks_for: ClassVar[Steps] = (begin_from, train, soft_label)
    needs: ClassVar[Mapping[str, str]] = {"soft": "shares soft labels", "distill": "learns from soft labels"}
    rounds: PositiveInt = 20
    """T: local updates."""
    period: PositiveInt = 1
    """b: local updates between two communications."""
    weight: PositiveFloat = 1.0
    """rho: how much the consensus counts beside a site's own data."""
    participation: Share = 1.0
    """Share of the sites, drawn anew for every communication."""
    epochs: PositiveInt | None = None
    """Size of a local update (None: the learner's own setting)."""
    steps: PositiveInt | None = None
    """The same in mini-batch steps."""
    start: Any = None
    """Weights that all sites start from, such as another run's `global_model` (None: their learners' own)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period > self.rounds:
            raise ConfigError(
                f"DistributedDistillation: period must be at most rounds={self.rounds}, not {self.period}."
            )

    def coordinate(self, fed: Federation) -> None:
        self.begin(fed)
        z: NDArray[np.float32] | None = None
        parties = fed.parties
        for t in fed.rounds(self.rounds):
            if t % self.period == 0:
                parties = fed.sample(self.participation)
            fed.tell(train(z, float(self.weight), self.epochs, self.steps), parties)
            if t % self.period == self.period - 1:
                mean = mean_of(fed, soft_label(), parties, len(fed.public))
                z = mean.astype(np.float32)
                fed.announce(mean)
