"""FedAvg: federated averaging.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, arXiv 1602.05629, Algorithm 1. The paper's lines are named beside ours.

Reproduces: the FedAvg rows of FedCT's Tables 1 and 2.

Deviations from the paper, on purpose:

- The average is over the sites that answered (the paper's line is over all K, which is the same with all of them). A
  site whose weights are NaN or infinite is left out of that round and reported as `diverged`. A round in which none of
  the drawn sites answers changes nothing.
- `weighting="equal"` counts every site alike; the paper counts samples.
- A batch norm's running means and variances are averaged like weights. No optimizer state outlives a round.
- At the end every site receives the final model. In `run.metrics`, `accuracy` is that of each site's own net after its
  local update (of the final model, at the end), and `global_accuracy` that of the average after every round.

FedCT's own FedAvg had no common start, which averages unrelated nets. Here all sites start every round from one point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collegium.algorithms._annealing import Annealing
from collegium.algorithms._averaging import Weighting, average_or, common_start, receive, shares, updates
from collegium.core import ActiveSite, Federation, Order, Steps, Weights, step
from collegium.core.weights import Arrays


@step
def update(
    site: ActiveSite, w: Arrays, epochs: int, steps: int | None, keep_optimizer: bool = False, rate: float = 1.0
) -> Weights:
    """ClientUpdate(k, w): E epochs of local training from w."""
    site.load(w)
    site.train_net(epochs, steps, keep_optimizer=keep_optimizer, rate=rate)
    return Weights(site.weights(), site.records)


@dataclass(frozen=True)
class FedAvg(Annealing):
    """Sites train a common net; the coordinator averages their weights."""

    asks_for: ClassVar[Steps] = (update, receive)
    weighting: Weighting = "samples"
    """How sites count in the average: by their samples (n_k / n), or all alike."""

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)  # initialize w_0
        for t in fed.rounds(self.rounds):
            S = fed.sample(self.participation)  # S_t <- random set of max(C K, 1) clients
            order = self.local_update(w, self.rate(t))
            parts = updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, w))  # for each k in S_t
            w = average_or(w, parts, shares(parts, self.weighting))  # w_t+1 <- sum of n_k / n w_k
            fed.publish(w, like)
        fed.tell(receive(w))

    def local_update(self, w: Arrays, rate: float) -> Order[Weights]:
        """What a site is asked to do in a round."""
        return update(w, self.local_epochs, self.local_steps, rate=rate)
