"""An algorithm with a local loss of its own: this file describes it, contrast_loss.py says what it does to a net.

Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021 (MOON), on the net's answers instead of its features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collegium.algorithms.fedavg import FedAvg
from collegium.core import ActiveSite, LocalTerm, Order, Steps, Weights, step
from collegium.core.settings import NonNegativeFloat
from collegium.core.weights import Arrays


@dataclass(frozen=True, eq=False)
class Contrast(LocalTerm):
    """The net should answer more like the one it started from than like the site's last one."""

    loss: ClassVar[str] = "contrast"
    last: Arrays
    mu: float = 1.0
    """How much that counts beside the labels."""
    temperature: float = 0.5


@step
def update(site: ActiveSite, w: Arrays, epochs: int, steps: int | None, mu: float, rate: float = 1.0) -> Weights:
    """Train from w, away from what this site's own training came to last time."""
    site.load(w)
    site.train_net(epochs, steps, Contrast(site.state.get("last", w), mu), rate=rate)
    site.state["last"] = site.weights()
    return Weights(site.state["last"], site.records)


@dataclass(frozen=True)
class Moon(FedAvg):
    """FedAvg whose sites do not drift the same way again and again."""

    asks_for: ClassVar[Steps] = (update, *FedAvg.asks_for)
    mu: NonNegativeFloat = 1.0

    def local_update(self, w: Arrays, rate: float) -> Order[Weights]:
        return update(w, self.local_epochs, self.local_steps, float(self.mu), rate)
