"""SCAFFOLD: stochastic controlled averaging.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, arXiv 1910.06378, Algorithm 1 with option II. The paper's lines are named beside ours.

Reproduces: the SCAFFOLD row of FedCT's Table 2.

Deviations from the paper, on purpose:

- Sites train by plain SGD whatever their learner's optimizer is: option II takes (x - y_i) / (K eta) for a mean
  gradient, which it is for no other. `lr` None is the learner's own rate if that is an "sgd", else .1.
- A site sends y_i and K eta. The coordinator works out Delta c_i = (x - y_i) / (K eta) - c from them (lines 12, 13),
  which halves what is sent; the site does the same sum for its own c_i.
- There are no control variates for batch norm's running statistics: they are averaged, not trained, and `global_lr`
  does not carry them beyond their mean, where a variance could be negative.
- A site that does not answer keeps its c_i, and the others go on; a round without any answer changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from collegium.algorithms._averaging import Averaging, average_or, common_start, receive, updates
from collegium.core import ActiveSite, Federation, LocalTerm, Steps, TrainedWeights, step
from collegium.core.settings import PositiveFloat
from collegium.core.weights import Arrays, is_statistic


@dataclass(frozen=True, eq=False)
class Correction(LocalTerm):
    """c - c_i is added to the gradient of every step. Plain SGD makes the steps of the paper."""

    loss: ClassVar[str] = "correction"
    arrays: Arrays


@step
def update(site: ActiveSite, x: Arrays, c: Arrays, epochs: int, steps: int | None, lr: float | None) -> TrainedWeights:
    """Lines 7 to 13: K local steps y_i <- y_i - eta (g_i(y_i) - c_i + c), then the new c_i."""
    site.load(x)  # line 7
    site.use_plain_sgd(lr)
    c_i = site.state.get("c_i") or zeros_like(c)
    reach = site.train_net(epochs, steps, Correction({name: c[name] - c_i[name] for name in c}))  # lines 8 - 11
    y_i = site.weights()
    change = control_change(x, y_i, c, reach)  # line 12, option II
    site.state["c_i"] = {name: c_i[name] + change[name] for name in c}  # line 13
    return TrainedWeights(y_i, site.records, reach)


def control_change(x: Arrays, y_i: Arrays, c: Arrays, reach: float) -> Arrays:
    """Delta c_i: c_i+ - c_i = (x - y_i) / (K eta) - c."""
    return {name: (x[name] - y_i[name]) / np.float32(reach) - c[name] for name in c}


def zeros_like(arrays: Arrays) -> Arrays:
    """Control variates before anything is known."""
    return {name: np.zeros_like(value) for name, value in arrays.items() if not is_statistic(name)}


@dataclass(frozen=True)
class Scaffold(Averaging):
    """Sites correct their drift by control variates: c_i their own, c everybody's."""

    asks_for: ClassVar[Steps] = (update, receive)
    lr: PositiveFloat | None = None
    """eta_l: the sites' step size in plain SGD."""
    global_lr: PositiveFloat = 1.0
    """eta_g: how far the coordinator goes towards the mean of the sites' weights."""

    def coordinate(self, fed: Federation) -> None:
        like, x = common_start(fed, self.start)
        c = zeros_like(x)  # line 1
        for _ in fed.rounds(self.rounds):  # line 2
            S = fed.sample(self.participation)  # line 3
            order = update(x, c, self.local_epochs, self.local_steps, self.lr)
            parts = updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, x))  # lines 4 - 14
            changes = [control_change(x, part.arrays, c, part.reach) for part in parts.values()]
            mean = average_or(x, parts, dict.fromkeys(parts, 1.0))  # line 15
            x = mean | {name: x[name] + np.float32(self.global_lr) * (mean[name] - x[name]) for name in c}  # line 16
            c = {name: c[name] + sum(each[name] for each in changes) / len(fed.parties) for name in c}
            fed.publish(x, like)
        fed.tell(receive(x))
