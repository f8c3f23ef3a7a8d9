"""What an algorithm may ask of a local update beyond "learn your rows", and what the update reports back.

A learner whose `update` takes ``terms=LocalTerms(...)`` has the training loop of FedProx, SCAFFOLD and the distillation
methods inside it: no algorithm trains by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from numpy.typing import NDArray

from collegium.errors import ConfigError

Weights = Mapping[str, NDArray[Any]]
Part = Literal["all", "features", "head"]
Trained = Literal["all", "head"]


class SoftTargets(NamedTuple):
    """Rows, the class probabilities (rows x classes) they should get, and how much that counts beside the labels."""

    X: Any
    targets: Any
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class LocalTerms:
    """The terms of one local update. Each is off by default."""

    proximal: float = 0.0
    """FedProx's mu: mu/2 |w - anchor|^2 is added to the loss, over the trained parameters."""
    anchor: Weights | None = None
    """What the proximal term pulls towards. None: the weights at the start of the update."""
    correction: Weights | None = None
    """SCAFFOLD's c - c_i, added to the gradient of every step. Plain "sgd" makes the steps of the paper."""
    distill: SoftTargets | None = None
    """weight x KL(targets || the net's answers) is added to the loss. Its rows are drawn like pseudo-labelled ones."""
    train: Trained = "all"
    """"head" trains the last linear layer only (linear evaluation): all before it, in eval mode, stays as it is."""
    keep_optimizer: bool = False
    """Whether momentum goes on from the last update. A site of FedAvg keeps no state between rounds, so it does not."""

    def __post_init__(self) -> None:
        check_not_negative("proximal", self.proximal)
        check_trained(self.train)
        if self.distill is not None:
            object.__setattr__(self, "distill", SoftTargets(*self.distill))
            check_not_negative("The weight of distill=(X, targets, weight)", self.distill.weight)
        if self.anchor is not None and self.proximal == 0:
            raise ConfigError("An anchor does nothing without a proximal term: give proximal=mu above 0.")


@dataclass(frozen=True)
class UpdateReport:
    """What the last training of a learner was: SCAFFOLD needs `steps` and `lr`."""

    steps: int
    lr: float
    loss: float
    """The mean loss over the steps, without the proximal term and the correction. NaN or infinite if it diverged."""
    device: str


def check_trained(train: str) -> None:
    """A ConfigError unless it names what can be trained."""
    if train not in get_args(Trained):
        raise ConfigError(f"train is 'all' or 'head', not {train!r}.")


def check_not_negative(name: str, value: float) -> None:
    """A ConfigError unless it is a finite number of at least 0."""
    if not isfinite(value) or value < 0:
        raise ConfigError(f"{name} must be a number of at least 0, not {value!r}.")
