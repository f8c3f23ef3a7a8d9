"""FedSiam: federated averaging of a net and of a target that follows it, which should answer alike.

Long, Che, Wang, Ye, Luo, Wu, Xiao, Ma: "FedSiam: Towards Adaptive Federated Semi-Supervised Learning", 2020, arXiv
2012.03292; the labels-at-client case with a moving average as target (the authors' FedSiam-MT, after Tarvainen and
Valpola's Mean Teacher, NeurIPS 2017). The loss of labels is joined by the squared difference of what net and target say
of two random views of each row; after each step the target moves towards the net. The server averages both.

Reproduces: the FedSiam rows of Table 4 of Scott, Yeo, Lampert, TMLR 2023, on other data; see
benchmarks/semi_supervised.py.

Deviations, on purpose:

- Both nets travel whole: the paper's choice of layers to send (its Section 3.3), which saves bytes, is left out.
- A mini-batch has as many labeled rows as others. Views of images are shifted (and mirrored, in color); rows of
  features have some swapped with another row's.
- Consistency and decay grow by the round, where the authors' code counts a site's own epochs.
- The result, `global_accuracy` and the model that every site ends with, is the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt

from collegium.algorithms._averaging import average_or, common_start, receive, shares, updates
from collegium.algorithms._semi_supervised import SemiSupervised, count_labels, joined, part_of, sample, with_labels
from collegium.core import ActiveSite, Federation, LocalTerm, LocalTerms, Steps, Weights, step
from collegium.core.settings import NonNegativeFloat, PositiveInt
from collegium.core.terms import Unlabeled, check_not_negative, check_share
from collegium.core.weights import Arrays


@dataclass(frozen=True, eq=False)
class Siamese(LocalTerm):
    """The net's answer to one random view of a row should be that of its target to another.

    The target follows the net as a moving average; its final weights are `parts["target"]` of the update's report.
    """

    loss: ClassVar[str] = "siamese"
    X: Any
    target: Arrays
    """The target's weights at the start."""
    weight: float = 1.0
    """How much the squared difference of the answers counts beside the labels."""
    decay: float = 0.99
    """How much of the target stays at each step."""

    def __post_init__(self) -> None:
        check_not_negative("The weight of Siamese", self.weight)
        check_share("The decay of Siamese", self.decay)

    @property
    def unlabeled(self) -> Unlabeled:
        return Unlabeled(self.X)


@step
def update(site: ActiveSite, both: Arrays, weight: float, decay: float, epochs: int, steps: int | None) -> Weights:
    """Train the online net with labels and consistency; the target follows it."""
    site.load(part_of(both, "online"))
    siamese = Siamese(site.unlabeled.X, part_of(both, "target"), weight, decay)
    report = site.fit(site.data, epochs, steps, LocalTerms([siamese])).estimator.last_update_
    nets = {"online": site.weights(), "target": report.parts["target"]}
    return Weights(joined(nets), site.records + len(site.unlabeled))


@dataclass(frozen=True)
class FedSiam(SemiSupervised):
    """Sites train a common net to agree with its own moving average."""

    asks_for: ClassVar[Steps] = (count_labels, update, receive)
    consistency: NonNegativeFloat = 1.0
    """How much agreement counts beside the labels, in the end."""
    ramp: PositiveInt = 10
    """Rounds in which it grows to that."""
    decay: Annotated[float, Ge(0), Lt(1)] = 0.999
    """alpha: how much of the target stays at each step, at most; 1 - 1 / (t + 2) in round t, if that is less."""

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)
        both = joined({"online": w, "target": w})
        labelled = with_labels(fed)
        for t in fed.rounds(self.rounds):
            S = sample(fed, labelled, self.participation)
            weight = self.consistency * exp(-5 * (1 - min(1, (t + 1) / self.ramp)) ** 2)  # Mean Teacher's ramp
            order = update(both, weight, min(1 - 1 / (t + 2), self.decay), self.local_epochs, self.local_steps)
            parts = updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, both))
            both = average_or(both, parts, shares(parts, self.weighting))
            fed.publish(part_of(both, "target"), like)
        fed.tell(receive(part_of(both, "target")))
