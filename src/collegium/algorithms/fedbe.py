"""FedBE: a Bayesian ensemble of nets, distilled into one.

Chen, Chao: "FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning", ICLR 2021, arXiv 2009.01974,
Algorithm 1 with the Gaussian posterior. The paper's lines are named beside ours.

Reproduces: the FedBE rows of FedAUX's Tables 1 and 3. "FedBE+P" is ``FedBE(start=pretrained)``.

Deviations from the paper, on purpose:

- SWA averages the student's weights after each of `swa` equal parts of the distillation. The paper's SGD with a cyclic
  step size is an Adam here (FedAUX's: 5e-5, batches of 128) that begins anew with each part.
- A batch norm's running statistics are those of the average in every sampled net: a variance that is drawn may be
  negative.
- A net whose logits are NaN or infinite has diverged and teaches nothing. A site's is left out of the whole round, and
  reported; a round without any net changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._averaging import LastRounds, common_start, receive, shares, updates
from collegium.algorithms.fedavg import update
from collegium.algorithms.feddf import Distilling, can_teach
from collegium.core import Federation, Steps, Weights
from collegium.core.settings import PositiveInt
from collegium.core.softmax import softmax
from collegium.core.weights import Arrays, average, is_statistic


@dataclass(frozen=True)
class FedBE(Distilling):
    """FedAvg, and then distillation from nets that are drawn around the sites' into their average."""

    asks_for: ClassVar[Steps] = (update, receive)
    samples: PositiveInt = 10
    """M: nets drawn from the posterior."""
    swa: PositiveInt = 4
    """After how many parts of the distillation the weights enter the student's average (1: only at the end)."""

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)
        last = LastRounds(self.averaged_rounds)
        for _ in fed.rounds(self.rounds):
            S = fed.sample(self.participation)
            order = update(w, self.local_epochs, self.local_steps, self.keeps_optimizer)
            w_i, p_i = self._hear(fed, like, updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, w)))
            if w_i:
                share = shares(w_i, "samples")
                mean = average(w_i, share)
                spread = deviation(w_i, share, mean)
                p = self._predict(fed, like, mean, spread, p_i)
                w = self._distill(fed, like, mean, p)
            fed.publish(last.mean(like, w), like)
        fed.tell(receive(last.mean(like)))

    def _hear(self, fed: Federation, like: str, w_i: Mapping[str, Weights]) -> tuple[dict[str, Weights], Probabilities]:
        """The sites' nets that can teach, and what they say."""
        heard, p_i = {}, Probabilities(len(fed.public), fed.n_classes)
        with fed.timed("ensemble"):
            answers = fed.workbench.logits_of_each(((like, part.arrays) for part in w_i.values()), **self.norm)
            for (i, part), logits in zip(w_i.items(), answers, strict=True):
                if can_teach(fed, i, update.name, logits):
                    heard[i] = part
                    p_i.add(logits)
        return heard, p_i

    def _predict(self, fed: Federation, like: str, mean: Arrays, spread: Arrays, p: Probabilities) -> NDArray[Any]:
        """p(y | u): the mean probabilities of the sites' nets, of their average and of M nets from the posterior."""
        with fed.timed("ensemble"):
            # w^(m) ~ N(mean, diag of the squared deviations)
            posterior = (draw(mean, spread, fed.rng) for _ in range(self.samples))
            for logits in fed.workbench.logits_of_each(((like, w) for w in chain([mean], posterior)), **self.norm):
                p.add(logits)
        return p.mean

    def _distill(self, fed: Federation, like: str, student: Arrays, p: NDArray[Any]) -> Arrays:
        """Learn T = {(u, p(u))} from the average, with SWA."""
        steps = math.ceil(self.distill_epochs * math.ceil(len(fed.public) / self.distill_batch) / self.swa)
        met = {}
        with fed.timed("distill"):
            for part in range(self.swa):
                student = fed.workbench.distill(
                    like,
                    student,
                    p,
                    steps=steps,
                    lr=self.distill_lr,
                    batch_size=self.distill_batch,
                    keep_optimizer=self.keeps_optimizer,
                )
                met[str(part)] = Weights(student, 1)
        return average(met, dict.fromkeys(met, 1.0))


class Probabilities:
    """The mean of what nets say. One whose logits are NaN or infinite does not count."""

    def __init__(self, rows: int, n_classes: int) -> None:
        self._sum, self._nets = np.zeros((rows, n_classes)), 0

    def add(self, logits: NDArray[Any]) -> None:
        """Take in one net."""
        if np.isfinite(logits).all():
            self._sum += softmax(logits)
            self._nets += 1

    @property
    def mean(self) -> NDArray[np.float32]:
        """Over the nets so far, at least one."""
        return (self._sum / self._nets).astype(np.float32)


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
