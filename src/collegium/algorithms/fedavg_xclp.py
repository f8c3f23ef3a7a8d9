"""FedAvgXCLP: federated averaging whose sites label each other's points, round by round, without showing them.

Scott, Yeo, Lampert: "Cross-client Label Propagation for Transductive and Semi-Supervised Federated Learning", TMLR
2023, Algorithm 2 ("FedAvg+XCLP"). Line 7 is here, the rest, with the paper's numbers, in `PseudoLabelling`.

Reproduces: the FedAvg+XCLP rows of Table 4, on other data; benchmarks/semi_supervised.py has the numbers.

Deviations from the paper, on purpose:

- XCLP is ours, with real cryptography and other defaults: see `XCLP`. The authors' code divides confidences by their
  largest (`relative_confidence` of `XCLP`) and weighs classes by their inverse frequency (`class_weights`).
- A mini-batch has the learner's `batch_size` of labeled and as many of pseudo-labeled rows; few labels come again
  (paper: both are min(50, labels)). An epoch goes once through the larger of the two.
- The learning rate stays, unless `anneal` says how it falls (paper: by a cosine to 0 after 2,000 of 1,500 rounds).
  Views of images are a setting of the learner, `augment`.
- `warm_up` rounds on labels alone are the paper's "initialization by a supervised step"; none by default.
- A site that drops out while labels are propagated learns with those that it found when it last took part, if any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from collegium.algorithms._semi_supervised import PseudoLabelling
from collegium.algorithms.xclp import XCLP
from collegium.core import Federation
from collegium.core.weights import Arrays


@dataclass(frozen=True)
class FedAvgXCLP(PseudoLabelling):
    """Sites train a common net on labels that they find together, by its features."""

    needs: ClassVar[Mapping[str, str]] = {"weights": "averages weights", "embed": "labels points by their features"}
    fresh_secrets: ClassVar[bool] = True
    xclp: XCLP = field(default_factory=XCLP)
    """How labels are propagated; it always sees the net's features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "xclp", replace(self.xclp, embed=True))
        object.__setattr__(self, "simulation_only", self.xclp.simulation_only)

    def label(self, fed: Federation, P: Sequence[str], theta: Arrays) -> None:
        """6, 7: V_j <- f_phi(X_j); y_j, omega_j <- XCLP(V_j, Y_j, P, Server)"""
        self.xclp.propagate(fed, P)

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        return self.xclp.fixed(public_size)

    def learns(self) -> dict[str, str]:
        return self.xclp.learns() | {
            "coordinator, from averaging": "the weights of every site that takes part, in every round",
        }
