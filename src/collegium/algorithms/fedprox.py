"""FedProx: federated averaging whose sites are held near the common model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
arXiv 1812.06127, Algorithm 2: each device minimizes F_k(w) + mu/2 |w - w_t|^2. The rest of the loop is FedAvg's.

Reproduces: the FedProx rows of FedCT's Table 2 and FedAUX's Table 1.

Deviations from the paper, on purpose: devices are drawn uniformly and count by their samples, as in FedAvg (the paper's
scheme draws them by samples and counts them alike; both have the same mean); the inexactness gamma is what
`local_epochs` or `local_steps` leave; the batch norm's running statistics are not pulled, since they are not trained.

FedKT-Prox is FedProx that starts from FedKT's final model: ``FedProx(start=fedkt_run.global_model)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collegium.algorithms._averaging import receive
from collegium.algorithms.fedavg import FedAvg
from collegium.core import ActiveSite, LocalTerm, Order, Steps, Weights, step
from collegium.core.settings import NonNegativeFloat
from collegium.core.terms import check_not_negative
from collegium.core.weights import Arrays


@dataclass(frozen=True, eq=False)
class Proximal(LocalTerm):
    """mu/2 |w - anchor|^2 is added to the loss, over the trained parameters; mu = 0 adds nothing."""

    loss: ClassVar[str] = "proximal"
    mu: float
    anchor: Arrays | None = None
    """None: the weights at the start of the update."""

    def __post_init__(self) -> None:
        check_not_negative("mu", self.mu)


@step
def update(site: ActiveSite, w: Arrays, epochs: int, steps: int | None, mu: float, rate: float = 1.0) -> Weights:
    """w_k <- about argmin F_k(w) + mu/2 |w - w_t|^2"""
    site.load(w)
    site.train_net(epochs, steps, Proximal(mu), rate=rate)
    return Weights(site.weights(), site.records)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term. mu = 0 is FedAvg."""

    asks_for: ClassVar[Steps] = (update, receive)
    mu: NonNegativeFloat = 0.1
    """How strongly a site's weights are pulled towards those that it started the round from."""

    def local_update(self, w: Arrays, rate: float) -> Order[Weights]:
        return update(w, self.local_epochs, self.local_steps, float(self.mu), rate)
