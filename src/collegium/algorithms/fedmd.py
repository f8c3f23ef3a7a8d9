"""FedMD: heterogeneous federated learning via model distillation.

Li, Wang: "FedMD: Heterogenous Federated Learning via Model Distillation", arXiv 1910.03581, Algorithm 1. The paper's
words are named beside ours. Its public set is labeled: ``cg.run(FedMD(), public=(X, y), ...)``; a study file gives the
labels of its public rows by naming this method. The study's classes are those of the sites and of the public set.

Reproduces: FedCT's appendix D.4 (CIFAR-100, superclasses). There every site has one class of each superclass, and the
task is the superclass: give sites the superclass as y, and deal the rows by class.

Deviations from the paper, on purpose:

- The consensus is the mean of logits, and Digest learns its softmax (the paper's code: the absolute error of logits).
- Transfer learning takes a number of epochs, not "until convergence".
- The paper makes no global model. We fit one more on (U, the most probable class of the final consensus).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._starting import Started, begin_from
from collegium.algorithms.dd import mean_of
from collegium.core import ActiveSite, Federation, Labels, Nothing, SomeSoftLabels, Steps, step
from collegium.core.settings import PositiveFloat, PositiveInt, Share
from collegium.core.softmax import softmax


@step
def transfer(site: ActiveSite, D0: Labels, public_epochs: int, private_epochs: int) -> Nothing:
    """Transfer learning: f_k learns the public set, then D_k."""
    site.fit(site.public.labelled(D0), epochs=public_epochs)
    site.fit(site.data, epochs=private_epochs)
    return Nothing()


@step
def communicate(site: ActiveSite, d: NDArray[np.int64]) -> SomeSoftLabels:
    """Communicate: the class scores f_k of the samples d_j of the public set."""
    return SomeSoftLabels(site.logits(d))


@step
def digest_and_revisit(
    site: ActiveSite,
    d: NDArray[np.int64],
    f: NDArray[np.float32],
    digest_epochs: int,
    digest_lr: float,
    revisit_epochs: int,
) -> Nothing:
    """Digest: f_k approaches the consensus on d_j. Revisit: f_k learns D_k again."""
    site.distill(d, f, digest_epochs, digest_lr)
    site.fit(site.data, epochs=revisit_epochs)
    return Nothing()


@dataclass(frozen=True)
class FedMD(Started):
    """Sites learn a labeled public set, then agree on its samples' class scores."""

    asks_for: ClassVar[Steps] = (begin_from, transfer, communicate, digest_and_revisit)
    needs: ClassVar[Mapping[str, str]] = {"weights": "shares a net's scores", "distill": "learns from soft labels"}
    learns_public_labels: ClassVar[bool] = True
    rounds: PositiveInt = 20
    """P: communication rounds."""
    samples: PositiveInt | None = 5000
    """Size of d_j, the public samples of a round, drawn anew each time (None, or more than there are: all)."""
    public_epochs: PositiveInt = 20
    """Transfer learning: sweeps over the public set."""
    private_epochs: PositiveInt = 25
    """Transfer learning: sweeps over a site's own data."""
    digest_epochs: PositiveInt = 1
    """Sweeps over d_j in a round."""
    digest_lr: PositiveFloat = 1e-3
    """The step size of Digest's own Adam."""
    revisit_epochs: PositiveInt = 4
    """Sweeps over a site's own data in a round."""
    participation: Share = 1.0
    """Share of the sites, drawn anew for every round."""
    start: Any = None
    """Weights that all sites start from, such as another run's `global_model` (None: their learners' own)."""

    def coordinate(self, fed: Federation) -> None:
        self.begin(fed)
        fed.tell(transfer(fed.public_labels, self.public_epochs, self.private_epochs))  # Transfer learning
        for _ in fed.rounds(self.rounds):
            d = self._draw(fed)
            parties = fed.sample(self.participation)
            mean = mean_of(fed, communicate(d), parties, len(d))  # Communicate, Aggregate: f(x) = 1/m sum of f_k(x)
            f = softmax(mean).astype(np.float32)
            order = digest_and_revisit(d, f, self.digest_epochs, float(self.digest_lr), self.revisit_epochs)
            fed.tell(order, parties)  # Distribute, Digest, Revisit
            scores = np.full((len(fed.public), fed.n_classes), np.nan)
            scores[d] = mean
            fed.announce(scores)

    def _draw(self, fed: Federation) -> NDArray[np.int64]:
        every = len(fed.public)
        size = every if self.samples is None else min(self.samples, every)
        return np.sort(fed.rng.choice(every, size, replace=False)).astype(np.int64)
