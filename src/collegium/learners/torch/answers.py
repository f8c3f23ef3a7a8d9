"""What a net says of rows: logits, features, or the most probable classes; of one net, or of several at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, vmap

from collegium.core.terms import Precision
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.nets.images import answering
from collegium.learners.torch import memory
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import CHUNK_ROWS, CHUNK_VALUES, Rows
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.dense_answers import Answer, quick
from collegium.learners.torch.devices import computing, passing
from collegium.learners.torch.on_their_way import OnTheirWay

Said = Literal["logits", "features", "classes"]
Late = Callable[[], NDArray[Any]]
"""An answer that is looked at when it is there: others are still being computed."""

AT_ONCE: Final = 2**19
"""Rows times nets that are computed at a time."""
NETS_AT_ONCE: Final = 5
"""About so many nets answer in one computation: sites go on with the answers of some while others are computed."""
ENOUGH_ROWS: Final = 4096
"""So many rows keep a GPU busy with one net, which computes its layers faster than several do."""
AT_ONCE_VALUES: Final = 2**27
"""Numbers in rows that are computed at a time on a GPU: half a gigabyte."""

MOST_LATE: Final = 2**23
"""Numbers of an answer that are copied while a GPU goes on: the memory for it is locked until they are read."""
AT_ONCE_ALONE: Final = 2**24
"""The same for one net, which may have convolutions: these make much more of each row."""
FEWER: Final = 8
"""By what it is divided when a GPU has no memory for so many."""


class Question(NamedTuple):
    """What is asked of a net."""

    rows: Rows
    device: torch.device
    precision: Precision
    said: Said
    norm_batch: int | None = None
    """Rows per batch whose statistics batch norms use (None: the running ones)."""
    norm_rows: int | None = None
    """Rows, spread over all, whose statistics batch norms use for all of them (None: the running ones)."""


def answers_in_memory(net: nn.Module, head: str, asked: Question) -> Late:
    """What one net says of these rows; without enough memory, of fewer at a time."""
    values = prod(asked.rows.shape)
    at_once, gave_back = min(AT_ONCE_ALONE, values * min(CHUNK_ROWS, max(1, len(asked.rows)))), False
    while True:
        try:
            return answers(net, head, asked, at_once)
        except torch.OutOfMemoryError:
            fewest = asked.norm_batch is not None or at_once <= values
        with turn(asked.device):  # not above: there, what was computed is still in memory
            has_room = memory.give_back() and not gave_back
        gave_back = True
        if not has_room:
            if fewest:
                return answers(net, head, asked, at_once)  # which says so
            at_once = max(1, at_once // FEWER)
            text = f"A GPU has no memory for the answers to all rows at once: {FEWER} times fewer are asked at a time."
            warnings.warn(text, CollegiumWarning, stacklevel=3)


def answers(net: nn.Module, head: str, asked: Question, at_once: int) -> Late:
    """What one net, which is on the device, says of these rows, in eval mode; so many numbers in rows at a time."""
    net.eval()
    rows, batch = asked.rows, asked.norm_batch
    whole = rows.chunks(most_values=min(CHUNK_VALUES, at_once) if asked.device.type == "cpu" else at_once)
    slices = whole if batch is None else _even_slices(len(rows), batch)
    with _asking(asked), _saying(net, head, asked.said) as answer, _statistics(net, asked):
        chunks = [answer(rows.tensor(chunk, asked.device)) for chunk in slices]
        if asked.device.type == "cpu":
            return partial(np.asarray, np.concatenate([chunk.numpy() for chunk in chunks]))
        found = torch.cat(chunks)[None]
        return _copied(found, lies_ready=asked.said != "features" and found.numel() <= MOST_LATE)[0]


def _even_slices(n: int, size: int) -> list[slice]:
    """About `size` rows each, all but equally many: no batch has a single row where others have many."""
    edges = np.linspace(0, n, max(1, round(n / size)) + 1).astype(int)
    return [slice(start, end) for start, end in pairwise(edges)]


@contextmanager
def _statistics(net: nn.Module, asked: Question) -> Iterator[None]:
    """A block in which batch norms use the statistics that are asked for; what they keep is as before after it."""
    batch, number = asked.norm_batch, asked.norm_rows
    if batch is None and number is None:
        yield
        return
    norms = [layer for layer in net.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    before = [{name: value.clone() for name, value in layer.named_buffers()} for layer in norms]
    try:
        with _following(norms):
            if number is None:
                yield
                return
            if min(number, len(asked.rows)) == 1:
                raise ConfigError(
                    "Batch norms have no statistics of a single row: norm_rows must be 2 or more, of 2 rows."
                )
            spread = np.linspace(0, len(asked.rows) - 1, min(number, len(asked.rows))).round().astype(np.intp)
            net(asked.rows.tensor(spread, asked.device))
        yield
    finally:
        for layer, own in zip(norms, before, strict=True):
            for name, value in layer.named_buffers():
                value.copy_(own[name])


@contextmanager
def _following(norms: Sequence[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Batch norms use the statistics of each batch, and have those of the last one afterwards."""
    own = [layer.momentum for layer in norms]
    for layer in norms:
        layer.train().momentum = 1.0
    try:
        yield
    finally:
        for layer, its in zip(norms, own, strict=True):
            layer.eval().momentum = its


def answers_of_several(nets: Sequence[nn.Module], layers: nn.Module, head: str, asked: Question) -> list[Late]:
    """What several nets with the same layers say of the same rows; `layers` are prepared for several nets."""
    resident = asked.rows.resident(asked.device) if len(asked.rows) >= ENOUGH_ROWS else None
    if resident is not None:
        return _one_after_the_other(nets, head, asked, resident)
    with _asking(asked):
        weights = _stacked([list(net.named_parameters()) for net in nets])
        buffers = _stacked([list(net.named_buffers()) for net in nets])
        layers.eval()

        def one(own: dict[str, torch.Tensor], its_buffers: dict[str, torch.Tensor], X: torch.Tensor) -> torch.Tensor:
            def compute(X: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = functional_call(layers, (own, its_buffers), (X,))
                return logits

            with _saying(layers, head, asked.said, compute) as answer:
                return answer(X)

        every = vmap(one, in_dims=(0, 0, None))
        groups = _even_slices(len(nets), NETS_AT_ONCE)
        chunks = list(_chunks(asked, max(group.stop - group.start for group in groups)))
        late: list[Late] = []
        for group in groups:
            own, its_buffers = ({name: value[group] for name, value in each.items()} for each in (weights, buffers))
            parts = [every(own, its_buffers, asked.rows.tensor(chunk, asked.device)) for chunk in chunks]
            late += _copied(torch.cat(parts, dim=1), lies_ready=asked.said == "classes")
        return late


def _one_after_the_other(nets: Sequence[nn.Module], head: str, asked: Question, rows: torch.Tensor) -> list[Late]:
    """The same where one net is enough for a GPU; it goes on with the next ones while their answers are read."""
    late: list[Late] = []
    with _asking(asked):
        chunks = [rows[chunk] for chunk in asked.rows.chunks(AT_ONCE // NETS_AT_ONCE, AT_ONCE_VALUES)]
        for group in _even_slices(len(nets), NETS_AT_ONCE):
            found = []
            for net in nets[group]:
                net.eval()
                with _saying(net, head, asked.said) as answer:
                    found.append(torch.cat([answer(chunk) for chunk in chunks]))
            late += _copied(torch.stack(found), lies_ready=asked.said == "classes")
    return late


def _chunks(asked: Question, nets: int) -> Iterator[slice]:
    most = max(1, AT_ONCE // nets)
    if asked.device.type == "cpu":
        return asked.rows.chunks(min(most, CHUNK_ROWS))
    return asked.rows.chunks(most, most_values=AT_ONCE_VALUES)


def _copied(found: torch.Tensor, *, lies_ready: bool) -> list[Late]:
    """By net, what was found. Where `lies_ready`, a GPU goes on while it is copied, and whoever wants it waits.

    Memory for that takes long to get: it is for little that is soon read.
    """
    if not (lies_ready and found.is_cuda):
        return [partial(np.asarray, each) for each in found.cpu().numpy()]
    copied = OnTheirWay(found)
    return [partial(_one_of, copied, place) for place in range(len(found))]


def _one_of(copied: OnTheirWay, place: int) -> NDArray[Any]:
    found: NDArray[Any] = copied()[place].copy()  # whoever keeps it keeps no locked memory
    return found


def _stacked(given: Sequence[list[tuple[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """By name, those of all nets one behind the other."""
    return {name: torch.stack([own[place][1] for own in given]) for place, (name, _) in enumerate(given[0])}


@contextmanager
def _asking(asked: Question) -> Iterator[None]:
    device, precision = asked.device, asked.precision
    with turn(device), torch.inference_mode(), computing(device, precision), passing(device, precision), answering():
        yield


@contextmanager
def _saying(net: nn.Module, head: str, said: Said, compute: Answer | None = None) -> Iterator[Answer]:
    """A function that gives this answer for a batch."""
    if said == "classes":
        most_probable = quick(net) if compute is None else compute
        yield lambda X: _codes(most_probable(X))
        return
    compute = net if compute is None else compute
    if said == "logits":
        yield lambda X: compute(X).float()
    else:
        seen: list[torch.Tensor] = []
        hook = named.head_of(net, head).register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))

        def features(X: torch.Tensor) -> torch.Tensor:
            compute(X)
            return seen.pop().float()

        try:
            yield features
        finally:
            hook.remove()


def _codes(logits: torch.Tensor) -> torch.Tensor:
    """The most probable class, in one byte where that is enough: less to copy."""
    found = logits.argmax(dim=-1)
    return found.to(torch.uint8) if logits.shape[-1] <= 256 else found
