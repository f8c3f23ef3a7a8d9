"""One mini-batch step: the loss, its gradient with what local terms add, and the optimizer's step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from torch import nn

from collegium.core.terms import LocalTerm, Precision, Weights
from collegium.learners.torch import memory, views
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.devices import passing
from collegium.learners.torch.losses import LocalLoss, cross_entropy
from collegium.learners.torch.rounded import rounded


class Descent:
    """The mini-batch steps of one update. Each loss's `step` wraps the ones before it: the last is the outermost."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Sequence[LocalLoss],
        *,
        augment: bool,
        precision: Precision = "float32",
        has_random_layers: bool = False,
    ) -> None:
        self.optimizer, self._precision = optimizer, precision
        self._net, self._losses = net, losses
        self._rounded = rounded(net, losses) if precision == "bfloat16" else None
        self._augment = augment or any(each.augments for each in losses)
        self.draws = self._augment or has_random_layers or not all(each.recordable for each in losses)
        """Whether a step draws random numbers."""

    def step(self, batch: Batch) -> torch.Tensor:
        """Take a step; returns the loss before it."""
        take: Callable[[Batch], torch.Tensor] = self._go_down
        for each in self._losses:  # not once for all: it would refer to itself, and its memory would stay for a while
            take = partial(each.step, take=take)
        return take(batch)

    def renew(self, terms: Sequence[LocalTerm]) -> bool:
        """Take the terms of another update, of the same kinds; False if it cannot."""
        return all(loss.renew(term) for loss, term in zip(self._losses, terms, strict=True))

    def parts(self) -> dict[str, Weights]:
        """Weights besides the net's own, by name."""
        return {name: part for each in self._losses for name, part in each.parts().items()}

    def _go_down(self, batch: Batch) -> torch.Tensor:
        loss = self._with_gradients(batch)
        for each in self._losses:
            each.add_to_gradients()
        self.optimizer.step()
        return loss

    def _with_gradients(self, batch: Batch) -> torch.Tensor:
        """The loss. Without enough memory, others give back what they keep; then a net that can computes it in less."""
        try:
            self.optimizer.zero_grad()
            if self._rounded is not None:
                self._rounded.round()
            with passing(batch.X.device, self._precision):
                loss = self._loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            if self._rounded is not None:
                self._rounded.give_gradients()
            return loss.detach()
        except torch.OutOfMemoryError:
            if self._rounded is not None:
                self._rounded.forget()
            less = getattr(self._net, "use_less_memory", lambda rows: False)
            self.optimizer.zero_grad()
            recorded = batch.X.is_cuda and torch.cuda.is_current_stream_capturing()
            if recorded or not ((self._may_repeat and memory.give_back()) or less(len(batch.X))):
                raise
        return self._with_gradients(batch)  # not above: there, what the failed step computed is still in memory

    @property
    def _may_repeat(self) -> bool:
        """Whether half a step leaves no trace: batch norms count their rows as soon as they see them."""
        return not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in self._net.modules())

    def _loss(self, batch: Batch) -> torch.Tensor:
        """The cross-entropy of the labeled rows, which come first, plus what each term adds."""
        net = self._net if self._rounded is None else self._rounded
        logits, n = net(views.weak(batch.X) if self._augment else batch.X), len(batch.codes)
        if self._precision == "bfloat16":
            logits = logits.float()
        labelled = [cross_entropy(logits if n == len(logits) else logits[:n], batch)] if n > 0 else []
        added = (each.loss(batch, logits) for each in self._losses)
        return reduce(operator.add, [*labelled, *(each for each in added if each is not None)])
