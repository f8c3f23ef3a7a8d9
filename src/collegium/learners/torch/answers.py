"""What a net says of rows: logits, features, or the most probable classes; of one net, or of several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, vmap

from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Rows
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.stacked_layers import prepared

Said = Literal["logits", "features", "classes"]
Answer = Callable[[torch.Tensor], torch.Tensor]

AT_ONCE: Final = 2**19
"""Rows times nets that are computed at a time."""


def answers(net: nn.Module, head: str, rows: Rows, device: torch.device, said: Said) -> NDArray[Any]:
    """What one net, which is on this device, says of these rows, in eval mode."""
    net.eval()
    with turn(device), torch.inference_mode(), _saying(net, head, said) as answer:
        return np.concatenate([answer(rows.tensor(chunk, device)).cpu().numpy() for chunk in rows.chunks()])


def answers_of_several(
    nets: Sequence[nn.Module], layers: nn.Module, head: str, rows: Rows, device: torch.device, said: Said
) -> list[NDArray[Any]]:
    """What several nets with the same layers say of the same rows; `layers` is a net of them, and is changed."""
    layers = prepared(layers).eval()
    with turn(device), torch.inference_mode():
        weights = _stacked([dict(net.named_parameters()) for net in nets])
        buffers = _stacked([dict(net.named_buffers()) for net in nets])

        def one(own: dict[str, torch.Tensor], its_buffers: dict[str, torch.Tensor], X: torch.Tensor) -> torch.Tensor:
            with _saying(layers, head, said, lambda X: functional_call(layers, (own, its_buffers), (X,))) as answer:
                return answer(X)

        every = vmap(one, in_dims=(0, 0, None))
        parts = [every(weights, buffers, rows.tensor(chunk, device)) for chunk in rows.chunks(AT_ONCE // len(nets))]
        return list(torch.cat(parts, dim=1).cpu().numpy())


def _stacked(given: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([each[name] for each in given]) for name in given[0]}


@contextmanager
def _saying(net: nn.Module, head: str, said: Said, compute: Answer | None = None) -> Iterator[Answer]:
    """A function that gives this answer for a batch."""
    compute = net if compute is None else compute
    if said == "logits":
        yield compute
    elif said == "classes":
        yield lambda X: _codes(compute(X))
    else:
        seen: list[torch.Tensor] = []
        hook = named.head_of(net, head).register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))

        def features(X: torch.Tensor) -> torch.Tensor:
            compute(X)
            return seen.pop()

        try:
            yield features
        finally:
            hook.remove()


def _codes(logits: torch.Tensor) -> torch.Tensor:
    """The most probable class, in one byte where that is enough: less to copy."""
    found = logits.argmax(dim=-1)
    return found.to(torch.uint8) if logits.shape[-1] <= 256 else found
