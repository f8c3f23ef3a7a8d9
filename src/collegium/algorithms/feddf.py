"""FedDF: ensemble distillation for model fusion.

Lin, Kong, Stich, Jaggi: "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020, arXiv
2006.07242, Algorithm 1, and Algorithm 3 for sites with different nets. The papers' lines are named beside ours.

Reproduces: the FedDF rows of FedAUX's Tables 1 to 3. "FedDF+P" is ``FedDF(start=pretrained)``.

Deviations from the paper, on purpose:

- The coordinator distills for `distill_epochs` with FedAUX's settings (Adam 5e-5, batches of 128, one epoch). The paper
  stops by the accuracy on validation data, which nobody has here, and anneals its step size.
- A batch norm's running statistics are averaged, and then follow the public rows while the net is distilled.
- A net whose logits are NaN or infinite has diverged: it is left out of that round, and reported. A round without any
  net changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._averaging import Averaging, LastRounds, average_or, receive, shares, updates
from collegium.algorithms._starting import prototypes
from collegium.algorithms.fedavg import update
from collegium.core import Federation, Steps, Weights
from collegium.core.settings import PositiveFloat, PositiveInt
from collegium.core.softmax import softmax
from collegium.core.weights import Arrays

NORM_ROWS: Final = 2000


@dataclass(frozen=True)
class Distilling(Averaging):
    """Settings of a method whose coordinator distills sites' nets into their average, on the public set."""

    needs_public: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, str]] = {"weights": "averages weights", "distill": "distills nets into their average"}
    distill_epochs: PositiveInt = 1
    """Sweeps over the public set in a round."""
    distill_lr: PositiveFloat = 5e-5
    """The step size of the coordinator's Adam."""
    distill_batch: PositiveInt = 128
    """Public samples per step."""
    optimizer: Literal["new", "kept"] = "new"
    """Whether sites and coordinator begin each round with a new optimizer, or go on with the one of the last time: its
    moments then are of other weights than those that were sent. FedAUX's code keeps them."""
    teacher_norm: Literal["running", "public rows", "public batch"] = "running"
    """Which statistics the batch norms of sites' nets use when they label public rows: their running ones, which are of
    private rows; those of `teacher_batch` public rows; or those of each batch of so many, as FedAUX's code does, which
    takes twice as long."""
    teacher_batch: PositiveInt | None = None
    """How many public rows those are (None: 2,000, or `distill_batch` with ``teacher_norm="public batch"``)."""

    averaged_rounds: PositiveInt = 1
    """The common model is the mean of the models of so many last rounds; training goes on from the last one. Where few
    sites take part in a round and differ much, models swing from round to round, and their mean does not."""

    @property
    def keeps_optimizer(self) -> bool:
        """Whether optimizers live on from round to round."""
        return self.optimizer == "kept"

    @property
    def norm(self) -> dict[str, int]:
        """Which statistics a teacher's batch norms use, for `predict_logits`."""
        if self.teacher_norm == "running":
            return {}
        if self.teacher_norm == "public rows":
            return {"norm_rows": self.teacher_batch or NORM_ROWS}
        return {"norm_batch": self.teacher_batch or self.distill_batch}


def can_teach(fed: Federation, party: str, step: str, logits: NDArray[Any]) -> bool:
    """Whether all logits are finite. Those of huge, though finite, weights may not be: the site is then reported."""
    finite = bool(np.isfinite(logits).all())
    if not finite:
        fed.reject(party, "diverged", step=step)
    return finite


@dataclass(frozen=True)
class FedDF(Distilling):
    """FedAvg within each kind of net, and then distillation from the nets of all sites into each average."""

    asks_for: ClassVar[Steps] = (update, receive)

    def coordinate(self, fed: Federation) -> None:
        like, x = prototypes(fed, self.start)  # which kind of net p each site has, and each kind's x_0
        last = LastRounds(self.averaged_rounds)
        for _ in fed.rounds(self.rounds):
            S = fed.sample(self.participation)  # S_t
            order = {p: update(x[p], self.local_epochs, self.local_steps, self.keeps_optimizer) for p in x}
            x_k = updates(fed, {k: order[like[k]] for k in S}, {k: x[like[k]] for k in S})  # Client-LocalUpdate
            x_k, targets = self._ensemble(fed, like, x_k)
            for p in x:
                group = {k: part for k, part in x_k.items() if like[k] == p}
                # x_t,0: the average of the sites of this kind; a kind without an answer goes on from what it was.
                student = average_or(x[p], group, shares(group, "samples"))
                x[p] = self._distill(fed, p, student, targets) if x_k else student
                fed.publish(last.mean(p, x[p]), p)
        for p in x:
            fed.tell(receive(last.mean(p)), [k for k in like if like[k] == p])

    def _ensemble(
        self, fed: Federation, like: Mapping[str, str], x_k: Mapping[str, Weights]
    ) -> tuple[dict[str, Weights], NDArray[Any]]:
        """The nets that can teach, and AvgLogits: the softmax of the mean of all their logits."""
        heard, total = {}, np.zeros((len(fed.public), fed.n_classes))
        with fed.timed("ensemble"):
            answers = fed.workbench.logits_of_each(((like[k], part.arrays) for k, part in x_k.items()), **self.norm)
            for (k, part), logits in zip(x_k.items(), answers, strict=True):
                if can_teach(fed, k, update.name, logits):
                    heard[k] = part
                    total += logits
            return heard, np.asarray(softmax(total / max(len(heard), 1)), dtype=np.float32)

    def _distill(self, fed: Federation, p: str, student: Arrays, targets: NDArray[Any]) -> Arrays:
        """N steps on KL(targets || answers) from x_t,0."""
        with fed.timed("distill"):
            return fed.workbench.distill(
                p,
                student,
                targets,
                epochs=self.distill_epochs,
                lr=self.distill_lr,
                batch_size=self.distill_batch,
                keep_optimizer=self.keeps_optimizer,
            )
