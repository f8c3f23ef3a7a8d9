"""Private fits of several sites in one computation.

Each site has what it has alone: its own Poisson samples, the gradient of every record clipped to the same length, and
noise on their sum from its own source, drawn in the same order. So its claim is the same, too. What is shared is the
computation of the gradients, in which no number of one site meets one of another.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from collegium.core.meeting import Alone
from collegium.errors import CollegiumWarning
from collegium.learners.torch.batches import Labelled
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.devices import RandomStream, computing
from collegium.learners.torch.likeness import likeness
from collegium.learners.torch.losses import cross_entropies
from collegium.learners.torch.optimizers import OPTIMIZERS
from collegium.learners.torch.training import has_layer
from collegium.privacy.events import SampledGaussian
from collegium.privacy.learners import dp_training
from collegium.privacy.noise import Noise

Tensors = dict[str, torch.Tensor]
_ONE_AT_A_TIME = (nn.modules.conv._ConvNd, nn.modules.rnn.RNNBase)
_RANDOM = (nn.modules.dropout._DropoutNd,)


@dataclass(frozen=True, eq=False)
class PrivateFit:
    """One private fit of one net, which is trained in place. It can be done with those of other sites."""

    trains: ClassVar[bool] = True
    net: nn.Module
    data: Labelled
    event: SampledGaussian
    noise: Noise
    stream: RandomStream
    optimizer: str
    lr: float
    weight_decay: float
    max_grad_norm: float
    size: int
    device: torch.device
    is_named: bool
    """Whether it is one of our nets, whose layers are known."""

    @property
    def expected(self) -> float:
        """The expected number of records in a sample."""
        return self.event.sampling * self.size

    @cached_property
    def _why_not(self) -> str | None:
        if has_layer(self.net, *_ONE_AT_A_TIME):
            return "its net has layers that are computed for one net at a time"
        if has_layer(self.net, *_RANDOM):
            return "its net draws random numbers in a private fit"
        if not all(each.requires_grad for each in self.net.parameters()):
            return "its net has parameters that do not learn"
        return None

    @cached_property
    def kind(self) -> Hashable | None:
        """Equal for fits that are the same computation on other numbers, with about as many records in a sample."""
        if self._why_not is not None:
            return None
        shapes = tuple((name, tuple(each.shape)) for name, each in self.net.named_parameters())
        steps = (self.optimizer, self.lr, self.weight_decay, self.max_grad_norm, self.device)
        filled = int(4 * math.log2(max(1.0, self.expected)))
        return "private", likeness(self.net), shapes, self.data.rows.shape, steps, filled

    @property
    def why_alone(self) -> str:
        """Why it is done alone."""
        return self._why_not or "no other site's net and settings are like it"

    def alone(self) -> None:
        """Do it."""
        with turn(self.device), computing(self.device, "float32"):
            dp_training.train_privately(
                self.net,
                self.data,
                self.event,
                self.noise,
                self.stream,
                optimizer=self.optimizer,
                lr=self.lr,
                weight_decay=self.weight_decay,
                max_grad_norm=self.max_grad_norm,
                size=self.size,
                device=self.device,
                deterministic=self.is_named,
            )

    def together(self, others: Sequence[PrivateFit]) -> Sequence[Alone | None]:
        """Do these, of which it is the first."""
        with turn(self.device), computing(self.device, "float32"):
            for each in others:
                dp_training.check_net(each.net).to(self.device).train()
            try:
                _try_computing(others)
            except Exception as error:  # before anything private was used, or noise drawn
                return [Alone(f"its net cannot be computed with others ({type(error).__name__})")] * len(others)
            numbers = sum(each.numel() for each in self.net.parameters())
            at_once = max(1, dp_training.VALUES_AT_ONCE // max(1, numbers))
            # Those with the most steps first: who is done lies behind those who are not.
            order = sorted(range(len(others)), key=lambda at: (-others[at].event.count, at))
            for start in range(0, len(order), at_once):
                _Fits([others[at] for at in order[start : start + at_once]]).train()
        return [None] * len(others)


def _try_computing(fits: Sequence[PrivateFit]) -> None:
    """An error where these nets cannot be computed at once: gradients of rows of zeros."""
    few = fits[:2]
    X = torch.zeros((len(few), 2, *few[0].data.rows.shape), device=few[0].device)
    _gradients(_layers(few[0].net), *_stacked(few), X, torch.zeros(X.shape[:2], dtype=torch.long, device=X.device))


class _Fits:
    """Some fits at work: their weights lie one behind the other."""

    def __init__(self, fits: Sequence[PrivateFit]) -> None:
        self._fits = list(fits)
        first = fits[0]
        self._layers = _layers(first.net)
        weights, self._buffers = _stacked(fits)
        self._weights = {name: nn.Parameter(value) for name, value in weights.items()}
        self._optimizer = OPTIMIZERS[first.optimizer](self._weights.values())
        for group in self._optimizer.param_groups:
            group.update(lr=first.lr, weight_decay=first.weight_decay)
        self._size = sum(value[0].numel() for value in weights.values())
        self._at_once: int | None = None
        """Records of each site whose gradients fit into memory, where it was found to be short."""

    def train(self) -> None:
        """Take all steps of each."""
        for step in range(self._fits[0].event.count):
            if self._fits[-1].event.count <= step:
                self._leave_out(sum(each.event.count > step for each in self._fits))
            drawn = [np.flatnonzero(each.noise.happens(each.event.sampling, len(each.data))) for each in self._fits]
            self._step(self._clipped_sums(drawn))
        self._leave_out(0)

    def _clipped_sums(self, drawn: Sequence[NDArray[np.intp]]) -> torch.Tensor:
        """By site, the sum of its records' clipped gradients. Where memory is short, of fewer records at a time.

        The samples are drawn before: what is computed again is the same.
        """
        most = max(1, dp_training.VALUES_AT_ONCE // (len(drawn) * self._size))
        at_once = min(most, max(map(len, drawn)) or 1, self._at_once or most)
        while True:
            try:
                return self._summed(drawn, at_once)
            except torch.cuda.OutOfMemoryError:
                if at_once == 1:
                    raise
                torch.cuda.empty_cache()
                at_once = self._at_once = at_once // 2
                text = (
                    f"The gradients of the records of {len(drawn)} private fits do not fit into the memory of the GPU: "
                )
                warnings.warn(f"{text}{at_once} are computed at a time.", CollegiumWarning, stacklevel=2)

    def _summed(self, drawn: Sequence[NDArray[np.intp]], at_once: int) -> torch.Tensor:
        device = self._fits[0].device
        total = torch.zeros((len(drawn), self._size), dtype=torch.float64, device=device)
        weights = {name: value.detach() for name, value in self._weights.items()}
        for X, y, is_there in _parts(self._fits, drawn, at_once):
            found = _gradients(self._layers, weights, self._buffers, X, y)
            total += _clipped_sum(list(found.values()), is_there, self._fits[0].max_grad_norm)
        return total

    def _step(self, sums: torch.Tensor) -> None:
        """Each site's noise on its own sum, and a step of all nets."""
        noisy = np.stack([
            each.noise.add_normal(own, each.event.noise_multiplier * each.max_grad_norm, each.max_grad_norm)
            for each, own in zip(self._fits, sums.cpu().numpy(), strict=True)
        ])  # fmt: skip
        parts = torch.split(torch.from_numpy(noisy), [value[0].numel() for value in self._weights.values()], dim=1)
        expected = torch.tensor([each.expected for each in self._fits], device=sums.device)
        for value, part in zip(self._weights.values(), parts, strict=True):
            shares = expected.view(-1, *[1] * (value.ndim - 1))
            value.grad = part.reshape(value.shape).to(value) / shares
        self._optimizer.step()

    @torch.no_grad()
    def _leave_out(self, left: int) -> None:
        """So many go on; the others' nets get what came of them."""
        for at, fit in enumerate(self._fits[left:], start=left):
            for name, parameter in fit.net.named_parameters():
                parameter.copy_(self._weights[name][at])
        self._fits = self._fits[:left]
        self._buffers = {name: value[:left] for name, value in self._buffers.items()}
        for name, before in self._weights.items():
            after = self._weights[name] = nn.Parameter(before[:left].clone())
            state = self._optimizer.state.pop(before, {})
            self._optimizer.state[after] = {
                kept: value[:left].clone() if value.ndim else value
                for kept, value in state.items()
                if value is not None
            }
        self._optimizer.param_groups[0]["params"] = list(self._weights.values())


def _layers(net: nn.Module) -> nn.Module:
    return copy.deepcopy(net).to("meta").train()


def _stacked(fits: Sequence[PrivateFit]) -> tuple[Tensors, Tensors]:
    """Weights and buffers of all nets, by name, one behind the other."""
    weights = [dict(each.net.named_parameters()) for each in fits]
    buffers = [dict(each.net.named_buffers()) for each in fits]
    return (
        {name: torch.stack([own[name].detach() for own in weights]) for name in weights[0]},
        {name: torch.stack([own[name] for own in buffers]) for name in buffers[0]},
    )


def _gradients(layers: nn.Module, weights: Tensors, buffers: Tensors, X: torch.Tensor, y: torch.Tensor) -> Tensors:
    """By site and record, the gradient of each parameter. Random numbers and changed buffers are errors."""

    def loss(own: Tensors, its_buffers: Tensors, row: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = functional_call(layers, (own, its_buffers), (row[None],))
        return cross_entropies(logits, code[None]).squeeze(0)

    of_records = vmap(grad(loss), in_dims=(None, None, 0, 0))
    found: Tensors = vmap(of_records)(weights, buffers, X, y)
    return found


def _parts(
    fits: Sequence[PrivateFit], drawn: Sequence[NDArray[np.intp]], at_once: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Rows and labels of the records drawn, by site, and which of them are there: zeros fill up what others lack."""
    device = fits[0].device
    for start in range(0, max(map(len, drawn)), at_once):
        own = [rows[start : start + at_once] for rows in drawn]
        width = max(map(len, own))
        X = np.zeros((len(own), width, *fits[0].data.rows.shape), dtype=np.float32)
        y = np.zeros((len(own), width), dtype=np.int64)
        for at, (fit, rows) in enumerate(zip(fits, own, strict=True)):
            X[at, : len(rows)], y[at, : len(rows)] = fit.data.rows.take(rows), fit.data.codes(rows)
        is_there = np.arange(width) < np.array([[len(rows)] for rows in own])
        yield tuple(torch.from_numpy(values).to(device) for values in (X, y, is_there))  # type: ignore[misc]


def _clipped_sum(gradients: Sequence[torch.Tensor], is_there: torch.Tensor, max_grad_norm: float) -> torch.Tensor:
    """By site, the sum over its records, as `NoisyOptimizer` computes it for one."""
    pieces = [piece for each in gradients for piece in dp_training.pieces(each.nan_to_num_(0.0, 0.0, 0.0), 2)]
    squares = torch.stack([piece.norm(dim=2).double().square() for piece in pieces]).sum(0)
    shares = dp_training.clipped_shares(squares, max_grad_norm) * is_there
    return torch.cat([torch.bmm(shares[:, None], piece.double())[:, 0] for piece in pieces], dim=1)
