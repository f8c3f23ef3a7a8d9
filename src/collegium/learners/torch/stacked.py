"""Nets of one shape, trained in one computation: their weights lie one behind the other, and so do their batches.

Each net takes the steps that it would take alone, on the same rows: what is computed is the same, with sums in another
order. Nets that take fewer steps lie behind those that take more, and are left out when they are done.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from collegium.learners.torch.batches import Batch
from collegium.learners.torch.losses import LocalLoss

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Tensors = list[torch.Tensor]


class Stack:
    """The weights and optimizer states of several nets that have taken equally many steps."""

    def __init__(self, nets: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._nets, self._optimizers = nets, optimizers
        self.names = [name for name, _ in nets[0].named_parameters()]
        self.parameters = [
            torch.stack([p.detach() for p in each]) for each in zip(*(n.parameters() for n in nets), strict=True)
        ]
        self.buffers = {
            name: torch.stack([net.get_buffer(name) for net in nets]) for name, _ in nets[0].named_buffers()
        }
        self.states = [_stacked(each) for each in zip(*map(_states, optimizers), strict=True)]
        self._part: Part | None = None

    def first(self, n: int) -> Part:
        """The first n nets; ask for all of them first."""
        self._take_states()
        self._part = Part(self, n)
        return self._part

    def _take_states(self) -> None:
        """An optimizer makes its state in its first step: from then on it is that of the stack."""
        if self._part is not None and not any(self.states):
            self.states = _states(self._part.optimizer)

    def optimizer(self, parameters: Sequence[nn.Parameter], n: int) -> torch.optim.Optimizer:
        """One like theirs, for parameters that are views of these: its state is a view too."""
        like = self._optimizers[0]
        (group,) = like.param_groups
        made = type(like)(parameters)
        made.param_groups[0].update({name: value for name, value in group.items() if name != "params"})
        for parameter, state in zip(parameters, self.states, strict=True):
            made.state[parameter].update(
                {name: value[:n] if torch.is_tensor(value) and value.dim() else value for name, value in state.items()}
            )
        return made

    @torch.no_grad()
    def put_back(self) -> None:
        """Give every net and optimizer what came of it."""
        self._take_states()
        for at, (net, optimizer) in enumerate(zip(self._nets, self._optimizers, strict=True)):
            for parameter, stacked in zip(net.parameters(), self.parameters, strict=True):
                parameter.copy_(stacked[at])
            for name, stacked in self.buffers.items():
                net.get_buffer(name).copy_(stacked[at])
            for parameter, state in zip(net.parameters(), self.states, strict=True):
                for name, value in state.items():
                    own = value[at] if torch.is_tensor(value) and value.dim() else value
                    optimizer.state[parameter][name] = own.clone() if torch.is_tensor(own) else own


class Part:
    """The first nets of a stack, and their steps."""

    def __init__(self, stack: Stack, n: int) -> None:
        self._names = stack.names
        self._buffers = {name: value[:n] for name, value in stack.buffers.items()}
        self.parameters = [nn.Parameter(value[:n]) for value in stack.parameters]
        self.optimizer = stack.optimizer(self.parameters, n)
        self._net = stack._nets[0]

    def step(self, batch: Batch, counts: torch.Tensor | None, losses: Sequence[LocalLoss]) -> torch.Tensor:
        """One step of each net on its own batch; the loss of each before it.

        `counts` says how many rows with labels each batch has, if some have fewer: those that fill it up weigh nothing.
        """
        given = {name: part for name, part in batch._asdict().items() if part is not None}

        def loss(parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], parts: dict[str, torch.Tensor],
                 count: torch.Tensor | None) -> torch.Tensor:  # fmt: skip
            own = Batch(**{name: parts.get(name) for name in Batch._fields})  # type: ignore[arg-type]
            logits = functional_call(self._net, (parameters, buffers), (own.X,))
            return _loss(own, logits, count, losses)

        dims = (0, 0, 0, None if counts is None else 0)
        each = dict(zip(self._names, self.parameters, strict=True))
        gradients, found = vmap(grad_and_value(loss), in_dims=dims)(each, self._buffers, given, counts)
        for name, parameter in zip(self._names, self.parameters, strict=True):
            parameter.grad = gradients[name]
        for term in losses:
            term.add_to_gradients()
        self.optimizer.step()
        return found.detach()


def _loss(batch: Batch, logits: torch.Tensor, count: torch.Tensor | None, losses: Sequence[LocalLoss]) -> torch.Tensor:
    """As in `Descent`, but that rows may be there to fill up the batch only."""
    n = len(batch.codes)
    parts = []
    if n > 0:
        every = functional.cross_entropy(logits[:n], batch.codes, reduction="none")
        weighted = every if batch.weights is None else batch.weights * every
        parts.append(weighted.mean() if count is None else weighted.sum() / count)
    parts += [part for part in (each.loss(batch, logits) for each in losses) if part is not None]
    return reduce(operator.add, parts)


def _states(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    (group,) = optimizer.param_groups
    return [dict(optimizer.state.get(parameter, {})) for parameter in group["params"]]


def _stacked(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The states of one parameter in all nets as one; a count of steps, which is the same for all, stays one number."""
    first = states[0]
    return {
        name: torch.stack([state[name] for state in states]) if torch.is_tensor(value) and value.dim() else value
        for name, value in first.items()
    }
