"""How local terms change the training of a net: a `LocalLoss` for each kind of term."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

_ANCHOR, _CORRECTION = "The anchor's arrays", "The correction's arrays"
MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


class LocalLoss:
    """What one local term does in each mini-batch step of an update. Subclasses override what differs."""

    term: Any
    """Subclasses narrow its type to that of their term."""
    recordable: ClassVar[bool] = False
    """Whether every step runs the same operations, without random numbers and without reading values back to Python:
    only then may a GPU record and replay it. Otherwise it draws from the learner's own stream."""
    stackable: ClassVar[bool] = False
    """Whether it can be computed for several nets at once. `term`'s arrays and the net's parameters then have one more
    dimension, the nets; `loss` is still that of one net."""
    augments: ClassVar[bool] = False
    """Whether the net sees a random view of each row, as with `augment`; `batch.X` is unchanged."""

    def __init__(self, term: Any, net: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """`make_optimizer` makes one with the learner's settings, for losses with their own parameters."""
        self.term, self.net, self.make_optimizer = term, net, make_optimizer
        self.begin()

    def begin(self) -> None:
        """Prepare, when the net has its initial weights for this update and is on its training device."""

    def renew(self, term: Any) -> bool:
        """Take another term of the same kind, in the same place in memory; False if it must be made anew."""
        return False

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """Added to the cross-entropy of the labeled rows, given the net's logits of all rows."""
        return None

    def add_to_gradients(self) -> None:
        """Change the gradients of the net's parameters before each optimizer step."""

    def step(self, batch: Batch, take: Callable[[Batch], torch.Tensor]) -> torch.Tensor:
        """One step; returns the batch's loss before it. `take` does the usual step: extend or replace it."""
        return take(batch)

    def parts(self) -> Mapping[str, Weights]:
        """Weights besides the net's own that the update reports, by name."""
        return {}


def cross_entropy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean (weighted) cross-entropy of the labeled rows."""
    if batch.weights is None:
        return functional.cross_entropy(logits, batch.codes)
    return (batch.weights * functional.cross_entropy(logits, batch.codes, reduction="none")).mean()


def cross_entropies(logits: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each row, where several nets are computed at once.

    PyTorch's own would then import SymPy, and look for codes that mean no class: twice as many operations.
    """
    return -functional.log_softmax(logits, dim=1).gather(1, codes[:, None]).squeeze(1)


class SoftTargetsLoss(LocalLoss):
    """weight x T^2 KL(targets || answers), both softened by the temperature T."""

    term: SoftTargets
    recordable = True
    stackable = True

    def renew(self, term: Any) -> bool:
        """It keeps nothing: the targets come with each batch."""
        return True

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """The divergence of the rows with soft targets, which come last."""
        targets, temperature = batch.soft, self.term.temperature
        if targets is None:
            return None
        if temperature != 1:
            targets = functional.normalize(targets ** (1 / temperature), p=1, dim=1)
        answers = functional.log_softmax(logits[len(batch.codes) :] / temperature, dim=1)
        # PyTorch's kl_div is this, but is computed for one net at a time.
        divergence = (torch.special.xlogy(targets, targets) - targets * answers).sum() / len(targets)
        found: torch.Tensor = self.term.weight * temperature**2 * divergence
        return found


class ProximalLoss(LocalLoss):
    """FedProx: mu (w - anchor) is added to the gradients."""

    term: Proximal
    recordable = True
    stackable = True

    def begin(self) -> None:
        """Keep the anchor."""
        self._anchored: list[tuple[nn.Parameter, torch.Tensor]] = []
        if self.term.anchor is not None:
            self._anchored = _by_parameter(self.net, self.term.anchor, _ANCHOR)
        elif self.term.mu > 0:
            self._anchored = [(each, each.detach().clone()) for each in self.net.parameters()]

    def renew(self, term: Any) -> bool:
        """Another anchor, or the weights as they are now."""
        self.term = term
        now = self.net.parameters() if term.anchor is None else _given(self.net, term.anchor, _ANCHOR)
        return _put([anchor for _, anchor in self._anchored], now)

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
    stackable = True

    def begin(self) -> None:
        """Copy the correction to the net's device."""
        self._corrected = _by_parameter(self.net, self.term.arrays, _CORRECTION)

    def renew(self, term: Any) -> bool:
        """Another correction."""
        self.term = term
        return _put([correction for _, correction in self._corrected], _given(self.net, term.arrays, _CORRECTION))

    @torch.no_grad()
    def add_to_gradients(self) -> None:
        """A parameter without a gradient takes no part in the step."""
        for parameter, correction in self._corrected:
            if parameter.grad is not None:
                parameter.grad.add_(correction)


def _by_parameter(net: nn.Module, arrays: Weights, what: str) -> list[tuple[nn.Parameter, torch.Tensor]]:
    given = zip(net.parameters(), named.for_parameters(net, arrays, what), strict=True)
    return [(parameter, array) for parameter, array in given if array is not None]


def _given(net: nn.Module, arrays: Weights, what: str) -> list[torch.Tensor]:
    return [array for array in named.for_parameters(net, arrays, what) if array is not None]


@torch.no_grad()
def _put(places: Sequence[torch.Tensor], values: Iterable[torch.Tensor]) -> bool:
    """Put these values there, if they fit; whether they did."""
    new = list(values)
    fits = [place.shape for place in places] == [value.shape for value in new]
    if fits:
        for place, value in zip(places, new, strict=True):
            place.copy_(value)
    return fits
