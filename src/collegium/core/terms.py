"""What an algorithm may ask of a local update beyond "learn your rows", and what the update reports back.

A learner whose `update` takes ``terms=LocalTerms(...)`` has the training loop of FedProx, SCAFFOLD and the distillation
methods inside it, and that of the semi-supervised ones: no algorithm trains by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from numpy.typing import NDArray

from collegium.errors import ConfigError

Weights = Mapping[str, NDArray[Any]]
Part = Literal["all", "features", "head"]
Trained = Literal["all", "head"]
Optimizer = Literal["adam", "adamw", "sgd", "momentum"]


class SoftTargets(NamedTuple):
    """Rows, the class probabilities (rows x classes) they should get, and how much that counts beside the labels."""

    X: Any
    targets: Any
    weight: float = 1.0


class Siamese(NamedTuple):
    """FedSiam: rows, of which the net's answer to one random view should be that of its target to another.

    The target follows the net as a moving average.
    """

    X: Any
    target: Weights
    """The target's weights at the start. What it comes to is `parts["target"]` of the report."""
    weight: float = 1.0
    """How much the squared difference of the answers counts beside the labels."""
    decay: float = 0.99
    """How much of the target stays at each step."""


class Disjoint(NamedTuple):
    """FedMatch: weights are sigma, which learns from labels, plus psi, which learns from rows without labels.

    Of rows that the net is sure of, it should agree with its helpers, and answer a distorted view with the class that
    most of them and it itself see. Both parts are `parts` of the report, "sigma" and "psi".
    """

    X: Any
    psi: Weights
    """The part for rows without labels at the start; all else of the net's weights is sigma."""
    helpers: Any = ()
    """What each helper says of the rows: class probabilities, (helpers, rows, classes)."""
    supervised: float = 10.0
    """lambda_s: how much the labels count."""
    consistency: float = 0.01
    """lambda_ICCS: how much the agreement counts."""
    confidence: float = 0.75
    """tau: the net is sure of a row from this probability on."""
    l2: float = 10.0
    """lambda_L2: psi is pulled towards sigma, l2 |sigma - psi|^2."""
    l1: float = 1e-4
    """lambda_L1: psi is kept sparse, l1 |psi|_1."""


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
    confidences: Any = None
    """How much each pseudo-labelled row counts, where a private one counts 1. None: as much."""
    siamese: Siamese | None = None
    """Rows without labels, and a target that the net agrees with. They are one more share of each mini-batch."""
    disjoint: Disjoint | None = None
    """Rows without labels, and a part of the weights that learns from them. They are one more share, too."""
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
        beside = [name for name in ("distill", "siamese", "disjoint") if getattr(self, name) is not None]
        if len(beside) > 1:
            raise ConfigError(f"An update learns from one kind of rows beside the labelled ones, not {beside}.")
        if self.siamese is not None:
            object.__setattr__(self, "siamese", Siamese(*self.siamese))
            check_not_negative("The weight of siamese", self.siamese.weight)
            check_share("The decay of siamese", self.siamese.decay)
        if self.disjoint is not None:
            object.__setattr__(self, "disjoint", Disjoint(*self.disjoint))
            for name in ("supervised", "consistency", "l2", "l1"):
                check_not_negative(f"{name} of disjoint", getattr(self.disjoint, name))
            check_share("The confidence of disjoint", self.disjoint.confidence)
            self._check_alone()

    def _check_alone(self) -> None:
        """Disjoint parts have optimizers of their own, which know of no other terms."""
        if self.proximal > 0 or self.correction is not None or self.train != "all" or self.keep_optimizer:
            raise ConfigError(
                "disjoint does not go together with proximal, correction, train='head' or keep_optimizer."
            )

    @property
    def unlabelled(self) -> Any:
        """The rows without labels that the net learns from beside the others; None where there are none."""
        rows = [each.X for each in (self.siamese, self.disjoint) if each is not None]
        return next((X for X in rows if X.shape[0] > 0), None)


@dataclass(frozen=True)
class UpdateReport:
    """What the last training of a learner was: SCAFFOLD needs `steps` and `lr`."""

    steps: int
    lr: float
    loss: float
    """The mean loss over the steps, without the proximal term and the correction. NaN or infinite if it diverged."""
    device: str
    parts: Mapping[str, Weights] = field(default_factory=dict)
    """Weights beside the net's own that the terms asked for, by name."""


def check_trained(train: str) -> None:
    """A ConfigError unless it names what can be trained."""
    if train not in get_args(Trained):
        raise ConfigError(f"train is 'all' or 'head', not {train!r}.")


def check_share(name: str, value: float) -> None:
    """A ConfigError unless it is a number from 0 to 1."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} is a share between 0 and 1, not {value!r}.")


def check_not_negative(name: str, value: float) -> None:
    """A ConfigError unless it is a finite number of at least 0."""
    if not isfinite(value) or value < 0:
        raise ConfigError(f"{name} must be a number of at least 0, not {value!r}.")
