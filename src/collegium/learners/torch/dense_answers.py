"""What dense nets answer on a GPU: each ReLU in the kernel of the product before it.

A ReLU by itself reads and writes everything once more, which takes half as long as the product for many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

Answer = Callable[[torch.Tensor], torch.Tensor]
_Layer = tuple[torch.Tensor, torch.Tensor, bool]
_HOOKS_OF_ALL = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks


def quick(net: nn.Module) -> Answer:
    """A function that computes what the net does, in fewer kernels where it can: for classes, not for gradients.

    Nor for logits: a NaN may end at a ReLU that is part of a product, and nobody would see that a net has diverged.
    """
    layers = _layers(net)
    return net if layers is None else partial(_computed, net, layers)


def _computed(net: nn.Module, layers: list[_Layer], X: torch.Tensor) -> torch.Tensor:
    if not X.is_cuda or torch.is_autocast_enabled("cuda"):
        logits: torch.Tensor = net(X)
        return logits
    return products(layers, X.flatten(1))


def products(layers: list[_Layer], values: torch.Tensor) -> torch.Tensor:
    """These products, one after the other, each with its bias, and some with a ReLU."""
    for weight, bias, has_relu in layers:
        if has_relu:
            values = torch._addmm_activation(bias, values, weight.t())
        else:
            values = torch.addmm(bias, values, weight.t())
    return values


def _layers(net: nn.Module) -> list[_Layer] | None:
    """Weights and biases of a net that is flattened rows, linear layers and ReLUs, and whether a ReLU follows each."""
    parts = list(net) if type(net) is nn.Sequential else []
    if any(map(_is_watched, [net, *parts])) or any(map(len, _HOOKS_OF_ALL)):
        return None
    if not parts or type(parts[0]) is not nn.Flatten or parts[0].start_dim != 1 or parts[0].end_dim != -1:
        return None
    found: list[_Layer] = []
    for part in parts[1:]:
        if type(part) is nn.Linear and part.bias is not None:
            found.append((part.weight, part.bias, False))
        elif type(part) is nn.ReLU and found and not found[-1][2]:
            found[-1] = (*found[-1][:2], True)
        else:
            return None
    return found or None


def _is_watched(layer: nn.Module) -> bool:
    """Whether somebody is told when it computes, or has changed how."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return any(map(len, hooks)) or "forward" in vars(layer)
