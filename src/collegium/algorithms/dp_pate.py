"""DP-PATE: PATE with noise on the teachers' votes.

Papernot, Abadi, Erlingsson, Goodfellow, Talwar: "Semi-supervised Knowledge Transfer for Deep Learning from Private
Training Data", arXiv 1610.05755; Gaussian noise as in "Scalable Private Learning with PATE", arXiv 1802.08908.

The steps and the loop are PATE's; the votes pass a noisy maximum before the global model learns them.

Deviations from the papers, on purpose: as for PATE; a record's own hash says which teacher learns from it, and a claim
does not look at the votes (unless ``accounting="data_dependent"``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from collegium.algorithms._teachers import Rows, hashed_subsets
from collegium.algorithms.pate import Pate
from collegium.consensus.noisy_votes import NoisyVotes
from collegium.core import Federation, Labels


@dataclass(frozen=True)
class DPPate(NoisyVotes, Pate):
    """PATE with noise on the votes: a claim for single records (pooled), or for whole sites (``teachers="sites"``)."""

    _private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_noise:
            object.__setattr__(self, "gamma", 0.05)  # the paper's

    def coordinate(self, fed: Federation) -> None:
        self.check_classes(fed.n_classes)  # errors before anything is trained
        self.n_queries(len(fed.public))
        super().coordinate(fed)

    def _deal(self, X: Any, fed: Federation) -> list[Rows]:
        return hashed_subsets(X, int(self.teachers))

    def _labels(self, fed: Federation, counts: Any) -> Labels:
        k = self.n_queries(len(fed.public))
        if self.teachers == "sites":
            return self.label(fed, counts, self.noisy_max(k, changed_votes=1, unit="party"), k)
        return self.label(fed, counts, self.noisy_max(k, changed_votes=1, unit="record"), k, relation="add_remove")
