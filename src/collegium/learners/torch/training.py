"""The training state of one net: its weights, optimizer, random stream, and the rows still to come."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from collegium.core.terms import LocalTerms, Part, Precision, Trained, UpdateReport, Weights
from collegium.errors import ConfigError
from collegium.learners.torch import weights as named
from collegium.learners.torch.batches import Batch, Batches, Beside, Floats, Labelled, Rows
from collegium.learners.torch.cuda_graphs import put_optimizer, stepping, turn
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.devices import CPU, RandomStream, computing, passing
from collegium.registry import lookup

OPTIMIZERS: Final[dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}
NO_TERMS: Final = LocalTerms(keep_optimizer=True)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a net is trained: `steps` mini-batches, or `epochs` sweeps if that is None."""

    batch_size: int
    epochs: int
    steps: int | None
    lr: float
    weight_decay: float
    device: torch.device
    augment: bool = False
    """Whether to train on a random view of each row."""
    precision: Precision = "float32"

    def draw(self, source: Batches, sets: Sequence[Labelled], beside: Beside | None) -> Iterator[Batch]:
        """The mini-batches of these sets."""
        size, epochs, steps = self.batch_size, self.epochs, self.steps
        return source.draw(sets, batch_size=size, epochs=epochs, steps=steps, beside=beside, device=self.device)

    def applied_to(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer with this learning rate and weight decay."""
        for group in optimizer.param_groups:
            group.update(lr=self.lr, weight_decay=self.weight_decay)
        return optimizer


class Training:
    """A net and its training state. It can be pickled and then continues with the same bits."""

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
        self._is_ours = deterministic
        self._is_random = not deterministic or has_layer(self._net, nn.modules.dropout._DropoutNd)

    def train(
        self,
        sets: Sequence[Labelled],
        schedule: Schedule,
        terms: LocalTerms,
        beside: Beside | None,
        *,
        optimizer: str,
    ) -> UpdateReport:
        """Continue training with equal shares of all sets in each batch; the terms may reset the `optimizer`."""
        self._check_batch_norm([*sets, *([] if beside is None else [beside])], schedule, terms.train)
        with turn(schedule.device), computing(schedule.device, schedule.precision):
            self.to(schedule.device)
            if not terms.keep_optimizer:
                self._optimizer = OPTIMIZERS[optimizer](self._net.parameters())
                put_optimizer(self._optimizer, self._device)
            batches = schedule.draw(self._batches, sets, beside)
            return self._go_down(batches, schedule, terms, self._optimizer, OPTIMIZERS[optimizer])

    def distill(self, soft: Beside, schedule: Schedule, terms: LocalTerms) -> UpdateReport:
        """Train the net to predict these targets, from its current weights, with a new Adam optimizer."""
        self._check_batch_norm([soft], schedule, terms.train)
        with turn(schedule.device), computing(schedule.device, schedule.precision):
            self.to(schedule.device)
            adam = torch.optim.Adam(self._net.parameters())
            put_optimizer(adam, self._device)
            batches = schedule.draw(self._distilled, [], soft)
            return self._go_down(batches, replace(schedule, augment=False), terms, adam, torch.optim.Adam)

    def _go_down(
        self,
        batches: Iterator[Batch],
        schedule: Schedule,
        terms: LocalTerms,
        optimizer: torch.optim.Optimizer,
        make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    ) -> UpdateReport:
        """One mini-batch step per batch, with what the terms' losses add."""
        device, taken = schedule.device, 0
        total = torch.zeros((), device=device)
        with self._learning(terms.train):
            with self._stream.playing(device) if terms.added else nullcontext():  # a loss may draw its first values
                losses = [
                    lookup("local_loss", term.loss)(term, self._net, lambda part: schedule.applied_to(make(part)))
                    for term in terms.added
                ]
            tuned, augment = schedule.applied_to(optimizer), schedule.augment
            descent = Descent(self._net, tuned, losses, augment=augment, precision=schedule.precision)
            draws = self._is_random or not descent.recordable
            with stepping(descent, device, recorded=not draws) as step:
                for batch in batches:
                    with self._stream.playing(device) if draws else nullcontext():
                        total += step(batch)
                    taken += 1
        return UpdateReport(taken, schedule.lr, float(total) / taken, str(device), descent.parts())

    @contextmanager
    def _learning(self, train: Trained) -> Iterator[None]:
        """The net in training mode; or only its head learns, and the rest is frozen in eval mode."""
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

    def _check_batch_norm(self, sets: Sequence[Labelled | Beside], schedule: Schedule, train: Trained) -> None:
        smallest_batch = len(sets) * min(schedule.batch_size, max(map(len, sets)))
        learns_by_batch = train == "all" and has_layer(self._net, nn.modules.batchnorm._BatchNorm)
        if smallest_batch == 1 and learns_by_batch:
            raise ConfigError("Batch norm cannot learn from batches of one row: use two rows and batch_size=2 or more.")

    @cached_property
    def head(self) -> str:
        """The name of the last linear layer."""
        return named.find_head(self._net, self._input_shape)

    def logits(self, rows: Rows, n_classes: int, device: torch.device, precision: Precision) -> Floats:
        """The net's outputs, in eval mode."""
        return self._answers(rows, n_classes, device, precision, self._net)

    def embed(self, rows: Rows, device: torch.device, precision: Precision) -> Floats:
        """The input of the last linear layer, in eval mode."""
        head = named.head_of(self._net, self.head)
        seen: list[torch.Tensor] = []

        def features(X: torch.Tensor) -> torch.Tensor:
            self._net(X)
            return seen.pop()

        hook = head.register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))
        try:
            return self._answers(rows, head.in_features, device, precision, features)
        finally:
            hook.remove()

    def _answers(
        self,
        rows: Rows,
        width: int,
        device: torch.device,
        precision: Precision,
        answer: Callable[[torch.Tensor], torch.Tensor],
    ) -> Floats:
        answers = np.empty((len(rows), width), dtype=np.float32)
        with turn(device), computing(device, precision):
            self.to(device)  # not in inference mode: what is moved there cannot be trained any more
            self._net.eval()
            with torch.inference_mode(), passing(device, precision):
                for chunk in rows.chunks():
                    answers[chunk] = answer(rows.tensor(chunk, device)).float().cpu().numpy()
        return answers

    def to(self, device: torch.device) -> None:
        """Move the net and the optimizer's state to a device."""
        if device != self._device:
            self._move(self._net, device)
            put_optimizer(self._optimizer, device)
            self._device = device

    def _move(self, net: nn.Module, device: torch.device) -> nn.Module:
        """The net on this device. Our own nets use channels-last on a GPU, where that is faster."""
        if not self._is_ours:
            return net.to(device)
        layout = torch.contiguous_format if device == CPU else torch.channels_last
        moved: nn.Module = net.to(device, memory_format=layout)  # type: ignore[call-overload]
        return moved

    def __getstate__(self) -> dict[str, Any]:
        if self._device == CPU:
            return self.__dict__
        with turn(self._device):
            # One copy of both, since the optimizer refers to the net's parameters.
            net, optimizer = copy.deepcopy((self._net, self._optimizer))
            self._move(net, CPU)
            put_optimizer(optimizer, CPU)
        return self.__dict__ | {"_net": net, "_optimizer": optimizer, "_device": CPU}

    def copy_net(self) -> nn.Module:
        """A copy of the net, on the CPU and in eval mode."""
        return self._move(copy.deepcopy(self._net), CPU).eval()

    def get_weights(self, part: Part) -> named.Arrays:
        """A copy of the weights of this part of the net."""
        with turn(self._device):
            return named.read(self._net, part, "" if part == "all" else self.head)

    def set_weights(self, weights: Weights, part: Part) -> None:
        """Set the weights of this part of the net; names and shapes must be those of `get_weights`."""
        with turn(self._device):
            named.write(self._net, weights, part, "" if part == "all" else self.head)

    def has_diverged(self) -> bool:
        """Whether some weight is NaN or infinite."""
        with turn(self._device):
            return not all(bool(value.isfinite().all()) for value in self._net.state_dict().values())


def has_layer(net: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the net contains a layer of this kind."""
    return any(isinstance(layer, kind) for layer in net.modules())


def check_output(net: Any, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The net, or a ConfigError if it does not return one number per class for such rows."""
    if not isinstance(net, nn.Module):
        raise ConfigError(f"net must be a name, a torch.nn.Module or a function that returns one, not {type(net)}.")
    net.to(CPU).eval()
    try:
        with torch.no_grad():
            shape = tuple(net(torch.zeros(2, *input_shape)).shape)
    except Exception as misfit:
        raise ConfigError(f"The net does not take rows of shape {input_shape}: {misfit}") from misfit
    if shape != (2, n_classes):
        outputs = shape[1] if len(shape) == 2 else f"a tensor of shape {shape[1:]}"
        raise ConfigError(f"The net must give {n_classes} outputs per row, one per class, but gives {outputs}.")
    return net
