"""The weights of a net in bfloat16, rounded all at once.

PyTorch's autocast rounds each weight where it is used and brings back each gradient by itself. In a small net that is
a fifth of what a GPU is told to do in a step, which takes longer than doing it. The bits are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from torch.func import functional_call

from collegium.learners.torch.losses import LocalLoss, SoftTargetsLoss

_CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Rounded:
    """A net that computes with rounded weights; the gradients are those of the net itself."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._own = rounded_by_autocast(net)
        self._rounded: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def round(self) -> None:
        """Take the weights as they are now. What this makes lasts for a step: a recording of it needs nothing else."""
        own: list[torch.Tensor] = list(self._own.values())
        rounded = [torch.empty_like(each, dtype=torch.bfloat16) for each in own]
        if own:
            torch._foreach_copy_(rounded, own)
        for each, parameter in zip(rounded, own, strict=True):
            each.requires_grad_(parameter.requires_grad)
        self._rounded = dict(zip(self._own, rounded, strict=True))

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """What the net says of these rows."""
        said: torch.Tensor = functional_call(self._net, self._rounded, (X,))
        return said

    @torch.no_grad()
    def give_gradients(self) -> None:
        """The net's own weights have the gradients."""
        found: list[tuple[nn.Parameter, torch.Tensor]] = [
            (parameter, rounded.grad)
            for parameter, rounded in zip(self._own.values(), self._rounded.values(), strict=True)
            if rounded.grad is not None
        ]
        self._rounded = {}
        gradients = [torch.empty_like(parameter) for parameter, _ in found]
        if found:
            torch._foreach_copy_(gradients, [gradient for _, gradient in found])
        for (parameter, _), gradient in zip(found, gradients, strict=True):
            parameter.grad = gradient


def may_round(losses: Sequence[LocalLoss]) -> bool:
    """Whether none of these looks at the net or its weights before the gradients are there."""
    return all(
        type(each).step is LocalLoss.step
        and (type(each).loss is LocalLoss.loss or isinstance(each, SoftTargetsLoss))
        and type(each).__module__.startswith("collegium.")
        for each in losses
    )


def rounded_by_autocast(net: nn.Module) -> dict[str, nn.Parameter]:
    """Weights that nothing but a product in bfloat16 sees, by name.

    In a net that has layers of the user's own they may be seen by those; a bias of a convolution, by a kernel of ours.
    """
    if not all(type(layer).__module__.partition(".")[0] in ("torch", "collegium") for layer in net.modules()):
        return {}
    found: dict[str, nn.Parameter] = {}
    users = Counter(id(each) for layer in net.modules() for each in layer._parameters.values() if each is not None)
    for place, layer in net.named_modules():
        names = ("weight", "bias") if type(layer) is nn.Linear else ("weight",) if type(layer) in _CONVOLUTIONS else ()
        for name in names:
            parameter = layer._parameters.get(name)
            if parameter is not None and users[id(parameter)] == 1 and parameter.dtype == torch.float32:
                found[f"{place}.{name}" if place else name] = parameter
    return found
