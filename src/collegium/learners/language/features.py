"""What a language model makes of texts: the features of a row of token ids, one vector for the whole text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.core.terms import Precision
from collegium.errors import CollegiumWarning
from collegium.learners.language.pretrained import Pretrained
from collegium.learners.language.reading import NOTHING, Memo, Tokens
from collegium.learners.language.recent import Recent
from collegium.learners.on_disk import FeatureFiles
from collegium.learners.torch import memory
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.devices import computing, passing

Pooling = Literal["mean", "last", "first"]
AT_ONCE_CPU: Final = 8
AT_ONCE_GPU: Final = 128
"""Rows that are read at a time where nothing is trained; on a GPU, rows of `USUAL` tokens."""
USUAL: Final = 128
STEP_CPU: Final = 16
STEP_GPU: Final = 64
"""Rows are cut to a multiple of so many tokens, so that those of about one length are read together.

A GPU reads a few tokens more sooner than a batch more.
"""


def pooled(body: nn.Module, ids: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """One vector for each row, of length sqrt(width): its numbers are about 1 whatever the model."""
    there = ids != NOTHING
    hidden = body(input_ids=ids.clamp(min=0), attention_mask=there.long()).last_hidden_state.float()
    if pooling == "mean":
        weights = there.unsqueeze(-1)
        whole = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
    else:
        at = there.sum(dim=1) - 1 if pooling == "last" else torch.zeros_like(ids[:, 0])
        whole = hidden[torch.arange(len(ids), device=ids.device), at]
    scaled: torch.Tensor = whole * torch.rsqrt(whole.square().mean(dim=1, keepdim=True) + 1e-12)
    return scaled


def cut(ids: torch.Tensor) -> torch.Tensor:
    """Without the columns that fill up every row."""
    columns = columns_of(ids)
    return ids if columns == ids.shape[1] else ids[:, :columns]


def columns_of(ids: torch.Tensor) -> int:
    """How many columns have tokens: some more, so that few different numbers come of it."""
    step = step_on(ids.device)
    if ids.shape[1] <= step or not len(ids):
        return ids.shape[1]  # not to ask a GPU, which would have to end its work first
    longest = int((ids != NOTHING).sum(dim=1).max())
    return min(ids.shape[1], -(-longest // step) * step)


def step_on(device: torch.device) -> int:
    """To a multiple of how many tokens rows are cut there."""
    return STEP_CPU if device.type == "cpu" else STEP_GPU


def in_batches(ids: torch.Tensor, read: Callable[[torch.Tensor], torch.Tensor], rows: Rows) -> torch.Tensor:
    """What `read` makes of these rows, a few of about one length at a time.

    Every batch of one length has the same shape, filled up if need be, so that what is computed of a text does not
    depend on the texts beside it.
    """
    lengths, step = (ids != NOTHING).sum(dim=1), step_on(ids.device)
    groups = torch.div(lengths + step - 1, step, rounding_mode="floor") * step
    order = torch.argsort(groups, stable=True)
    parts: list[torch.Tensor] = []
    for length in torch.unique(groups).tolist():
        own = ids[order[groups[order] == length], : min(int(length), ids.shape[1])]
        start = 0
        while start < len(own):
            size = rows.of(own.shape[1])
            batch = own[start : start + size]
            short = size - len(batch)
            filled = torch.cat([batch, batch[:1].expand(short, -1)]) if short else batch
            if (found := rows.attempt(read, filled)) is not None:
                parts.append(found[: len(batch)])
                start += len(batch)
    return torch.cat(parts)[torch.argsort(order)]


class Rows:
    """How many rows are read at a time: fewer from the moment on at which a GPU has no memory for them."""

    def __init__(self, at_once: int, usual: int | None = None) -> None:
        """So many rows or, where a `usual` length is given, as many as have the tokens of so many rows of that one."""
        self.at_once, self._usual = at_once, usual

    @classmethod
    def to_read_on(cls, device: torch.device) -> Rows:
        """Where nothing is trained."""
        return cls(AT_ONCE_CPU) if device.type == "cpu" else cls(AT_ONCE_GPU, USUAL)

    def of(self, length: int) -> int:
        """How many rows of this length."""
        return self.at_once if self._usual is None else max(1, self.at_once * self._usual // length)

    def attempt(self, read: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor | None:
        """What comes of a batch; None if there is no memory for so many rows, and fewer are to be tried."""
        try:
            return read(batch)
        except torch.OutOfMemoryError:
            pass  # not here: what was computed is still in memory
        if memory.give_back() or self.lower(len(batch)):
            return None
        return read(batch)  # which says so

    def lower(self, tried: int) -> bool:
        """Half as many as were tried, from now on; whether that can be."""
        fewer = (min(self.at_once, tried) if self._usual is None else self.at_once) // 2
        if fewer == 0 and tried > 1:  # several short ones took the place of one
            fewer, self._usual = tried // 2, None
        if fewer == 0:
            text = "There is no memory for a single text: set a smaller max_length, or device='cpu'."
            warnings.warn(text, CollegiumWarning, stacklevel=2)
            return False
        self.at_once = fewer
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        now = "one is" if tried // 2 == 1 else f"{tried // 2} are"
        text = f"There is no memory for {tried} texts at a time: {now} read at a time from now on."
        warnings.warn(text, CollegiumWarning, stacklevel=2)
        return True


def default_pooling(model: Pretrained) -> Pooling:
    """The mean of all tokens where each has seen all others, else the last one, which has."""
    return "mean" if model.reads_both_ways else "last"


class Frozen:
    """The features of texts by a model that nobody trains. What it has read is not read again.

    With the environment variable COLLEGIUM_FEATURES, which names a folder, not in other processes either: protect that
    folder like the texts.
    """

    def __init__(
        self, model: Pretrained, pooling: Pooling, length: int, device: torch.device, precision: Precision
    ) -> None:
        self._model, self._pooling = model, pooling
        self._device, self._precision = device, precision
        self._tokens = Tokens(model.tokenizer, length)
        self._rows = Rows.to_read_on(device)
        name = f"{model.found.sha256} {pooling} {length} {device.type} {precision}"
        self.embed = Memo(self._embed, files=FeatureFiles.at_hand(name, model.width))
        """The features of texts, by row."""

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self._model.width), dtype=np.float32)
        ids = torch.from_numpy(self._tokens(texts)).long()
        body, device = self._model.on(self._device), self._device
        with turn(device), torch.inference_mode(), computing(device, self._precision), passing(device, self._precision):
            found = in_batches(ids.to(device), lambda batch: pooled(body, batch, self._pooling), self._rows)
            values: NDArray[np.float32] = found.float().cpu().numpy()
        return values


_frozen: Recent[Frozen] = Recent(4)


def frozen(model: Pretrained, pooling: Pooling, length: int, device: torch.device, precision: Precision) -> Frozen:
    """One for all learners of a process that have the same model and settings."""
    key = (model.found.sha256, pooling, length, device, precision)
    return _frozen.get(key, lambda: Frozen(model, pooling, length, device, precision))
