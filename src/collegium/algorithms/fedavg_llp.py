"""FedAvgLLP: federated averaging whose sites each propagate their own labels over their own points, round by round.

The baseline "FedAvg+perclientLP" of Scott, Yeo, Lampert, TMLR 2023, Section 4.2: Algorithm 2 with label propagation at
each site by itself (`LocalLabelPropagation`) in the place of XCLP. A site without labels finds none, and has nothing to
learn: it refuses (`nothing-to-learn`) and is left out of the average. A class of which a site has no label is never
found there, which is what the paper blames for its loss when classes are unevenly spread.

Reproduces: the FedAvg+perclientLP rows of Table 4, on other data; benchmarks/semi_supervised.py has the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from collegium.algorithms._semi_supervised import PseudoLabelling
from collegium.algorithms.local_label_propagation import LocalLabelPropagation
from collegium.core import Federation
from collegium.core.weights import Arrays


@dataclass(frozen=True)
class FedAvgLLP(PseudoLabelling):
    """Sites train a common net on labels that each finds by itself, by its features."""

    needs: ClassVar[Mapping[str, str]] = {"weights": "averages weights", "embed": "labels points by their features"}
    propagation: LocalLabelPropagation = field(default_factory=LocalLabelPropagation)
    """How labels are propagated; it always sees the net's features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "propagation", replace(self.propagation, embed=True))

    def label(self, fed: Federation, P: Sequence[str], theta: Arrays) -> None:
        """7, at each site alone."""
        self.propagation.propagate(fed, P)
