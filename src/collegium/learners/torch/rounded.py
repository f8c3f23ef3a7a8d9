"""The weights of a net in bfloat16, rounded all at once.

PyTorch's autocast rounds each weight where it is used and brings back each gradient by itself. In a small net that is
a sixth of what a GPU is told to do in a step, which may take longer than doing it. The bits are the same, so that
nobody should be able to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.func import functional_call

from collegium.learners.nets.layers import has_hooks
from collegium.learners.torch.losses import LocalLoss, SoftTargetsLoss

_CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Rounded:
    """A net that computes with rounded weights; the gradients are those of the net itself."""

    def __init__(self, net: nn.Module, own: Mapping[str, nn.Parameter]) -> None:
        """`own`: the weights that are rounded, by name."""
        self._net, self._own = net, own
        self._rounded: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def round(self) -> None:
        """Take the weights that learn as they are now. What this makes lasts for a step, and serves one recording."""
        self.forget()
        own = {name: each.detach() for name, each in self._own.items() if each.requires_grad}
        rounded = [torch.empty_like(each, dtype=torch.bfloat16) for each in own.values()]
        if own:
            torch._foreach_copy_(rounded, list(own.values()))
        self._rounded = {name: each.requires_grad_() for name, each in zip(own, rounded, strict=True)}

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """What the net says of these rows."""
        said: torch.Tensor = functional_call(self._net, self._rounded, (X,))
        return said

    @torch.no_grad()
    def give_gradients(self) -> None:
        """The net's own weights have the gradients."""
        found = {name: each.grad for name, each in self._rounded.items() if each.grad is not None}
        self.forget()
        gradients = [torch.empty_like(self._own[name]) for name in found]
        if found:
            torch._foreach_copy_(gradients, list(found.values()))
        for name, gradient in zip(found, gradients, strict=True):
            self._own[name].grad = gradient

    def forget(self) -> None:
        """Give back what this step made; what autograd remembers of it has no gradients any more."""
        for each in self._rounded.values():
            each.grad = None
        self._rounded = {}


def rounded(net: nn.Module, losses: Sequence[LocalLoss]) -> Rounded | None:
    """The net with rounded weights; None where somebody could tell, or nothing is rounded."""
    own = rounded_by_autocast(net) if may_round(losses) else {}
    return Rounded(net, own) if own else None


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

    Layers and hooks of the user's own may see any. A weight that serves twice would have its gradients added up in
    bfloat16, and a bias of a convolution may be seen by a kernel of ours.
    """
    if not all(map(_is_plain, net.modules())):
        return {}
    found: dict[str, nn.Parameter] = {}
    uses = Counter(id(each) for _, each in net.named_parameters(remove_duplicate=False))
    for place, layer in net.named_modules():
        names = ("weight", "bias") if type(layer) is nn.Linear else ("weight",) if type(layer) in _CONVOLUTIONS else ()
        for name in names:
            own = layer._parameters.get(name)
            if own is not None and uses[id(own)] == 1 and own.dtype == torch.float32 and not _is_watched(own):
                found[f"{place}.{name}" if place else name] = own
    return found


def _is_plain(layer: nn.Module) -> bool:
    """Whether it is PyTorch's or ours, and does what it is made for and nothing else."""
    ours = type(layer).__module__.startswith(("torch.nn.modules.", "collegium."))
    return ours and not has_hooks(layer) and "forward" not in vars(layer)


def _is_watched(parameter: Any) -> bool:
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))
