"""FedMatch's training: one part of the weights learns from labeled rows, the other from unlabeled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from collegium.errors import ConfigError
from collegium.learners.torch import views
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.losses import LocalLoss, cross_entropy

if TYPE_CHECKING:
    from collegium.algorithms.fedmatch import Disjoint


class DisjointLoss(LocalLoss):
    """sigma learns from the labeled rows, psi from the unlabeled ones, each with its own optimizer.

    The net's weights are sigma + psi, so the gradient of either is the net's. A proximal step after psi's own keeps psi
    close to sigma and sparse: it is stable at any learning rate, and small values become 0.
    """

    term: Disjoint

    def begin(self) -> None:
        """Split the weights."""
        learned = {name: each for name, each in self.net.named_parameters() if each.requires_grad}
        given = named.for_parameters(self.net, self.term.psi, "The arrays of psi")
        self._names, self._parameters = list(learned), list(learned.values())
        self._psi = [nn.Parameter(each) for each in given if each is not None]
        self._sigma = [nn.Parameter(each.detach() - psi) for each, psi in zip(self._parameters, self._psi, strict=True)]
        self._optimizer_of_sigma, self._optimizer_of_psi = map(self.make_optimizer, (self._sigma, self._psi))
        self._helpers = _as_probabilities(self.term, self._parameters[0].device)

    def step(self, batch: Batch, take: Callable[[Batch], torch.Tensor]) -> torch.Tensor:
        """One step of sigma, then one of psi, instead of the usual one."""
        X, n = batch.X, len(batch.codes)
        total = torch.zeros((), device=X.device)
        if n > 0:
            loss = self.term.supervised * cross_entropy(self.net(X[:n]), batch)
            self._go(loss, self._sigma, self._optimizer_of_sigma)
            total += loss.detach()
        if batch.beside is not None:
            loss = self._unsupervised(X[n:], batch.beside)
            self._go(loss, self._psi, self._optimizer_of_psi)
            total += loss.detach()
        self._regularise()
        return total

    def parts(self) -> dict[str, named.Arrays]:
        """Both parts, whose sum is the net's weights. psi's buffers are unchanged."""
        whole = named.read(self.net)
        own = {name: each.detach().cpu().numpy() for name, each in zip(self._names, self._psi, strict=True)}
        psi = {name: own.get(name, self.term.psi[name]) for name in whole}
        return {"sigma": {name: whole[name] - psi[name] for name in whole}, "psi": psi}

    def _unsupervised(self, X: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Inter-client consistency and agreement-based pseudo-labels, for rows that the net is confident about."""
        logits = self.net(X)
        certainty, own = logits.detach().softmax(dim=1).max(dim=1)
        sure = (certainty >= self.term.confidence).float()
        said = self._helpers[:, rows]
        votes = functional.one_hot(torch.cat([own[None], said.argmax(dim=2)]), logits.shape[1]).sum(dim=0)
        distorted = self.net(views.strong(X))
        loss = functional.cross_entropy(distorted, votes.argmax(dim=1), reduction="none")
        if len(said):
            answers = logits.log_softmax(dim=1).expand_as(said)
            loss = loss + functional.kl_div(answers, said, reduction="none").sum(dim=2).mean(dim=0)
        mean: torch.Tensor = (sure * loss).sum() / sure.sum().clamp(min=1)
        return self.term.consistency * mean

    def _go(self, loss: torch.Tensor, part: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for each, gradient in zip(part, gradients, strict=True):
            each.grad = gradient
        optimizer.step()
        self._join()

    @torch.no_grad()
    def _regularise(self) -> None:
        lr = self._optimizer_of_psi.param_groups[0]["lr"]
        pull, cut = 2 * lr * self.term.l2, lr * self.term.l1
        for sigma, psi in zip(self._sigma, self._psi, strict=True):
            psi.copy_(functional.softshrink(psi.add(sigma, alpha=pull).div(1 + pull), cut))
        self._join()

    @torch.no_grad()
    def _join(self) -> None:
        for each, sigma, psi in zip(self._parameters, self._sigma, self._psi, strict=True):
            torch.add(sigma, psi, out=each)


def _as_probabilities(term: Disjoint, device: torch.device) -> torch.Tensor:
    """The helpers' predictions, (helpers, rows, classes)."""
    said = [torch.as_tensor(each, dtype=torch.float32, device=device) for each in term.helpers]
    if any(each.ndim != 2 or len(each) != term.X.shape[0] for each in said):
        raise ConfigError("Each FedMatch helper must give class probabilities for every unlabeled row.")
    return torch.stack(said) if said else torch.zeros(0, term.X.shape[0], 1, device=device)
