"""The training of one net: its weights, its optimizer, its random stream, and the rows still to come."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from collegium.errors import ConfigError
from collegium.learners.batches import Batches, Floats, Labelled, Rows
from collegium.registry import nearest

CPU: Final = torch.device("cpu")
OPTIMIZERS: Final[dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}

# Initialisation and dropout draw from torch's process-wide generator: one stream of our own at a time plays through it.
_GLOBAL_GENERATOR = threading.RLock()


class RandomStream:
    """A stream of random numbers of one's own, played through torch's process-wide generators."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[str, torch.Tensor] = {}

    @contextmanager
    def playing(self, device: torch.device) -> Iterator[None]:
        """torch draws from this stream, which goes on where it last stopped; then torch's own is put back."""
        devices = {CPU, device}
        with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=devices - {CPU}):
            for each in devices:
                _generator(each).set_state(self._state(each))
            try:
                yield
            finally:
                for each in devices:
                    self._states[each.type] = _generator(each).get_state()

    def _state(self, device: torch.device) -> torch.Tensor:
        if device.type not in self._states:
            self._states[device.type] = torch.Generator(device).manual_seed(self._seed).get_state()
        return self._states[device.type]


class Training:
    """A net and all that its training goes on from. It can be pickled and then goes on with the same bits."""

    def __init__(
        self, make_net: Callable[[], nn.Module], *, optimizer: str, seed: int | None, deterministic: bool
    ) -> None:
        for_net, for_batches = np.random.SeedSequence(seed).spawn(2)
        self._stream = RandomStream(int(for_net.generate_state(1, np.uint64)[0]))
        with self._stream.playing(CPU):
            self._net = make_net()
        self._optimizer = OPTIMIZERS[optimizer](self._net.parameters())
        self._batches = Batches(np.random.default_rng(for_batches))
        self._device = CPU
        self._is_random = not deterministic or has_layer(self._net, nn.modules.dropout._DropoutNd)

    def train(
        self,
        sets: Sequence[Labelled],
        *,
        batch_size: int,
        epochs: int,
        steps: int | None,
        lr: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        """Go on training with batches of equal shares of all `sets`."""
        smallest_batch = len(sets) * min(batch_size, max(map(len, sets)))
        if smallest_batch == 1 and has_layer(self._net, nn.modules.batchnorm._BatchNorm):
            raise ConfigError(
                "Batch norm cannot learn from batches of one row: give two rows and batch_size=2 or more."
            )
        self.to(device)
        for group in self._optimizer.param_groups:
            group.update(lr=lr, weight_decay=weight_decay)
        self._net.train()
        for X, y in self._batches.draw(sets, batch_size=batch_size, epochs=epochs, steps=steps):
            with self._stream.playing(device) if self._is_random else nullcontext():
                self._step(torch.from_numpy(X).to(device), torch.from_numpy(y).to(device))

    def _step(self, X: torch.Tensor, y: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        functional.cross_entropy(self._net(X), y).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def logits(self, rows: Rows, n_classes: int, device: torch.device) -> Floats:
        """The net's outputs, in eval mode."""
        self.to(device)
        self._net.eval()
        logits = np.empty((len(rows), n_classes), dtype=np.float32)
        with torch.inference_mode():
            for chunk in rows.chunks():
                logits[chunk] = self._net(torch.from_numpy(rows.take(chunk)).to(device)).cpu().numpy()
        return logits

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

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """A copy of the net's state: parameters and buffers."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self._net.state_dict().items()}

    def set_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Put the net into this state; names and shapes must be those of `get_weights`."""
        own = {name: tuple(value.shape) for name, value in self._net.state_dict().items()}
        given = {name: np.shape(value) for name, value in weights.items()}
        wrong = sorted(name for name in own.keys() | given.keys() if own.get(name) != given.get(name))
        if wrong:
            raise ConfigError(f"These weights are of another net. They differ in name or shape: {', '.join(wrong)}.")
        self._net.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})


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


def find_device(name: str, *, or_cpu: bool = False) -> torch.device:
    """The device of this name, if this machine has it; `or_cpu` takes the CPU where there is no CUDA."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"There is no device {name!r}: use 'cpu', 'cuda' or 'cuda:<number>'.")
    if device.type == "cpu" or (or_cpu and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}, but torch finds no CUDA device here: use device='cpu'.")
    number = torch.cuda.current_device() if device.index is None else device.index
    if number >= torch.cuda.device_count():
        raise ConfigError(f"device={name!r}, but the CUDA devices here are 0 to {torch.cuda.device_count() - 1}.")
    return torch.device("cuda", number)


def check_optimizer(name: str) -> None:
    """A ConfigError if there is no such optimizer."""
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"There is no optimizer {name!r}.{nearest(str(name), OPTIMIZERS)} Known: {', '.join(OPTIMIZERS)}."
        )


def _generator(device: torch.device) -> torch.Generator:
    return torch.default_generator if device == CPU else torch.cuda.default_generators[device.index]
