"""Nets of one shape, trained in one computation: their weights lie one behind the other, and so do their batches.

Each net takes the steps that it would take alone, on the same rows: what is computed is the same, with sums in another
order. Nets that take fewer steps lie behind those that take more, and are left out when they are done.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from collegium.core.terms import Precision
from collegium.learners.torch.adam import take_step
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.devices import CPU, passing
from collegium.learners.torch.losses import LocalLoss, cross_entropies
from collegium.learners.torch.stacked_layers import prepared

Tensors = dict[str, torch.Tensor]


class Member(NamedTuple):
    """A net, its optimizer, and how many steps that has taken since it began."""

    net: nn.Module
    parameters: Sequence[nn.Parameter]
    buffers: Sequence[torch.Tensor]
    optimizer: torch.optim.Optimizer
    taken: int


class Stack:
    """Room for the weights and optimizer states of `size` nets like this one."""

    def __init__(self, like: Member, size: int, trained: Sequence[str]) -> None:
        self.size = size
        self.trained = trained
        """The names of the parameters that learn."""
        self.net = prepared(copy.deepcopy(like.net).to("meta"))
        """The layers, without weights."""
        self.is_known = all(_is_known(layer) for layer in self.net.modules())
        """Whether nothing in the net can tell how gradients are computed."""
        self.weights = {name: _room(value, size) for name, value in like.net.named_parameters()}
        self.buffers = {name: _room(value, size) for name, value in like.net.named_buffers()}
        self.optimizer = like.optimizer
        kept = _kept_by(like.optimizer)
        self.states = [
            {name: torch.zeros_like(self.weights[each]) for name in kept if name != "step"} for each in trained
        ]
        self.counts: list[torch.Tensor] = []
        """How many steps each net's optimizer has taken, by parameter; empty if it does not count."""
        if "step" in kept:
            fused = bool(like.optimizer.param_groups[0].get("fused"))
            device = next(like.net.parameters()).device if fused else CPU
            self.counts = [torch.zeros(size, device=device) for _ in trained]
        self.even = True
        """Whether the optimizers of all nets have taken equally many steps: then one serves all of them."""
        self._learns = [place for place, name in enumerate(self.weights) if name in set(trained)]
        self._slots = [self._slot(at) for at in range(size)]

    def _slot(self, at: int) -> list[torch.Tensor]:
        """The places of one net, in the order of `_tensors_of`."""
        states = [value[at] for state in self._kept for value in state.values()]
        return [each[at] for each in (*self.weights.values(), *self.buffers.values())] + states

    @property
    def _kept(self) -> list[Tensors]:
        """What the optimizers keep of each parameter that learns."""
        if not self.counts:
            return self.states
        return [state | {"step": count} for state, count in zip(self.states, self.counts, strict=True)]

    @torch.no_grad()
    def load(self, members: Sequence[Member]) -> None:
        """Put these nets where they are trained."""
        self.even = len({each.taken for each in members}) == 1
        places: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        for slot, member in zip(self._slots, members, strict=True):
            own = self._tensors_of(member)
            if len(own) < len(slot):  # its optimizer has not begun
                torch._foreach_zero_(slot[len(own) :])
            places += slot[: len(own)]
            values += own
        torch._foreach_copy_(places, values)

    @torch.no_grad()
    def store(self, members: Mapping[int, Member]) -> None:
        """Give these nets, by their place, what came of them."""
        if self.even:  # the first one's optimizer has counted for all
            for count in self.counts:
                count.copy_(count[0].expand_as(count))
        names = [list(state) for state in self._kept]
        for member in members.values():
            learning = [member.parameters[place] for place in self._learns]
            if names and names[0] and not member.optimizer.state.get(learning[0]):
                for parameter, own in zip(learning, names, strict=True):
                    shapes = {name: parameter if name != "step" else self.counts[0][0] for name in own}
                    member.optimizer.state[parameter].update(
                        {name: torch.empty_like(value.detach()) for name, value in shapes.items()}
                    )
        places = [place for member in members.values() for place in self._tensors_of(member)]
        torch._foreach_copy_(places, [value for at in members for value in self._slots[at]])

    def _tensors_of(self, member: Member) -> list[torch.Tensor]:
        """Weights and buffers, and, if there are any, what the optimizer keeps of each parameter that learns."""
        own: list[torch.Tensor] = [*(each.data for each in member.parameters), *member.buffers]
        kept = [member.optimizer.state.get(member.parameters[place]) for place in self._learns]
        for state, names in zip(kept, self.states, strict=True):
            if state:
                own += [state[name] for name in names]
                if self.counts:
                    own.append(state["step"])
        return own


class Part:
    """The first nets of a stack, and their steps. It has what a loss needs of a net: parameters by name."""

    def __init__(self, stack: Stack, n: int, precision: Precision) -> None:
        self._stack, self._n, self._precision = stack, n, precision
        self._all = {name: nn.Parameter(value[:n]) for name, value in stack.weights.items()}
        for name, parameter in self._all.items():
            parameter.requires_grad_(name in stack.trained)
        self._frozen = {name: value.detach() for name, value in self._all.items() if name not in stack.trained}
        self._buffers = {name: value[:n] for name, value in stack.buffers.items()}
        self._units = list(self._learning())
        self.optimizer = self._new_optimizer()
        self.losses: Sequence[LocalLoss] = ()

    def parameters(self) -> list[nn.Parameter]:
        """Those of all its nets, one behind the other."""
        return list(self._all.values())

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The same with their names."""
        return list(self._all.items())

    def state_dict(self) -> Tensors:
        """Parameters and buffers by name."""
        return {name: value.detach() for name, value in self._all.items()} | self._buffers

    def _learning(self) -> Iterator[tuple[nn.Parameter, Tensors, str, int | None]]:
        """What the optimizer sees as one parameter, and its state: one of all nets or, uneven, one of each."""
        stack, n = self._stack, self._n
        for place, name in enumerate(stack.trained):
            for at in [None] if stack.even else range(n):
                part: Any = slice(0, n) if at is None else at
                state = {key: value[part] for key, value in stack.states[place].items()}
                if stack.counts:
                    state["step"] = stack.counts[place][0 if at is None else at]
                yield self._all[name] if at is None else nn.Parameter(stack.weights[name][at]), state, name, at

    def _new_optimizer(self) -> torch.optim.Optimizer:
        made = _another(self._stack.optimizer, [parameter for parameter, *_ in self._units], leave_out="params")
        for parameter, state, *_ in self._units:
            made.state[parameter].update(state)
        return made

    def step(self, batch: Batch, counts: torch.Tensor | None) -> torch.Tensor:
        """One step of each net on its own batch; the loss of each before it.

        `counts` says how many rows with labels each batch has, if some have fewer: those that fill it up weigh nothing.
        """
        given = {name: part for name, part in batch._asdict().items() if part is not None}

        def loss(weights: Tensors, frozen: Tensors, buffers: Tensors, parts: Tensors, count: Any) -> torch.Tensor:
            own = Batch(**{name: parts.get(name) for name in Batch._fields})  # type: ignore[arg-type]
            with passing(own.X.device, self._precision):
                logits = functional_call(self._stack.net, (weights | frozen, buffers), (own.X,))
                return _loss(own, logits.float() if logits.dtype == torch.bfloat16 else logits, count, self.losses)

        dims = (0, 0, 0, 0, None if counts is None else 0)
        # A net that draws random numbers is an error here: it would draw others than by itself.
        of_all = partial(vmap, in_dims=dims, randomness="error")
        weights: Tensors = {name: self._all[name] for name in self._stack.trained}
        others = self._frozen, self._buffers, given, counts
        if self._stack.is_known and all(map(_is_known, self.losses)):
            found = of_all(loss)(weights, *others)
            slopes = torch.autograd.grad(found.sum(), list(weights.values()), allow_unused=True, materialize_grads=True)
            gradients = dict(zip(weights, slopes, strict=True))
        else:  # what asks whether gradients flow, or has gradients of its own, must see them; this takes the compiler
            weights = {name: value.detach() for name, value in weights.items()}
            gradients, found = of_all(grad_and_value(loss))(weights, *others)
        for name, gradient in gradients.items():
            self._all[name].grad = gradient
        for term in self.losses:
            term.add_to_gradients()
        for parameter, _state, name, at in self._units:
            if at is not None:
                parameter.grad = gradients[name][at]
        take_step(self.optimizer, even=self._stack.even)
        values: torch.Tensor = found.detach()
        return values


def _loss(batch: Batch, logits: torch.Tensor, count: Any, losses: Sequence[LocalLoss]) -> torch.Tensor:
    """As in `Descent`, but that rows may be there to fill up the batch only."""
    n = len(batch.codes)
    parts = []
    if n > 0:
        every = cross_entropies(logits if n == len(logits) else logits[:n], batch.codes)
        weighted = every if batch.weights is None else batch.weights * every
        parts.append(weighted.mean() if count is None else weighted.sum() / count)
    parts += [part for part in (each.loss(batch, logits) for each in losses) if part is not None]
    return reduce(operator.add, parts)


def _is_known(part: object) -> bool:
    """Whether it is PyTorch's or ours. (A net with hooks is never one of several.)"""
    return type(part).__module__.partition(".")[0] in ("torch", "collegium")


def _room(value: torch.Tensor, size: int) -> torch.Tensor:
    return value.detach().new_zeros((size, *value.shape))


def _kept_by(optimizer: torch.optim.Optimizer) -> list[str]:
    """What an optimizer like this keeps of each parameter, found by letting one take a step."""
    one = nn.Parameter(torch.zeros(1))
    probe = _another(optimizer, [one], leave_out="fused")
    one.grad = torch.zeros(1)
    probe.step()
    return sorted(name for name, value in probe.state[one].items() if torch.is_tensor(value))


def _another(like: Any, parameters: Sequence[nn.Parameter], *, leave_out: str) -> torch.optim.Optimizer:
    """An optimizer with the settings of another, but one."""
    made: torch.optim.Optimizer = type(like)(parameters)
    (group,) = like.param_groups
    made.param_groups[0].update({name: value for name, value in group.items() if name not in ("params", leave_out)})
    return made
