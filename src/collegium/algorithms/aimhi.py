"""AIMHI: distributed co-training, the first paper of the line.

Abourayya, Kamp, Kleesiek, Ayday, Rao, Webb, Rao: "AIMHI: Protecting Sensitive Data through Federated Co-Training",
FL-NeurIPS 2022, Algorithm 1. The loop is FedCT's (lines 3 to 14 are the same), with plain majority voting.

Its text and its table caption contradict each other (5 x 2000 samples with |U| = 40,000 against 5 x 8000 with
|U| = 10,000); T = 3000, b = 20 and Adam with learning rate 0.001 on the CNN `cnn_aimhi` are the same in both.
Deviations: those of FedCT.
"""

from __future__ import annotations

from dataclasses import dataclass

from collegium.algorithms.fedct import FedCT
from collegium.core.settings import PositiveInt


@dataclass(frozen=True)
class AIMHI(FedCT):
    """FedCT's loop with the settings of the AIMHI paper."""

    rounds: PositiveInt = 3000
    period: PositiveInt = 20
