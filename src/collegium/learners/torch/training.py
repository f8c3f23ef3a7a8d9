"""The training state of one net: its weights, optimizer, random stream, and the rows still to come."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from collegium.core.terms import LocalTerms, Part, Precision, Trained, UpdateReport, Weights
from collegium.errors import ConfigError
from collegium.learners.torch import memory
from collegium.learners.torch import weights as named
from collegium.learners.torch.answers import Late, Question, answers_in_memory
from collegium.learners.torch.batches import Batch, Batches, Beside, Labelled, batches_of
from collegium.learners.torch.cuda_graphs import put_optimizer, stepping, turn
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.devices import CPU, RandomStream, computing
from collegium.learners.torch.hands import Hands
from collegium.learners.torch.likeness import likeness
from collegium.learners.torch.optimizers import OPTIMIZERS, Adam, MakeOptimizer
from collegium.registry import lookup

_IMAGE: Final = 3  # dimensions
_KERNEL: Final = 4
MOST_KEPT: Final = 4
"""A method may train a net in turns in a few ways, such as on its own rows and on others' answers."""
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

    def deal(self, source: Batches, sets: Sequence[Labelled], beside: Beside | None) -> Hands:
        """The rows of the mini-batches of these sets."""
        return source.deal(sets, beside, batch_size=self.batch_size, epochs=self.epochs, steps=self.steps)

    def applied_to(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer with this learning rate and weight decay."""
        for group in optimizer.param_groups:
            group.update(lr=self.lr, weight_decay=self.weight_decay)
        return optimizer


@dataclass(frozen=True, eq=False)
class Update:
    """One update of one net: the rows of all its mini-batches, and what is done with them."""

    training: Training
    hands: Hands
    sets: Sequence[Labelled]
    beside: Beside | None
    schedule: Schedule
    terms: LocalTerms
    optimizer: torch.optim.Optimizer
    make_optimizer: MakeOptimizer
    """Another one like it, for losses with parameters of their own."""

    def carry_out(self) -> UpdateReport:
        """Take the steps."""
        return self.training.carry_out(self)

    @property
    def every(self) -> list[Labelled | Beside]:
        """All its rows: those with labels first."""
        return [*self.sets, *([] if self.beside is None else [self.beside])]

    @property
    def recordable(self) -> bool:
        """Whether every step runs the same operations, without reading values back to Python."""
        images = len(self.every[0].rows.shape) == _IMAGE
        random = self.schedule.augment and not images
        return not random and all(lookup("local_loss", term.loss).recordable for term in self.terms.added)

    @property
    def batches(self) -> Iterator[Batch]:
        """The mini-batches, one at a time."""
        return batches_of(self.hands, self.sets, self.beside, self.schedule.device)


class Training:
    """A net and its training state. It can be pickled and then continues with the same bits."""

    recordable = True
    """Whether its steps may be recorded: not any more once that has failed."""

    def __init__(
        self,
        make_net: Callable[[], nn.Module],
        input_shape: tuple[int, ...],
        *,
        optimizer: str,
        seed: int | None,
        deterministic: bool,
        layers: Hashable = None,
    ) -> None:
        """`layers` is equal for nets with the same layers; without it they are compared."""
        for_net, for_batches, for_distilling = np.random.SeedSequence(seed).spawn(3)
        self.stream = RandomStream(int(for_net.generate_state(1, np.uint64)[0]))
        with self.stream.playing(CPU):
            self.net = make_net()
        self.layers = likeness(self.net) if layers is None else layers
        self._input_shape = input_shape
        self._has: dict[tuple[type[nn.Module], ...], bool] = {}
        self._optimizer, self._optimizer_name = OPTIMIZERS[optimizer](_learning(self.net)), optimizer
        self.taken = 0
        """How many steps its optimizer has taken."""
        self._kept: deque[object] = deque(maxlen=MOST_KEPT)
        self._batches = Batches(np.random.default_rng(for_batches))
        self._distilled = Batches(np.random.default_rng(for_distilling))
        self._distiller: torch.optim.Optimizer | None = None
        self._distilled_for = 0
        self._device, self._channels_last = CPU, False
        self._is_ours = deterministic
        self.is_random = not deterministic or self.has_layer(nn.modules.dropout._DropoutNd)

    def begin(
        self,
        sets: Sequence[Labelled],
        schedule: Schedule,
        terms: LocalTerms,
        beside: Beside | None,
        *,
        optimizer: str,
    ) -> Update:
        """An update with equal shares of all sets in each batch; the terms may reset the `optimizer`."""
        self._check_batch_norm([*sets, *([] if beside is None else [beside])], schedule, terms.train)
        with turn(schedule.device):
            self.to(schedule.device, schedule.precision)
            if not terms.keep_optimizer:
                self._reset(optimizer)
        hands = schedule.deal(self._batches, sets, beside)
        return Update(self, hands, sets, beside, schedule, terms, self._optimizer, OPTIMIZERS[optimizer])

    def _reset(self, name: str) -> None:
        """A new optimizer, or, where that is the same, the old one that has forgotten everything."""
        if name == self._optimizer_name:
            kept = [value for state in self._optimizer.state.values() for value in state.values()]
            tensors = [value for value in kept if torch.is_tensor(value)]
            if tensors:
                torch._foreach_zero_(tensors)
        else:
            self._optimizer, self._optimizer_name = OPTIMIZERS[name](_learning(self.net)), name
            put_optimizer(self._optimizer, self._device)
        self.taken = 0

    def begin_distilling(self, soft: Beside, schedule: Schedule, terms: LocalTerms) -> Update:
        """An update after which the net predicts these targets, with a new Adam optimizer or the last one."""
        self._check_batch_norm([soft], schedule, terms.train)
        with turn(schedule.device):
            self.to(schedule.device, schedule.precision)
            kept = self._distiller if terms.keep_optimizer else None
            adam = Adam(_learning(self.net)) if kept is None else kept
            put_optimizer(adam, self._device)
            self._distiller = adam if terms.keep_optimizer else None
            self._distilled_for = 0 if kept is None else self._distilled_for
        hands = schedule.deal(self._distilled, [], soft)
        return Update(self, hands, [], soft, replace(schedule, augment=False), terms, adam, Adam)

    def keep(self, place: object) -> None:
        """Keep where it is trained for the next time: what was recorded there serves it again."""
        if place not in self._kept:
            self._kept.append(place)
        memory.note(self)

    def forget(self) -> bool:
        """Give back what was kept; whether there was anything."""
        had = bool(self._kept)
        self._kept.clear()
        return had

    def keeps(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether this optimizer is trained with again."""
        return optimizer is self._optimizer or optimizer is self._distiller

    def steps_of(self, optimizer: torch.optim.Optimizer) -> int:
        """How many steps an optimizer of this net has taken: one that it keeps, or a new one."""
        return self.taken if optimizer is self._optimizer else self._distilled_for if self.keeps(optimizer) else 0

    def note_steps(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        """So many steps were taken."""
        if optimizer is self._optimizer:
            self.taken += steps
        elif self.keeps(optimizer):
            self._distilled_for += steps

    def descent(self, update: Update, net: nn.Module, optimizer: torch.optim.Optimizer) -> Descent:
        """The mini-batch steps of an update, with what the terms' losses add; `net` has its weights."""
        schedule, terms = update.schedule, update.terms
        with self.stream.playing(schedule.device) if terms.added else nullcontext():  # a loss may draw its first values
            losses = [
                lookup("local_loss", term.loss)(
                    term, net, lambda part: schedule.applied_to(update.make_optimizer(part))
                )
                for term in terms.added
            ]
        return Descent(
            net,
            optimizer,
            losses,
            augment=schedule.augment,
            precision=schedule.precision,
            has_random_layers=self.is_random,
        )

    def carry_out(self, update: Update) -> UpdateReport:
        """One mini-batch step per batch."""
        schedule, terms, device = update.schedule, update.terms, update.schedule.device
        total = torch.zeros((), device=device)
        with turn(device), computing(device, schedule.precision), self.learning(terms.train):
            descent = self.descent(update, self.net, schedule.applied_to(update.optimizer))
            with stepping(descent, device, recorded=self.recordable and not descent.draws) as step:
                for batch in update.batches:
                    with self.stream.playing(device) if descent.draws else nullcontext():
                        total += step(batch)
                    self.note_steps(update.optimizer, 1)
        taken = len(update.hands)
        return UpdateReport(taken, schedule.lr, float(total) / taken, str(device), descent.parts())

    @contextmanager
    def learning(self, train: Trained) -> Iterator[None]:
        """The net in training mode; or only its head learns, and the rest is frozen in eval mode."""
        frozen = self.set_learning(self.net, train)
        try:
            yield
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)

    def set_learning(self, net: nn.Module, train: Trained) -> list[nn.Parameter]:
        """The same for this net, which has its layers; returns what is frozen."""
        net.train(train == "all")
        if train == "all":
            return []
        of_head = set(map(id, named.head_of(net, self.head).parameters()))
        frozen = [each for each in net.parameters() if each.requires_grad and id(each) not in of_head]
        for parameter in frozen:
            parameter.requires_grad_(False)
        return frozen

    def _check_batch_norm(self, sets: Sequence[Labelled | Beside], schedule: Schedule, train: Trained) -> None:
        smallest_batch = len(sets) * min(schedule.batch_size, max(map(len, sets)))
        learns_by_batch = train == "all" and self.has_layer(nn.modules.batchnorm._BatchNorm)
        if smallest_batch == 1 and learns_by_batch:
            raise ConfigError("Batch norm cannot learn from batches of one row: use two rows and batch_size=2 or more.")

    @property
    def stackable(self) -> bool:
        """Whether its net may be computed with others: it may say that it may not."""
        return bool(getattr(self.net, "stackable", True))

    def has_layer(self, *kinds: type[nn.Module]) -> bool:
        """Whether its net contains a layer of these kinds; the answer is kept."""
        if kinds not in self._has:
            self._has[kinds] = has_layer(self.net, *kinds)
        return self._has[kinds]

    @cached_property
    def tensors(self) -> tuple[list[nn.Parameter], list[torch.Tensor]]:
        """Its parameters and buffers, where they are now."""
        return list(self.net.parameters()), list(self.net.buffers())

    @cached_property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...], bool], ...]:
        """By name: the shape of each parameter, and whether it learns."""
        return tuple((name, tuple(each.shape), each.requires_grad) for name, each in self.net.named_parameters())

    def trained_names(self, train: Trained) -> list[str]:
        """The names of the parameters that learn."""
        prefix = "" if train == "all" else f"{self.head}." if self.head else ""
        return [name for name, each in self.net.named_parameters() if each.requires_grad and name.startswith(prefix)]

    @cached_property
    def head(self) -> str:
        """The name of the last linear layer; a net that names its own need not be asked for an answer to find it."""
        known: str | None = getattr(self.net, "last_layer", None)
        return named.find_head(self.net, self._input_shape) if known is None else known

    def answers(self, asked: Question) -> Late:
        """The net's logits, features or most probable classes, in eval mode."""
        with turn(asked.device):
            self.to(
                asked.device, asked.precision
            )  # not in inference mode: what is moved there cannot be trained any more
        return answers_in_memory(self.net, self.head if asked.said == "features" else "", asked)

    def to(self, device: torch.device, precision: Precision) -> None:
        """Move the net and the optimizer's state to a device, and there into the layout that is best for it."""
        channels_last = self._is_ours and device != CPU and precision == "bfloat16"
        if (device, channels_last) == (self._device, self._channels_last):
            return
        self._move(self.net, device, channels_last=channels_last)
        put_optimizer(self._optimizer, device)
        self._device, self._channels_last = device, channels_last
        self.forget()
        self.__dict__.pop("tensors", None)

    @staticmethod
    def _move(net: nn.Module, device: torch.device, *, channels_last: bool = False) -> nn.Module:
        """The net on this device. Convolutions in bfloat16 are faster with the channels last, others slower.

        That is so where the same seed must give the same net: measured on an H200.
        """
        layout = torch.channels_last if channels_last else torch.contiguous_format
        has_images = any(each.ndim == _KERNEL for each in net.parameters())
        moved: nn.Module = net.to(device, memory_format=layout) if has_images else net.to(device)  # type: ignore[call-overload]
        return moved

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name != "tensors"}
        state["_kept"] = deque(maxlen=MOST_KEPT)
        if self._device == CPU:
            return state
        with turn(self._device):
            # One copy of all, since the optimizers refer to the net's parameters.
            net, optimizer, distiller = copy.deepcopy((self.net, self._optimizer, self._distiller))
            self._move(net, CPU)
            for each in filter(None, (optimizer, distiller)):
                put_optimizer(each, CPU)
        moved = {"net": net, "_optimizer": optimizer, "_distiller": distiller}
        return state | moved | {"_device": CPU, "_channels_last": False}

    def copy_net(self) -> nn.Module:
        """A copy of the net, on the CPU and in eval mode."""
        return self._move(copy.deepcopy(self.net), CPU).eval()

    def get_weights(self, part: Part) -> named.Arrays:
        """A copy of the weights of this part of the net."""
        with turn(self._device):
            return named.read(self.net, part, "" if part == "all" else self.head)

    def set_weights(self, weights: Weights, part: Part) -> None:
        """Set the weights of this part of the net; names and shapes must be those of `get_weights`."""
        with turn(self._device):
            named.write(self.net, weights, part, "" if part == "all" else self.head)

    def has_diverged(self) -> bool:
        """Whether some weight is NaN or infinite."""
        with turn(self._device):
            return not bool(torch.stack([value.isfinite().all() for value in self.net.state_dict().values()]).all())


def _learning(net: nn.Module) -> list[nn.Parameter]:
    """What an optimizer needs to know: what is frozen for good, such as a pre-trained model, may be far larger."""
    return [each for each in net.parameters() if each.requires_grad]


def has_layer(net: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether the net contains a layer of these kinds."""
    return any(isinstance(layer, kinds) for layer in net.modules())


def not_a_net(net: Any) -> ConfigError:
    """The error for something else."""
    return ConfigError(f"net must be a name, a torch.nn.Module or a function that returns one, not {type(net)}.")


def check_output(net: Any, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The net, or a ConfigError if it does not return one number per class for such rows."""
    if not isinstance(net, nn.Module):
        raise not_a_net(net)
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
