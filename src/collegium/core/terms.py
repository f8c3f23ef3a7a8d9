"""What an algorithm may ask of a local update beyond learning from its rows, and what the update reports back.

Here a term is plain data, so that no algorithm imports torch. What it does to a net is a loss that the learner finds by
the term's `loss` in the registry of "local_loss": a plug-in brings a term, and a loss under an entry point of the group
``collegium.local_loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from numpy.typing import NDArray

from collegium.core.settings import NonNegativeFloat, PositiveFloat, Probability, check
from collegium.errors import ConfigError

Weights = Mapping[str, NDArray[Any]]
Part = Literal["all", "features", "head"]
Trained = Literal["all", "head"]
Optimizer = Literal["adam", "adamw", "sgd", "momentum"]
Precision = Literal["float32", "tf32", "bfloat16"]


class Unlabeled(NamedTuple):
    """Rows without labels and, for soft targets, the class probabilities (rows x classes) they should get."""

    X: Any
    targets: Any = None


@dataclass(frozen=True, eq=False)
class LocalTerm:
    """One thing that a local update does beside learning from its labeled rows.

    A subclass is a frozen dataclass with what its loss needs. It is for learners that continue from their weights:
    an algorithm that uses one says ``needs = {"weights": "..."}``.
    """

    loss: ClassVar[str]
    """The name under which its loss is registered."""
    alone: ClassVar[bool] = False
    """Whether it takes all mini-batch steps itself: it cannot be combined with other terms, train='head' or
    keep_optimizer."""

    @property
    def unlabeled(self) -> Unlabeled | None:
        """Rows that fill one more share of each mini-batch, if it brings any."""
        return None


@dataclass(frozen=True, eq=False)
class SoftTargets(LocalTerm):
    """weight x T^2 KL(targets || the net's answers) is added to the loss, both softened by the temperature T."""

    loss: ClassVar[str] = "soft_targets"
    X: Any
    targets: Any
    weight: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative("The weight of soft targets", self.weight)
        check(PositiveFloat, self.temperature, "temperature")

    @property
    def unlabeled(self) -> Unlabeled:
        return Unlabeled(self.X, self.targets)


@dataclass(frozen=True, eq=False)
class LocalTerms:
    """The terms of one local update, and how it goes about it."""

    added: Sequence[LocalTerm] = ()
    """What the update does beside learning from its labeled rows."""
    confidences: Any = None
    """The weight of each pseudo-labeled row, where a private one has 1. None: all have 1."""
    train: Trained = "all"
    """"head" trains the last linear layer only (linear evaluation): all before it, in eval mode, stays as it is."""
    keep_optimizer: bool = False
    """Whether momentum goes on from the last update. A site of FedAvg keeps no state between rounds, so it does not."""
    rate: float = 1.0
    """Times the learner's own learning rate: a method may have it fall from round to round."""

    def __post_init__(self) -> None:
        check_not_negative("rate", self.rate)
        if self.train not in get_args(Trained):
            raise ConfigError(f"train must be 'all' or 'head', got {self.train!r}.")
        with_rows = [each.loss for each in self.added if each.unlabeled is not None]
        if len(with_rows) > 1:
            raise ConfigError(f"An update takes one kind of rows beside the labeled ones, got {with_rows}.")
        alone = [each.loss for each in self.added if each.alone]
        if alone and (len(self.added) > 1 or self.train != "all" or self.keep_optimizer):
            raise ConfigError(f"{alone[0]!r} cannot be combined with other terms, train='head' or keep_optimizer.")

    @property
    def unlabeled(self) -> Unlabeled | None:
        """The rows that the net learns from beside those with labels; None where there are none."""
        given = [each.unlabeled for each in self.added]
        return next((each for each in given if each is not None and each.X.shape[0] > 0), None)


@dataclass(frozen=True)
class UpdateReport:
    """What the last training of a learner did: SCAFFOLD needs `steps` and `lr`."""

    steps: int
    lr: float
    found: float | Callable[[], float]
    """The loss, or what waits for it: a GPU may still be at work."""
    device: str
    parts: Mapping[str, Weights] = field(default_factory=dict)
    """Weights beside the net's own that the terms learned, by name."""

    @property
    def loss(self) -> float:
        """The mean over the mini-batch steps, without what terms add to gradients only.

        NaN or infinite if training diverged.
        """
        return self.found() if callable(self.found) else self.found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.steps, self.lr, self.loss, self.device, self.parts)


def check_share(name: str, value: float) -> None:
    """A ConfigError unless it is a number from 0 to 1."""
    check(Probability, value, name)


def check_not_negative(name: str, value: float) -> None:
    """A ConfigError unless it is a finite number of at least 0."""
    check(NonNegativeFloat, value, name)
