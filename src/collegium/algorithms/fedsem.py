"""FedSem: federated averaging on labels alone; then its net labels all other points, and averaging goes on with them.

Albaseer, Ciftler, Abdallah, Al-Fuqaha: "Exploiting Unlabeled Data in Smart Cities using Federated Edge Learning", IWCMC
2020, arXiv 2001.04030. Phase 1 is FedAvg on labeled rows; in phase 2 every site labels its points once, by the global
model of phase 1, and FedAvg goes on with all rows. With confidences as weights (the default) it is "FedSem+" of Scott,
Yeo, Lampert, TMLR 2023, Table 4.

Reproduces: the FedSem+ rows of that table, on other data; benchmarks/semi_supervised.py has the numbers.

Deviations, on purpose: a mini-batch has as many labeled as pseudo-labeled rows, as in the methods beside it; phase 2
goes on from the net of phase 1; sites without labels sit out phase 1. A site that is away when all label their points
learns its labels alone from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from collegium.algorithms._semi_supervised import PseudoLabelling, label_by_net
from collegium.core import Federation, Steps
from collegium.core.settings import Probability
from collegium.core.weights import Arrays


@dataclass(frozen=True)
class FedSem(PseudoLabelling):
    """Sites learn their labels first, and then what the common net made of their other points."""

    asks_for: ClassVar[Steps] = (*PseudoLabelling.asks_for, label_by_net)
    warm_up: Annotated[int, Ge(-1)] = -1
    """Rounds of phase 1 (-1: half of all)."""
    threshold: Probability = 0.0
    """Labels of which the net is less sure, by their probability, do not count. 0: all do."""
    weighted: bool = True
    """Whether labels count by their confidence (FedSem+), or all alike (FedSem)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up == -1:
            object.__setattr__(self, "warm_up", self.rounds // 2)

    def label(self, fed: Federation, P: Sequence[str], theta: Arrays) -> None:
        """Once, at all sites."""
        if fed.round == self.warm_up:
            fed.tell(label_by_net(theta, self.threshold, self.weighted))
