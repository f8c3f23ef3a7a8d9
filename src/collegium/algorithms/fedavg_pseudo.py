"""FedAvgPseudo: federated averaging whose common net labels the sites' points, round by round.

The baseline "FedAvg+network" of Scott, Yeo, Lampert, TMLR 2023, Section 4.2: Algorithm 2 with the net's own answers in
the place of XCLP, after Lee, "Pseudo-Label", ICML workshop 2013. A label's confidence is that of XCLP, 1 - entropy /
log C, of the net's probabilities; the paper does not say which it takes.

Reproduces: the FedAvg+network rows of Table 4, on other data; benchmarks/semi_supervised.py has the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collegium.algorithms._semi_supervised import PseudoLabelling, label_by_net
from collegium.core import Federation, Steps
from collegium.core.settings import Probability
from collegium.core.weights import Arrays


@dataclass(frozen=True)
class FedAvgPseudo(PseudoLabelling):
    """Sites train a common net on what it says itself."""

    asks_for: ClassVar[Steps] = (*PseudoLabelling.asks_for, label_by_net)
    threshold: Probability = 0.0
    """Labels of which the net is less sure, by their probability, do not count. 0: all do."""
    weighted: bool = True
    """Whether labels count by their confidence, or all alike."""

    def label(self, fed: Federation, P: Sequence[str], theta: Arrays) -> None:
        """7, by the net that the sites have."""
        fed.tell(label_by_net(None, self.threshold, self.weighted), P)
