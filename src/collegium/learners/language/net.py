"""A language model with a head: a net over rows of token ids, of which all is trained, or adapters and the head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from collegium.errors import MissingExtra
from collegium.learners.language.features import Pooling, Rows, columns_of, cut, in_batches, pooled
from collegium.learners.language.folders import Found
from collegium.learners.language.pretrained import pretrained
from collegium.learners.torch.devices import GLOBAL_GENERATOR

Peft = Literal["lora"]
MANY: Final = 2**31


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (Hu et al. 2021): W + alpha / rank x B A, where only A and B are trained."""

    rank: int
    alpha: float


@dataclass(frozen=True)
class Form:
    """All that a net is made from, but for what is trained of it. It makes nets as `TorchClassifier` asks for them."""

    found: Found
    pooling: Pooling
    lora: Lora | None = None

    def __call__(self, input_shape: tuple[int, ...], n_classes: int) -> TextNet:
        return TextNet(self, n_classes)


class TextNet(nn.Module):
    """A language model's layers, the features of a text, and a linear head.

    Its weights are those that are trained. The others are the pre-trained model's: they are shared by all nets of a
    process and are not stored with a net, which only names their folder and hash.
    """

    stackable = False
    """Not in one computation with other sites' nets: it is large enough to fill a GPU by itself."""
    last_layer = "head"

    def __init__(self, form: Form, n_classes: int) -> None:
        super().__init__()
        self._make(form, n_classes)

    def _make(self, form: Form, n_classes: int) -> None:
        model = pretrained(form.found)
        self.form, self.n_classes = form, n_classes
        if form.lora is None:
            self.body = copy.deepcopy(model.body).requires_grad_(True)
        else:
            self.body = with_adapters(model.body, form.lora)
        self.head = nn.Linear(model.width, n_classes)
        self._learned = frozenset(name for name, each in self.named_parameters() if each.requires_grad)
        names = {id(each): name for name, each in model.body.named_parameters()}
        self._shared = {name: names[id(each)] for name, each in self.named_parameters() if id(each) in names}
        self._training_rows = Rows(MANY)
        self._reading_rows: Rows | None = None
        self._columns: int | None = None

    def look_at(self, rows: Sequence[torch.Tensor]) -> int:
        """Learn from these rows from now on, without asking again how long they are; returns what that changes."""
        self._columns = max(columns_of(each) for each in rows)
        return self._columns

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """One number per class for each row of token ids."""
        logits: torch.Tensor = self.head(self._features(numbers.long()))
        return logits

    def _features(self, ids: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            if self._reading_rows is None:
                self._reading_rows = Rows.to_read_on(ids.device)
            return in_batches(ids, self._pooled, self._reading_rows)
        ids = cut(ids) if self._columns is None else ids[:, : self._columns]
        if len(ids) <= self._training_rows.at_once:
            return self._pooled(ids)
        # What a part computes on its way is forgotten, and computed again when its gradients are: the step is the same.
        parts = torch.split(ids, self._training_rows.at_once)
        return torch.cat([checkpoint(self._pooled, part, use_reentrant=False) for part in parts])

    def _pooled(self, ids: torch.Tensor) -> torch.Tensor:
        return pooled(self.body, ids, self.form.pooling)

    def use_less_memory(self, rows: int) -> bool:
        """Compute fewer of so many rows at a time from now on; whether that can be."""
        return self._training_rows.lower(min(rows, self._training_rows.at_once))

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Only what is trained: the rest is known by its hash."""
        state: Mapping[str, Any] = super().state_dict(*args, **options)
        return {name: value for name, value in state.items() if name in self._learned}

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> TextNet:
        """Moved to another device, it takes the shared weights that are there: those here stay for the others."""
        moved = fn(torch.empty(0))
        usual = moved.dtype == torch.float32 and moved.device.type in ("cpu", "cuda")
        there = dict(pretrained(self.form.found).on(moved.device).named_parameters()) if usual and self._shared else {}
        for name, original in self._shared.items():
            own = there.get(original)
            self._put(name, nn.Parameter(self.get_parameter(name).clone(), False) if own is None else own)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _put(self, name: str, parameter: nn.Parameter) -> None:
        place, _, own = name.rpartition(".")
        setattr(self.get_submodule(place), own, parameter)

    def __deepcopy__(self, memo: dict[int, Any]) -> TextNet:
        """What is not trained is shared, not copied."""
        memo |= {id(self.get_parameter(name)): self.get_parameter(name) for name in self._shared}
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __getstate__(self) -> dict[str, Any]:
        learned = {name: each for name, each in self.named_parameters() if name in self._learned}
        return {"form": self.form, "n_classes": self.n_classes, "learned": learned, "training": self.training}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        form: Form = state["form"]
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
            self._make(replace(form, found=form.found.again()), state["n_classes"])
        for name, parameter in state["learned"].items():  # the very ones: an optimizer that was stored refers to them
            self._put(name, parameter)
        self.train(state["training"])


def with_adapters(body: nn.Module, lora: Lora) -> nn.Module:
    """A model with new adapters beside its attention layers; its own weights are shared with `body`, and frozen."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as missing:
        raise MissingExtra("text", "TextClassifier(peft='lora')") from missing

    own = copy.deepcopy(body, {id(each): each for each in body.parameters()})
    turned = any(isinstance(layer, Conv1D) for layer in own.modules())  # GPT-2's layers have their weights transposed
    settings: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha, "fan_in_fan_out": turned}
    try:
        made: nn.Module = inject_adapter_in_model(LoraConfig(**settings), own)
    except ValueError:  # a kind of model for which peft knows no usual layers
        made = inject_adapter_in_model(LoraConfig(**settings, target_modules="all-linear"), own)
    return made
