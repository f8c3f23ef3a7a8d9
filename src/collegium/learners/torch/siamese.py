"""FedSiam's training: a net, and a target that follows it and that it agrees with."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional

from collegium.core.terms import LocalTerms, Siamese
from collegium.learners.torch import views
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.losses import cross_entropy


class SiameseDescent(Descent):
    """The net's answers to one view of all rows, and its target's to another, should be the same."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        terms: LocalTerms,
        siamese: Siamese,
        device: torch.device,
    ) -> None:
        super().__init__(net, optimizer, terms, device)
        self._siamese = siamese
        self._target = copy.deepcopy(net).requires_grad_(False)
        named.write(self._target, siamese.target)

    def step(self, batch: Batch) -> torch.Tensor:
        """Take one step, and let the target follow."""
        loss = super().step(batch)
        with torch.no_grad():
            for mean, value in zip(self._target.parameters(), self._net.parameters(), strict=True):
                mean.lerp_(value, 1 - self._siamese.decay)
        return loss

    def parts(self) -> dict[str, named.Arrays]:
        """The target's weights."""
        return {"target": named.read(self._target)}

    def _loss(self, batch: Batch) -> torch.Tensor:
        X, n = batch.X, len(batch.codes)
        logits = self._net(views.weak(X))
        with torch.no_grad():
            wanted = self._target(views.weak(X)).softmax(dim=1)
        loss = self._siamese.weight * functional.mse_loss(logits.softmax(dim=1), wanted)
        return loss if n == 0 else loss + cross_entropy(logits[:n], batch)
