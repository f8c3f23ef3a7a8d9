"""PyTorch's optimizers without its compiler.

Theirs import the compiler when one is made and when it takes a step, only to say that it should leave them alone. That
takes a second or more, and 80 MB, in every process that trains a net.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer


def _as_it_is(step: Any) -> Any:
    """A step that does not speak of the compiler. No gradients flow through it."""
    bare = inspect.unwrap(step)

    def take(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        with torch.no_grad():
            loss: float | None = bare(self, closure)
            return loss

    return take


class _Bare(Optimizer):
    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class Adam(_Bare, torch.optim.Adam):
    """Adam."""

    step = _as_it_is(torch.optim.Adam.step)


class AdamW(_Bare, torch.optim.AdamW):
    """Adam with decoupled weight decay."""

    step = _as_it_is(torch.optim.AdamW.step)


class SGD(_Bare, torch.optim.SGD):
    """Stochastic gradient descent, with or without momentum."""

    step = _as_it_is(torch.optim.SGD.step)


MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
OPTIMIZERS: Final[dict[str, MakeOptimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "sgd": SGD,
    "momentum": partial(SGD, momentum=0.9),
}
