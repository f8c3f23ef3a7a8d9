"""A net's weights as named float32 arrays, and its two parts: the features and the head, its last linear layer.

Batch norm's running means and variances travel with the weights and may be averaged like them. Integer buffers, such
as batch norm's count of batches, describe how long one site trained, not what it learned: they stay there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.core.terms import Part, Weights
from collegium.errors import ConfigError

Arrays = dict[str, NDArray[np.float32]]


def read(net: nn.Module, part: Part = "all", head: str = "") -> Arrays:
    """A copy of the weights of this part."""
    return {name: value.detach().float().cpu().numpy().copy() for name, value in _state(net, part, head).items()}


def write(net: nn.Module, weights: Weights, part: Part = "all", head: str = "") -> None:
    """Set the net's weights; names and shapes must be those of `read`."""
    state = _state(net, part, head)
    check(weights, {name: tuple(value.shape) for name, value in state.items()}, f"These {_NAMES[part]}")
    with torch.no_grad():
        for name, value in state.items():
            value.copy_(torch.from_numpy(_numbers(name, weights[name])))


def for_parameters(net: nn.Module, given: Weights, what: str) -> list[torch.Tensor | None]:
    """`given` as one tensor per parameter, in the net's order; None for a parameter that is not trained.

    It must name every trained parameter. Values for buffers and frozen parameters are ignored.
    """
    state = _state(net, "all")
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    wanted = {name: tuple(value.shape) for name, value in state.items() if name in trained or name in given}
    check(given, wanted, what)
    return [
        torch.from_numpy(_numbers(name, given[name])).to(parameter.device) if name in trained else None
        for name, parameter in net.named_parameters()
    ]


def check(given: Weights, wanted: Mapping[str, tuple[int, ...]], what: str) -> None:
    """A ConfigError if names or shapes differ."""
    faults = _listed("missing", wanted.keys() - given.keys()) + _listed("unknown", given.keys() - wanted.keys())
    for name in sorted(wanted.keys() & given.keys()):
        shape = np.shape(given[name])
        if shape != wanted[name]:
            faults.append(f"{name} has shape {shape}, not {wanted[name]}")
    if faults:
        raise ConfigError(f"{what} are of another net: {'; '.join(faults)}. Use the same net, with the same classes.")


def find_head(net: nn.Module, input_shape: tuple[int, ...]) -> str:
    """The name of the linear layer whose output is the net's output."""
    linear: dict[nn.Module, str] = {layer: name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)}
    outputs: list[tuple[str, torch.Tensor]] = []

    def note(layer: nn.Module, _given: Any, output: torch.Tensor) -> None:
        outputs.append((linear[layer], output))

    hooks = [layer.register_forward_hook(note) for layer in linear]
    was_training = net.training
    try:
        with torch.no_grad():
            answer = net.eval()(torch.zeros(2, *input_shape, device=next(net.parameters()).device))
    finally:
        net.train(was_training)
        for hook in hooks:
            hook.remove()
    if not outputs or outputs[-1][1] is not answer:
        raise ConfigError("This net has no head: it must return the output of its last nn.Linear layer.")
    return outputs[-1][0]


def head_of(net: nn.Module, head: str) -> nn.Linear:
    """The last linear layer itself."""
    layer = net.get_submodule(head)
    if not isinstance(layer, nn.Linear):
        raise ConfigError(f"{head!r} is not an nn.Linear layer of this net.")
    return layer


_NAMES: dict[Part, str] = {"all": "weights", "features": "weights of the features", "head": "weights of the head"}


def _state(net: nn.Module, part: Part, head: str = "") -> dict[str, torch.Tensor]:
    if part not in _NAMES:
        raise ConfigError(f"part must be 'all', 'features' or 'head', not {part!r}.")
    state = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    if part == "all":
        return state
    prefix = f"{head}." if head else ""
    return {name: value for name, value in state.items() if name.startswith(prefix) == (part == "head")}


def _numbers(name: str, value: Any) -> NDArray[np.float32]:
    try:
        return np.array(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise ConfigError(f"The weights {name} are not numeric.") from None


def _listed(fault: str, names: Iterable[str], most: int = 5) -> list[str]:
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return [f"{fault} {', '.join(ordered[:most])}{more}"] if ordered else []
