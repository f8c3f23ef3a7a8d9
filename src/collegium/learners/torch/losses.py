"""What a step of training follows: the loss of a mini-batch, and what local terms add to its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from collegium.core.terms import LocalTerms
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch


class Drift:
    """What the terms of an update add to the gradients: mu (w - anchor), and SCAFFOLD's correction."""

    def __init__(self, net: nn.Module, terms: LocalTerms) -> None:
        parameters = list(net.parameters())
        self._mu = terms.proximal
        self._anchored: list[tuple[nn.Parameter, torch.Tensor]] = []
        self._corrected: list[tuple[nn.Parameter, torch.Tensor]] = []
        if terms.proximal > 0 and terms.anchor is None:
            self._anchored = [(each, each.detach().clone()) for each in parameters]
        elif terms.anchor is not None:
            self._anchored = _pairs(parameters, named.for_parameters(net, terms.anchor, "The anchor's arrays"))
        if terms.correction is not None:
            self._corrected = _pairs(parameters, named.for_parameters(net, terms.correction, "The correction's arrays"))

    @torch.no_grad()
    def add_to_gradients(self) -> None:
        """Before each step. A parameter without a gradient takes no part in the step."""
        for parameter, anchor in self._anchored:
            if parameter.grad is not None:
                parameter.grad.add_(parameter - anchor, alpha=self._mu)
        for parameter, correction in self._corrected:
            if parameter.grad is not None:
                parameter.grad.add_(correction)


def _pairs(
    parameters: Iterable[nn.Parameter], arrays: Iterable[torch.Tensor | None]
) -> list[tuple[nn.Parameter, torch.Tensor]]:
    return [(each, array) for each, array in zip(parameters, arrays, strict=True) if array is not None]


@dataclass(frozen=True)
class SoftLoss:
    """weight x T^2 KL(targets || answers), both softened by the temperature T."""

    weight: float
    temperature: float = 1.0

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.temperature != 1:
            targets = functional.normalize(targets ** (1 / self.temperature), p=1, dim=1)
        answers = functional.log_softmax(logits / self.temperature, dim=1)
        divergence = functional.kl_div(answers, targets, reduction="batchmean")
        return self.weight * self.temperature**2 * divergence


def batch_loss(net: nn.Module, X: torch.Tensor, batch: Batch, soft_loss: SoftLoss) -> torch.Tensor:
    """The mean (weighted) cross-entropy of the labelled rows, plus the loss of the rows with soft targets.

    X are the batch's rows as the net is to see them.
    """
    logits = net(X)
    if batch.soft is None:
        return cross_entropy(logits, batch)
    n = len(batch.codes)
    loss = soft_loss(logits[n:], batch.soft)
    return loss if n == 0 else cross_entropy(logits[:n], batch) + loss


def cross_entropy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean (weighted) cross-entropy of the labelled rows."""
    if batch.weights is None:
        return functional.cross_entropy(logits, batch.codes)
    return (batch.weights * functional.cross_entropy(logits, batch.codes, reduction="none")).mean()
