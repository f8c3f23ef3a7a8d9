"""What local terms do to the training of a net: a `LocalLoss` for each kind of term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from collegium.core.terms import SoftTargets, Weights
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch

if TYPE_CHECKING:
    from collegium.algorithms.fedprox import Proximal
    from collegium.algorithms.scaffold import Correction

MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


class LocalLoss:
    """What one local term does in each step of an update. A subclass says what is different."""

    term: Any
    """A subclass gives it the type of its term."""
    recordable: ClassVar[bool] = False
    """Whether all steps are the same work on other numbers, none of them drawn at random and none read back to Python:
    only then may a GPU record a step and replay it. Otherwise it draws from the learner's own stream."""
    augments: ClassVar[bool] = False
    """Whether the net sees a random view of each row, as with `augment`; `batch.X` stays as it is."""

    def __init__(self, term: Any, net: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """`make_optimizer` makes one with the learner's settings, for a loss with parameters of its own."""
        self.term, self.net, self.make_optimizer = term, net, make_optimizer
        self.begin()

    def begin(self) -> None:
        """Get ready, when the net has the weights that the update starts from, on the device that it is trained on."""

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """What is added to the cross-entropy of the labelled rows, given what the net says of all rows."""
        return None

    def add_to_gradients(self) -> None:
        """What is added to the gradients of the net's parameters before each step."""

    def step(self, batch: Batch, take: Callable[[Batch], torch.Tensor]) -> torch.Tensor:
        """One step; the batch's loss before it. `take` takes it: do more before or after that, or all by yourself."""
        return take(batch)

    def parts(self) -> Mapping[str, Weights]:
        """Weights beside the net's own that the update reports, by name."""
        return {}


def cross_entropy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean (weighted) cross-entropy of the labelled rows."""
    if batch.weights is None:
        return functional.cross_entropy(logits, batch.codes)
    return (batch.weights * functional.cross_entropy(logits, batch.codes, reduction="none")).mean()


class SoftTargetsLoss(LocalLoss):
    """weight x T^2 KL(targets || answers), both softened by the temperature T."""

    term: SoftTargets
    recordable = True

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """The divergence of the rows with soft targets, which come last."""
        targets, temperature = batch.soft, self.term.temperature
        if targets is None:
            return None
        if temperature != 1:
            targets = functional.normalize(targets ** (1 / temperature), p=1, dim=1)
        answers = functional.log_softmax(logits[len(batch.codes) :] / temperature, dim=1)
        divergence = functional.kl_div(answers, targets, reduction="batchmean")
        return self.term.weight * temperature**2 * divergence


class ProximalLoss(LocalLoss):
    """FedProx: mu (w - anchor) is added to the gradients."""

    term: Proximal
    recordable = True

    def begin(self) -> None:
        """Keep the anchor."""
        self._anchored: list[tuple[nn.Parameter, torch.Tensor]] = []
        if self.term.anchor is not None:
            self._anchored = _by_parameter(self.net, self.term.anchor, "The anchor's arrays")
        elif self.term.mu > 0:
            self._anchored = [(each, each.detach().clone()) for each in self.net.parameters()]

    @torch.no_grad()
    def add_to_gradients(self) -> None:
        """A parameter without a gradient takes no part in the step."""
        for parameter, anchor in self._anchored:
            if parameter.grad is not None:
                parameter.grad.add_(parameter - anchor, alpha=self.term.mu)


class CorrectionLoss(LocalLoss):
    """SCAFFOLD: c - c_i is added to the gradients."""

    term: Correction
    recordable = True

    def begin(self) -> None:
        """Bring the correction to the net."""
        self._corrected = _by_parameter(self.net, self.term.arrays, "The correction's arrays")

    @torch.no_grad()
    def add_to_gradients(self) -> None:
        """A parameter without a gradient takes no part in the step."""
        for parameter, correction in self._corrected:
            if parameter.grad is not None:
                parameter.grad.add_(correction)


def _by_parameter(net: nn.Module, arrays: Weights, what: str) -> list[tuple[nn.Parameter, torch.Tensor]]:
    given = zip(net.parameters(), named.for_parameters(net, arrays, what), strict=True)
    return [(parameter, array) for parameter, array in given if array is not None]
