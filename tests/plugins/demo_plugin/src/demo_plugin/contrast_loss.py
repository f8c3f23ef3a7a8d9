"""A local loss: what the term `Contrast` does in each step of training a net."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional

from collegium.learners.torch import Batch, LocalLoss
from collegium.learners.torch import weights as named
from demo_plugin.moon import Contrast


class ContrastLoss(LocalLoss):
    """mu x the cross-entropy of telling, by likeness, the net it started from and the site's last one apart."""

    term: Contrast
    recordable = True

    def begin(self) -> None:
        self._start = copy.deepcopy(self.net).requires_grad_(False).eval()
        self._last = copy.deepcopy(self._start)
        named.write(self._last, self.term.last)

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            others = [net(batch.X) for net in (self._start, self._last)]
        alike = torch.stack([functional.cosine_similarity(logits, other) for other in others], dim=1)
        start = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        return self.term.mu * functional.cross_entropy(alike / self.term.temperature, start)
