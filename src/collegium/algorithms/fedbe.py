"""FedBE: a Bayesian ensemble of nets, distilled into one.

Chen, Chao: "FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning", ICLR 2021, arXiv 2009.01974,
Algorithm 1 with the Gaussian posterior. The paper's lines are named beside ours.

Reproduces: the FedBE rows of FedAUX's Tables 1 and 3. "FedBE+P" is ``FedBE(start=pretrained)``.

Deviations from the paper, on purpose:

- SWA averages the student's weights after each of `swa` equal parts of the distillation. The paper's SGD with a cyclic
  step size is an Adam here (FedAUX's: 5e-5, batches of 128) that begins anew with each part.
- A batch norm's running statistics are those of the average in every sampled net: a variance that is drawn may be
  negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from collegium.algorithms.averaging import common_start, receive, shares, updates
from collegium.algorithms.fedavg import update
from collegium.algorithms.feddf import Distilling
from collegium.core import Federation, Weights
from collegium.core.soft import Arrays, average, is_statistic


@dataclass(frozen=True)
class FedBE(Distilling):
    """FedAvg, and then distillation from nets that are drawn around the sites' into their average."""

    samples: int = 10
    """M: nets drawn from the posterior."""
    swa: int = 4
    """After how many parts of the distillation the weights enter the student's average (1: only at the end)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_one("samples", "swa")

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)
        for _ in fed.rounds(self.rounds):
            S = fed.sample(self.participation)
            order = update(w, self.local_epochs, self.local_steps)
            w_i = updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, w))
            share = shares(w_i, "samples")
            mean = average(w_i, share)
            spread = deviation(w_i, share, mean)
            p = self._predict(fed, like, mean, w_i, spread)
            w = self._distill(fed, like, mean, p)
            fed.publish(w, like)
        fed.tell(receive(w))

    def _predict(
        self, fed: Federation, like: str, mean: Arrays, w_i: Mapping[str, Weights], spread: Arrays
    ) -> NDArray[Any]:
        """p(y | u): the mean probabilities of the average, of the sites' nets and of M nets from the posterior."""
        with fed.observed.watch("ensemble"):
            total = softmax(fed.workbench.logits(like, mean).astype(np.float64), axis=1)
            for part in w_i.values():
                total += softmax(fed.workbench.logits(like, part.arrays).astype(np.float64), axis=1)
            for _ in range(self.samples):
                drawn = draw(mean, spread, fed.rng)  # w^(m) ~ N(mean, diag of the squared deviations)
                total += softmax(fed.workbench.logits(like, drawn).astype(np.float64), axis=1)
            return np.asarray(total / (1 + len(w_i) + self.samples), dtype=np.float32)

    def _distill(self, fed: Federation, like: str, student: Arrays, p: NDArray[Any]) -> Arrays:
        """Learn T = {(u, p(u))} from the average, with SWA."""
        steps = math.ceil(self.distill_epochs * math.ceil(len(fed.public) / self.distill_batch) / self.swa)
        met = {}
        with fed.observed.watch("distill"):
            for part in range(self.swa):
                student = fed.workbench.distill(
                    like, student, p, steps=steps, lr=self.distill_lr, batch_size=self.distill_batch
                )
                met[str(part)] = Weights(student, 1)
        return average(met, dict.fromkeys(met, 1.0))


def deviation(w_i: Mapping[str, Weights], share: Mapping[str, float], mean: Arrays) -> Arrays:
    """The standard deviation of the sites' weights around their mean, one number per weight."""
    squares = {k: Weights({name: (w.arrays[name] - mean[name]) ** 2 for name in mean}, 1) for k, w in w_i.items()}
    return {name: np.sqrt(value) for name, value in average(squares, share).items()}


def draw(mean: Arrays, spread: Arrays, rng: np.random.Generator) -> Arrays:
    """One net from the posterior."""
    return {
        name: value
        if is_statistic(name)
        else value + spread[name] * rng.standard_normal(value.shape).astype(np.float32)
        for name, value in mean.items()
    }
