"""FedMatch's training: one part of the weights learns from labels, the other from rows without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from collegium.core.terms import Disjoint, LocalTerms
from collegium.errors import ConfigError
from collegium.learners.torch import views
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.losses import cross_entropy


class DisjointDescent(Descent):
    """sigma goes down for the labelled rows, psi for those without labels, each with an optimizer of its own.

    The net's weights are sigma + psi, so that the gradient of either is the net's. What keeps psi near sigma and sparse
    is a proximal step after psi's own: it survives any learning rate, and what is small becomes 0.
    """

    def __init__(
        self,
        net: nn.Module,
        make: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
        terms: LocalTerms,
        disjoint: Disjoint,
        device: torch.device,
    ) -> None:
        learned = {name: each for name, each in net.named_parameters() if each.requires_grad}
        given = named.for_parameters(net, disjoint.psi, "The arrays of psi")
        self._names, self._parameters = list(learned), list(learned.values())
        self._psi = [nn.Parameter(each) for each in given if each is not None]
        self._sigma = [nn.Parameter(each.detach() - psi) for each, psi in zip(self._parameters, self._psi, strict=True)]
        super().__init__(net, make(self._sigma), terms, device)
        self._optimizer_of_psi = make(self._psi)
        self._disjoint = disjoint
        self._helpers = _as_probabilities(disjoint, device)

    def step(self, batch: Batch) -> torch.Tensor:
        """One step of sigma, then one of psi."""
        X, n = batch.X, len(batch.codes)
        total = torch.zeros((), device=self._device)
        if n > 0:
            loss = self._disjoint.supervised * cross_entropy(self._net(X[:n]), batch)
            self._go(loss, self._sigma, self._optimizer)
            total += loss.detach()
        if batch.beside is not None:
            loss = self._unsupervised(X[n:], batch.beside)
            self._go(loss, self._psi, self._optimizer_of_psi)
            total += loss.detach()
        self._regularise()
        return total

    def parts(self) -> dict[str, named.Arrays]:
        """Both parts, which add up to the net's weights. Of buffers, psi has what it had."""
        whole = named.read(self._net)
        own = {name: each.detach().cpu().numpy() for name, each in zip(self._names, self._psi, strict=True)}
        psi = {name: own.get(name, self._disjoint.psi[name]) for name in whole}
        return {"sigma": {name: whole[name] - psi[name] for name in whole}, "psi": psi}

    def _unsupervised(self, X: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Inter-client consistency and agreement-based pseudo-labels, of the rows that the net is sure of."""
        logits = self._net(X)
        certainty, own = logits.detach().softmax(dim=1).max(dim=1)
        sure = (certainty >= self._disjoint.confidence).float()
        said = self._helpers[:, rows]
        votes = functional.one_hot(torch.cat([own[None], said.argmax(dim=2)]), logits.shape[1]).sum(dim=0)
        distorted = self._net(views.strong(X))
        loss = functional.cross_entropy(distorted, votes.argmax(dim=1), reduction="none")
        if len(said):
            answers = logits.log_softmax(dim=1).expand_as(said)
            loss = loss + functional.kl_div(answers, said, reduction="none").sum(dim=2).mean(dim=0)
        mean: torch.Tensor = (sure * loss).sum() / sure.sum().clamp(min=1)
        return self._disjoint.consistency * mean

    def _go(self, loss: torch.Tensor, part: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for each, gradient in zip(part, gradients, strict=True):
            each.grad = gradient
        optimizer.step()
        self._join()

    @torch.no_grad()
    def _regularise(self) -> None:
        lr = self._optimizer_of_psi.param_groups[0]["lr"]
        pull, cut = 2 * lr * self._disjoint.l2, lr * self._disjoint.l1
        for sigma, psi in zip(self._sigma, self._psi, strict=True):
            psi.copy_(functional.softshrink(psi.add(sigma, alpha=pull).div(1 + pull), cut))
        self._join()

    @torch.no_grad()
    def _join(self) -> None:
        for each, sigma, psi in zip(self._parameters, self._sigma, self._psi, strict=True):
            torch.add(sigma, psi, out=each)


def _as_probabilities(disjoint: Disjoint, device: torch.device) -> torch.Tensor:
    """What the helpers say, (helpers, rows, classes)."""
    said = [torch.as_tensor(each, dtype=torch.float32, device=device) for each in disjoint.helpers]
    if any(each.ndim != 2 or len(each) != disjoint.X.shape[0] for each in said):
        raise ConfigError("A helper of disjoint says the class probabilities of every row without a label.")
    return torch.stack(said) if said else torch.zeros(0, disjoint.X.shape[0], 1, device=device)
