"""The training of one net: its weights, its optimizer, its random stream, and the rows still to come."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from collegium.errors import ConfigError
from collegium.learners import weights as named
from collegium.learners.batches import Batch, Batches, Floats, Labelled, Rows, Soft
from collegium.learners.devices import CPU, RandomStream
from collegium.learners.losses import Drift, SoftLoss, batch_loss
from collegium.learners.terms import LocalTerms, Part, Trained, UpdateReport, Weights
from collegium.registry import nearest

OPTIMIZERS: Final[dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}
NO_TERMS: Final = LocalTerms(keep_optimizer=True)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a net is trained: `steps` mini-batches, or `epochs` sweeps where they are None."""

    batch_size: int
    epochs: int
    steps: int | None
    lr: float
    weight_decay: float
    device: torch.device


class Training:
    """A net and all that its training goes on from. It can be pickled and then goes on with the same bits."""

    def __init__(
        self,
        make_net: Callable[[], nn.Module],
        input_shape: tuple[int, ...],
        *,
        optimizer: str,
        seed: int | None,
        deterministic: bool,
    ) -> None:
        for_net, for_batches, for_distilling = np.random.SeedSequence(seed).spawn(3)
        self._stream = RandomStream(int(for_net.generate_state(1, np.uint64)[0]))
        with self._stream.playing(CPU):
            self._net = make_net()
        self._input_shape = input_shape
        self._optimizer = OPTIMIZERS[optimizer](self._net.parameters())
        self._batches = Batches(np.random.default_rng(for_batches))
        self._distilled = Batches(np.random.default_rng(for_distilling))
        self._device = CPU
        self._is_random = not deterministic or has_layer(self._net, nn.modules.dropout._DropoutNd)

    def train(
        self, sets: Sequence[Labelled], schedule: Schedule, terms: LocalTerms, soft: Soft | None, *, optimizer: str
    ) -> UpdateReport:
        """Go on training with batches of equal shares of all sets; `optimizer` is made anew where the terms say so."""
        self._check_batch_norm([*sets, *([soft] if soft else [])], schedule, terms.train)
        self.to(schedule.device)
        if not terms.keep_optimizer:
            self._optimizer = OPTIMIZERS[optimizer](self._net.parameters())
        batches = self._batches.draw(
            sets, batch_size=schedule.batch_size, epochs=schedule.epochs, steps=schedule.steps, soft=soft
        )
        weight = 1.0 if terms.distill is None else terms.distill.weight
        return self._steps(batches, self._optimizer, schedule, terms, SoftLoss(weight))

    def distill(self, soft: Soft, schedule: Schedule, *, temperature: float, train: Trained) -> UpdateReport:
        """Teach the net these answers, from its present weights. The optimizer, Adam, is of this call only."""
        self._check_batch_norm([soft], schedule, train)
        self.to(schedule.device)
        batches = self._distilled.draw(
            [], batch_size=schedule.batch_size, epochs=schedule.epochs, steps=schedule.steps, soft=soft
        )
        adam = torch.optim.Adam(self._net.parameters())
        return self._steps(batches, adam, schedule, LocalTerms(train=train), SoftLoss(1.0, temperature))

    def _steps(
        self,
        batches: Iterator[Batch],
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        terms: LocalTerms,
        soft_loss: SoftLoss,
    ) -> UpdateReport:
        device, taken = schedule.device, 0
        total = torch.zeros((), device=device)
        for group in optimizer.param_groups:
            group.update(lr=schedule.lr, weight_decay=schedule.weight_decay)
        with self._learning(terms.train):
            drift = Drift(self._net, terms)
            for batch in batches:
                with self._stream.playing(device) if self._is_random else nullcontext():
                    optimizer.zero_grad()
                    loss = batch_loss(self._net, batch, soft_loss, device)
                    loss.backward()  # type: ignore[no-untyped-call]
                    drift.add_to_gradients()
                    optimizer.step()
                total += loss.detach()
                taken += 1
        return UpdateReport(taken, schedule.lr, float(total) / taken, str(device))

    @contextmanager
    def _learning(self, train: Trained) -> Iterator[None]:
        """The net in training mode; or its head alone learns, from what the rest gives in eval mode."""
        if train == "all":
            self._net.train()
            yield
            return
        self._net.eval()
        of_head = set(map(id, named.head_of(self._net, self.head).parameters()))
        frozen = [each for each in self._net.parameters() if each.requires_grad and id(each) not in of_head]
        for parameter in frozen:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)

    def _check_batch_norm(self, sets: Sequence[Labelled | Soft], schedule: Schedule, train: Trained) -> None:
        smallest_batch = len(sets) * min(schedule.batch_size, max(map(len, sets)))
        learns_by_batch = train == "all" and has_layer(self._net, nn.modules.batchnorm._BatchNorm)
        if smallest_batch == 1 and learns_by_batch:
            raise ConfigError(
                "Batch norm cannot learn from batches of one row: give two rows and batch_size=2 or more."
            )

    @cached_property
    def head(self) -> str:
        """The name of the last linear layer."""
        return named.find_head(self._net, self._input_shape)

    def logits(self, rows: Rows, n_classes: int, device: torch.device) -> Floats:
        """The net's outputs, in eval mode."""
        return self._answers(rows, n_classes, device, self._net)

    def embed(self, rows: Rows, device: torch.device) -> Floats:
        """What the last linear layer is given, in eval mode."""
        head = named.head_of(self._net, self.head)
        seen: list[torch.Tensor] = []

        def features(X: torch.Tensor) -> torch.Tensor:
            self._net(X)
            return seen.pop()

        hook = head.register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))
        try:
            return self._answers(rows, head.in_features, device, features)
        finally:
            hook.remove()

    def _answers(
        self, rows: Rows, width: int, device: torch.device, answer: Callable[[torch.Tensor], torch.Tensor]
    ) -> Floats:
        self.to(device)
        self._net.eval()
        answers = np.empty((len(rows), width), dtype=np.float32)
        with torch.inference_mode():
            for chunk in rows.chunks():
                answers[chunk] = answer(torch.from_numpy(rows.take(chunk)).to(device)).cpu().numpy()
        return answers

    def to(self, device: torch.device) -> None:
        """Move the net and the optimizer's state to a device."""
        if device != self._device:
            self._net.to(device)
            # Loading puts the state where the parameters now are.
            self._optimizer.load_state_dict(self._optimizer.state_dict())
            self._device = device

    def __getstate__(self) -> dict[str, Any]:
        if self._device == CPU:
            return self.__dict__
        # One copy of both, since the optimizer refers to the net's parameters.
        net, optimizer = copy.deepcopy((self._net, self._optimizer))
        net.to(CPU)
        optimizer.load_state_dict(optimizer.state_dict())
        return self.__dict__ | {"_net": net, "_optimizer": optimizer, "_device": CPU}

    def copy_net(self) -> nn.Module:
        """A copy of the net, on the CPU and in eval mode."""
        return copy.deepcopy(self._net).to(CPU).eval()

    def get_weights(self, part: Part) -> named.Arrays:
        """A copy of the weights of this part of the net."""
        return named.read(self._net, part, "" if part == "all" else self.head)

    def set_weights(self, weights: Weights, part: Part) -> None:
        """Put weights into this part of the net; names and shapes must be those of `get_weights`."""
        named.write(self._net, weights, part, "" if part == "all" else self.head)

    def has_diverged(self) -> bool:
        """Whether some weight is NaN or infinite."""
        return not all(bool(value.isfinite().all()) for value in self._net.state_dict().values())


def has_layer(net: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the net contains a layer of this kind."""
    return any(isinstance(layer, kind) for layer in net.modules())


def check_output(net: Any, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The net as it is, or a ConfigError if it does not give one number per class for such rows."""
    if not isinstance(net, nn.Module):
        raise ConfigError(f"net must be a name, a torch.nn.Module or a function that gives one, not {type(net)}.")
    net.to(CPU).eval()
    try:
        with torch.no_grad():
            shape = tuple(net(torch.zeros(2, *input_shape)).shape)
    except Exception as misfit:
        raise ConfigError(f"The net cannot take rows of the shape {input_shape}: {misfit}") from misfit
    if shape != (2, n_classes):
        outputs = shape[1] if len(shape) == 2 else f"a tensor of shape {shape[1:]}"
        raise ConfigError(f"The net must give {n_classes} outputs per row, one per class, but gives {outputs}.")
    return net


def check_optimizer(name: str) -> None:
    """A ConfigError if there is no such optimizer."""
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"There is no optimizer {name!r}.{nearest(str(name), OPTIMIZERS)} Known: {', '.join(OPTIMIZERS)}."
        )
