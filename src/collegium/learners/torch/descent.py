"""How a net goes down: the loss of a mini-batch, its gradient with what the terms add, a step of the optimizer."""

from __future__ import annotations

import torch
from torch import nn

from collegium.core.terms import LocalTerms
from collegium.learners.torch import views
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.losses import Drift, SoftLoss, batch_loss


class Descent:
    """The plain way, which others go on from."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        terms: LocalTerms,
        device: torch.device,
        *,
        soft_loss: SoftLoss | None = None,
        augment: bool = False,
    ) -> None:
        self._net, self._optimizer, self._device = net, optimizer, device
        self._soft_loss = soft_loss or SoftLoss(1.0 if terms.distill is None else terms.distill.weight)
        self._augment = augment
        self._drift = Drift(net, terms)

    def step(self, batch: Batch) -> torch.Tensor:
        """Take one step; the batch's loss before it."""
        self._optimizer.zero_grad()
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._drift.add_to_gradients()
        self._optimizer.step()
        return loss.detach()

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What takes the steps."""
        return self._optimizer

    def parts(self) -> dict[str, named.Arrays]:
        """Weights beside the net's own, by name."""
        return {}

    def _loss(self, batch: Batch) -> torch.Tensor:
        return batch_loss(self._net, self._seen(batch), batch, self._soft_loss)

    def _seen(self, batch: Batch) -> torch.Tensor:
        return views.weak(batch.X) if self._augment else batch.X
