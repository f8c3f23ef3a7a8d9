"""FedSiam's training: a net, and a target net that follows it by a moving average."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from collegium.learners.torch import views
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.losses import LocalLoss

if TYPE_CHECKING:
    from collegium.algorithms.fedsiam import Siamese


class SiameseLoss(LocalLoss):
    """The net's predictions for one view of all rows should match its target's for another."""

    term: Siamese
    augments = True

    def begin(self) -> None:
        """Make the target."""
        self._target = copy.deepcopy(self.net).requires_grad_(False)
        named.write(self._target, self.term.target)

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """The squared difference of the predictions."""
        with torch.no_grad():
            wanted = self._target(views.weak(batch.X)).softmax(dim=1)
        return self.term.weight * functional.mse_loss(logits.softmax(dim=1), wanted)

    def step(self, batch: Batch, take: Callable[[Batch], torch.Tensor]) -> torch.Tensor:
        """Take one step, and let the target follow."""
        loss = take(batch)
        with torch.no_grad():
            for mean, value in zip(self._target.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(value, 1 - self.term.decay)
        return loss

    def parts(self) -> dict[str, named.Arrays]:
        """The target's weights."""
        return {"target": named.read(self._target)}
