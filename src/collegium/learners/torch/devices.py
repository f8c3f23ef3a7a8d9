"""Where nets are trained, and the random numbers they draw there."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from collegium.core.terms import Precision
from collegium.errors import CollegiumWarning, ConfigError

CPU: Final = torch.device("cpu")

# Initialization and dropout draw from torch's process-wide generator: one of our streams at a time plays through it.
GLOBAL_GENERATOR = threading.RLock()


def find_device(name: str, *, quietly: bool = False) -> torch.device:
    """The device of this name; without CUDA, the CPU, with a warning unless `quietly`."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"Unknown device {name!r}: use 'cpu', 'cuda' or 'cuda:<number>'.")
    if device.type == "cpu":
        return CPU
    if not torch.cuda.is_available():
        if not quietly:
            text = f"device={name!r}, but torch finds no CUDA device here: the CPU is used. Set device='cpu' instead."
            warnings.warn(text, CollegiumWarning, stacklevel=4)
        return CPU
    number = torch.cuda.current_device() if device.index is None else device.index
    if number >= torch.cuda.device_count():
        raise ConfigError(f"device={name!r}, but the CUDA devices here are 0 to {torch.cuda.device_count() - 1}.")
    return torch.device("cuda", number)


@contextmanager
def computing(device: torch.device, precision: Precision) -> Iterator[None]:
    """Products of float32 numbers on a GPU in TF32, or in all their digits; only where it is this thread's `turn`.

    The setting is one for the whole process, so it is put back.
    """
    if device.type != "cuda":
        yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic
    products.allow_tf32 = convolutions.allow_tf32 = precision == "tf32"
    convolutions.deterministic = True  # the same seed gives the same net
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic = before


def passing(device: torch.device, precision: Precision) -> torch.autocast:
    """Around a net's forward pass and its loss: in bfloat16 where that is wanted, which has the range of float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False)


class RandomStream:
    """A private stream of random numbers, played through torch's process-wide generators."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[str, torch.Tensor] = {}
        self._on_gpu: dict[torch.device, torch.Generator] = {}

    @contextmanager
    def playing(self, device: torch.device, through: torch.Generator | None = None) -> Iterator[None]:
        """torch draws from this stream, continuing where it last stopped; afterwards torch's own state is restored.

        A GPU draws `through` a generator that has the stream's state, if one is given.
        """
        with GLOBAL_GENERATOR, self._playing_on_gpu(device, through):
            before = torch.default_generator.get_state()
            torch.default_generator.set_state(self._state(CPU))
            try:
                yield
            finally:
                self._states["cpu"] = torch.default_generator.get_state()
                torch.default_generator.set_state(before)

    def gpu_state(self, device: torch.device) -> torch.Tensor:
        """Where the stream is on this GPU."""
        return self._own_generator(device).get_state()

    def set_gpu_state(self, device: torch.device, state: torch.Tensor) -> None:
        """Somebody has drawn from it up to here."""
        self._own_generator(device).set_state(state)

    def _own_generator(self, device: torch.device) -> torch.Generator:
        if device not in self._on_gpu:
            self._on_gpu[device] = torch.Generator(device)
            self._on_gpu[device].set_state(self._state(device))
        return self._on_gpu[device]

    @contextmanager
    def _playing_on_gpu(self, device: torch.device, through: torch.Generator | None) -> Iterator[None]:
        """A GPU's generator takes a state that is ours: what is recorded meanwhile goes on with it when replayed."""
        if device == CPU:
            yield
            return
        generator = torch.cuda.default_generators[device.index]
        before = generator.graphsafe_get_state()
        generator.graphsafe_set_state(self._own_generator(device) if through is None else through)
        try:
            yield
        finally:
            generator.graphsafe_set_state(before)

    def _state(self, device: torch.device) -> torch.Tensor:
        if device.type not in self._states:
            self._states[device.type] = torch.Generator(device).manual_seed(self._seed).get_state()
        return self._states[device.type]

    def __getstate__(self) -> dict[str, Any]:
        on_gpu = {device.type: generator.get_state() for device, generator in self._on_gpu.items()}
        return {"_seed": self._seed, "_states": self._states | on_gpu, "_on_gpu": {}}
