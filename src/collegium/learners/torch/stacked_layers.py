"""Layers of several nets at once that compute, of each net, the same bits as the layer of one net.

A net's weights after many steps of Adam depend on the last bits of its sums: a unit whose input is nearly 0 may be on
in one computation and off in another. PyTorch adds a linear layer's bias inside its product of matrices; computed for
several nets by `torch.func.vmap`, it adds it afterwards, which rounds differently.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Hashable
from typing import Any

import torch
from torch import nn


class _Linear(torch.autograd.Function):
    """x w' + b, for one net or, under vmap, for several."""

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Rows times weights, plus bias."""
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """What the gradients need."""
        x, weight, _bias = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients, as PyTorch computes them for one net."""
        x, weight = ctx.saved_tensors
        to_x = gradient @ weight if ctx.needs_input_grad[0] else None
        return to_x, gradient.t() @ x, gradient.sum(0)

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, ...], *given: torch.Tensor) -> tuple[torch.Tensor, int]:
        """The same for several nets, the bias inside the product as for one."""
        size = next(each.shape[dim] for each, dim in zip(given, in_dims, strict=True) if dim is not None)
        x, weight, bias = (
            each.expand(size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(given, in_dims, strict=True)
        )
        result: torch.Tensor = _Linears.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result, 0


class _Linears(torch.autograd.Function):
    """The same for several nets: their rows, weights and biases."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Rows times weights, plus bias."""
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor | None, ...]:
        """The gradients, as those of each net by itself."""
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        to_x = gradient @ weight if ctx.needs_input_grad[0] else None
        return to_x, gradient.transpose(1, 2) @ x, gradient.sum(1)


class StackedLinear(nn.Linear):
    """A linear layer of which several are computed at once."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Rows times weights, plus bias."""
        if input.ndim != 2 or torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        result: torch.Tensor = _Linear.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return result


def prepared(net: nn.Module) -> nn.Module:
    """The net, whose layers are computed for several nets from now on."""
    for layer in net.modules():
        if type(layer) is nn.Linear and layer.bias is not None:
            layer.__class__ = StackedLinear
    return net


_known = threading.local()


def layers_like(net: nn.Module, key: Hashable) -> nn.Module:
    """The layers of a net, without weights, prepared; kept for each thread, since a computation borrows them."""
    kept: dict[Any, nn.Module] = _known.__dict__
    name = repr((key, [tuple(each.shape) for each in net.parameters()]))
    if name not in kept:
        kept.clear()
        kept[name] = prepared(copy.deepcopy(net).to("meta"))
    return kept[name]
