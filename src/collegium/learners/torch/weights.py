"""A net's weights as named float32 arrays, and its two parts: the features and the head, its last linear layer.

Batch norm's running means and variances travel with the weights and may be averaged like them. Integer buffers, such
as batch norm's count of batches, describe how long one site trained, not what it learned: they stay there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
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
    state = _state(net, part, head)
    if not any(value.is_cuda for value in state.values()):
        return {name: value.detach().float().numpy().copy() for name, value in state.items()}
    there = torch.cat([value.detach().float().reshape(-1) for value in state.values()])
    everything = _locked(there.numel()).copy_(there).numpy()
    ends = np.cumsum([value.numel() for value in state.values()])
    pieces = zip(state.items(), np.split(everything, ends[:-1]), strict=True)
    return {name: piece.reshape(tuple(value.shape)) for (name, value), piece in pieces}


def write(net: nn.Module, weights: Weights, part: Part = "all", head: str = "") -> None:
    """Set the net's weights; names and shapes must be those of `read`."""
    state = _state(net, part, head)
    check(weights, {name: tuple(value.shape) for name, value in state.items()}, f"These {_NAMES[part]}")
    with torch.no_grad():
        if any(value.is_cuda for value in state.values()):
            _write_there(state, weights)
        else:
            for name, value in state.items():
                _write_here(value, name, weights[name])


def _write_here(place: torch.Tensor, name: str, given: Any) -> None:
    """Without a copy between, which PyTorch asks for where numbers cannot be changed."""
    if place.dtype == torch.float32 and place.is_contiguous():
        np.copyto(place.detach().numpy(), _numbers(name, given, copy=None))
        torch.autograd.graph.increment_version(place)  # as PyTorch's own copy would
    else:
        place.copy_(torch.from_numpy(_numbers(name, given)))


def _write_there(state: Mapping[str, torch.Tensor], weights: Weights) -> None:
    """Bring them to the GPU in one piece; weights for many sites, which are the same arrays, go there once."""
    places, given = list(state.values()), [weights[name] for name in state]
    lengths = [value.numel() for value in places]
    key = tuple(map(id, given)), places[0].device
    if _there.key != key or not _there.lives:
        here = _locked(sum(lengths))
        for piece, name in zip(np.split(here.numpy(), np.cumsum(lengths)[:-1]), state, strict=True):
            piece[:] = _numbers(name, weights[name], copy=None).ravel()
        _there.put(key, given, here)
    pieces = torch.split(_there.values, lengths)
    torch._foreach_copy_(places, [piece.view(value.shape) for piece, value in zip(pieces, places, strict=True)])


def _locked(length: int) -> torch.Tensor:
    """Memory that a GPU reads and writes by itself; what is given back serves again."""
    return torch.empty(length, pin_memory=True)


class _There:
    """The last weights that came to a GPU; those of arrays that may change are not kept."""

    def __init__(self) -> None:
        self.key: Any = None
        self._given: list[weakref.ref[Any]] = []

    @property
    def lives(self) -> bool:
        """Whether the arrays are still those that came."""
        return bool(self._given) and all(each() is not None for each in self._given)

    def put(self, key: Any, given: Sequence[Any], values: torch.Tensor) -> None:
        """These are the last ones."""
        fixed = all(isinstance(each, np.ndarray) and not each.flags.writeable for each in given)
        self.key = key
        self._given = [weakref.ref(each) for each in given] if fixed else []
        self.values = values.to(key[1], non_blocking=True)  # locked memory is not used again before it is there


_there = _There()


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


def _numbers(name: str, value: Any, copy: bool | None = True) -> NDArray[np.float32]:
    try:
        return np.array(value, dtype=np.float32, copy=copy)
    except (TypeError, ValueError):
        raise ConfigError(f"The weights {name} are not numeric.") from None


def _listed(fault: str, names: Iterable[str], most: int = 5) -> list[str]:
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return [f"{fault} {', '.join(ordered[:most])}{more}"] if ordered else []
