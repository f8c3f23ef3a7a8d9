"""Convolutions and batch norms that are trained on a GPU in fewer passes over the images.

PyTorch takes six passes, one after the other, for a batch norm and a ReLU in bfloat16, and as many back; and
convolutions of three channels do without a GPU's fast products. Where Triton is there, which comes with PyTorch for
GPUs, a norm and what is around it is computed by kernels of our own; everywhere else, and in float32, layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from collegium.learners.kernels import compiled, launching_beside

_EIGHT = 8
"""Channels in multiples of it are what fast products take."""


class Layers(nn.Sequential):
    """One layer after the other, as in any ``nn.Sequential``; what can be one pass on a GPU, is."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return in_turn(list(self), input)


def in_turn(layers: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """What a net of these layers computes."""
    at = 0
    while at < len(layers):
        block = _block(layers[at : at + 3]) if is_quick(x) else None
        if block is None:
            x = layers[at](x)
            at += 1
        else:
            x = convolved_and_normed(block, x)
            at += block.layers
    return x


class Block(NamedTuple):
    """A convolution, a batch norm, and maybe a ReLU before or after that."""

    convolution: Any
    norm: Any
    cut: bool = False
    """Whether the ReLU is before the norm."""
    slope: float | None = None
    """Of the ReLU after the norm for negative values; None: there is none."""

    @property
    def layers(self) -> int:
        """How many layers it is."""
        return 2 + self.cut + (self.slope is not None)


def _block(layers: Sequence[nn.Module]) -> Block | None:
    """The block that these layers begin with, if its norm learns from the images that it sees."""
    if len(layers) < 2:
        return None
    convolution, second, third = layers[0], layers[1], layers[2] if len(layers) > 2 else None
    if third is not None and _slope(second) == 0.0 and is_block(convolution, third):
        return Block(convolution, third, cut=True)
    return Block(convolution, second, slope=_slope(third)) if is_block(convolution, second) else None


def is_block(convolution: nn.Module, norm: nn.Module) -> bool:
    """Whether these are a convolution and a norm that kernels compute.

    The norm uses the statistics of each batch, and keeps their running averages.
    """
    return (
        type(convolution) is nn.Conv2d
        and convolution.padding_mode == "zeros"
        and type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and not has_hooks(convolution)
        and not has_hooks(norm)
    )


def _slope(layer: nn.Module | None) -> float | None:
    """Of a ReLU for negative values; None: it is none."""
    if type(layer) is nn.LeakyReLU and not has_hooks(layer):
        return float(layer.negative_slope)
    return 0.0 if type(layer) is nn.ReLU and not has_hooks(layer) else None


def has_hooks(layer: Any) -> bool:
    """Whether something else happens when it is called."""
    before, after = layer._forward_pre_hooks, layer._forward_hooks
    return bool(before or after or layer._backward_hooks or layer._backward_pre_hooks)


def is_quick(x: torch.Tensor) -> bool:
    """Whether kernels of our own may serve: on a GPU, where nets compute in bfloat16."""
    if not x.is_cuda or not torch.is_autocast_enabled("cuda"):
        return False
    return torch.get_autocast_dtype("cuda") == torch.bfloat16 and _kernels() is not None


def convolved_and_normed(block: Block, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
    """A convolution and its batch norm, with what is around it; the same as one by one, where `is_quick`."""
    inner = convolved(block.convolution, x)
    bias = block.convolution.bias
    if inner.is_contiguous(memory_format=torch.channels_last) and inner.numel() > inner.shape[1]:
        return _Normed.apply(inner, bias, block.norm.weight, block.norm.bias, added, block)  # type: ignore[no-any-return,no-untyped-call]
    if bias is not None:
        inner = inner + bias.to(inner.dtype).view(-1, 1, 1)
    inner = block.norm(inner.relu() if block.cut else inner)
    inner = inner if added is None else inner + added
    return inner if block.slope is None else functional.leaky_relu(inner, block.slope)


def convolved(layer: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    """The convolution without its bias; of few channels with some of zeros beside them."""
    weight, missing = layer.weight, -layer.in_channels % _EIGHT
    if missing and layer.groups == 1:
        pad = (0, 0, 0, 0, 0, missing)
        x, weight = (
            functional.pad(in_precision(each), pad).contiguous(memory_format=torch.channels_last)
            for each in (x, weight)
        )
    return functional.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)


def in_precision(x: torch.Tensor) -> torch.Tensor:
    """As the GPU computes with it now."""
    return x.to(torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype)


class _Normed(torch.autograd.Function):
    """A batch norm with what comes before and after it. The norm's running averages change with it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        weight: torch.Tensor,
        shift: torch.Tensor,
        added: torch.Tensor | None,
        block: Block,
    ) -> torch.Tensor:
        kernels, norm = _kernels(), block.norm
        form = kernels.Form(bias is not None, block.cut, added is not None, block.slope)
        if added is not None:
            added = added.to(x.dtype).contiguous(memory_format=torch.channels_last)
        kept = norm.running_mean, norm.running_var, norm.num_batches_tracked
        with launching_beside(x):
            y, found = kernels.forward(
                x, x if bias is None else bias, (weight, shift), x if added is None else added, form, kept,
                norm.momentum, norm.eps,
            )  # fmt: skip
        ctx.form = form
        needs_result = added is not None and block.slope is not None
        ctx.save_for_backward(x, bias, weight, shift, found, y if needs_result else None)
        return y  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Any) -> Any:
        x, bias, weight, shift, found, y = ctx.saved_tensors
        dy = given[0].to(x.dtype).contiguous(memory_format=torch.channels_last)
        with launching_beside(x):
            dx, totals, d_bias, d_added = _kernels().backward(
                dy, x, x if bias is None else bias, (weight, shift), found, x if y is None else y, ctx.form
            )
        return dx, d_bias, totals[1], totals[0], d_added, None


def _kernels() -> Any:
    """Those of batch norms; None where they do not run."""
    return compiled("collegium.learners.nets.norm_kernels")
