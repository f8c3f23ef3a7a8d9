"""Mini-batch steps on a GPU, recorded as a CUDA graph and replayed.

A step of a small net is a hundred kernels of a few microseconds each. Launching them one by one takes longer than
running them; a graph launches them all at once, on a batch that is copied to where the first one was.

The environment variable COLLEGIUM_CUDA_GRAPHS=0 turns recording off.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import torch

from collegium.learners.torch.batches import Batch
from collegium.learners.torch.descent import Descent

T = TypeVar("T")
WARM_UP: Final = 3
"""Steps before the first recording: libraries initialize in them, which a graph must not record."""

OFTEN: Final = 8
"""So often must several steps come in one go before they are recorded as one, which takes as long as many steps."""

MOST_IDLE: Final = 0.25
"""Of a GPU's memory, what PyTorch may keep reserved without using it: giving it back and asking again takes long."""

# While one net is recorded on the side stream, no other may put its work there, and none asks for memory.
_one_at_a_time = threading.RLock()


class _Recording(NamedTuple):
    graph: Any
    places: Batch
    loss: torch.Tensor


class Replayed:
    """A step that is recorded when a batch shape repeats. The net must not draw random numbers."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._taken = 0
        self._seen: set[Any] = set()
        self._recordings: dict[Any, _Recording] = {}

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Take the step and return the loss before it, which the next call overwrites."""
        shapes = tuple(None if part is None else tuple(part.shape) for part in batch)
        self._taken += 1
        if shapes not in self._recordings:
            known = shapes in self._seen
            self._seen.add(shapes)
            if not known or self._taken <= WARM_UP:
                return self._descent.step(batch)
            self._recordings[shapes] = self._record(batch)
        recording = self._recordings[shapes]
        for place, part in zip(recording.places, batch, strict=True):
            if place is not None and part is not None:
                place.copy_(part)
        recording.graph.replay()
        return recording.loss

    def _record(self, batch: Batch) -> _Recording:
        """Record the step without running it: neither weights nor optimizer change."""
        places = Batch(*(None if part is None else part.clone() for part in batch))  # type: ignore[arg-type]
        graph, loss = record(lambda: self._descent.step(places), self._descent.optimizer)
        return _Recording(graph, places, loss)


@contextmanager
def turn(device: torch.device) -> Iterator[None]:
    """Exclusive use of a GPU: sites in threads of one process take turns."""
    if device.type != "cuda":
        yield
        return
    with _one_at_a_time:
        yield


@contextmanager
def stepping(descent: Descent, device: torch.device, *, recorded: bool) -> Iterator[Callable[[Batch], torch.Tensor]]:
    """A function that takes steps of this descent, recorded on a GPU; valid inside the block."""
    if not recorded or not can_record(device):
        yield descent.step
        return
    with on_side_stream(device):
        yield Replayed(descent)
    descent.optimizer.zero_grad()  # the gradients are in the graph's memory


def can_record(device: torch.device) -> bool:
    """Whether steps on this device may be recorded."""
    return device.type == "cuda" and os.environ.get("COLLEGIUM_CUDA_GRAPHS") != "0"


@contextmanager
def on_side_stream(device: torch.device, *, wait: bool = True) -> Iterator[None]:
    """Where a GPU's work can be recorded, and replayed: the main stream cannot be.

    Without `wait`, Python goes on at the end, and what it gives the GPU next is done afterwards. Whoever does so keeps
    what was recorded until the GPU is done with it.
    """
    if not can_record(device):
        yield
        return
    with _one_at_a_time:
        main, side = torch.cuda.current_stream(device), _side_stream(device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            yield
            if wait:
                side.synchronize()  # a graph must not go while it is at work
        main.wait_stream(side)
        # The memory of a graph that has gone serves no other: others who work with this GPU would run out of it.
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if idle > MOST_IDLE * torch.cuda.get_device_properties(device).total_memory:
            torch.cuda.empty_cache()


class Recorder:
    """Computations that are recorded when they come again; each changes what it must in its place, and returns nothing.

    Call it inside `on_side_stream`. Not `enabled`, it records nothing; else so many at `most`.
    """

    def __init__(self, enabled: bool, most: int | None = None) -> None:
        self._enabled, self._most = enabled, most
        self._seen: Counter[Hashable] = Counter()
        self._missed: Counter[Hashable] = Counter()
        self._combined: set[Hashable] = set()
        self._recordings: dict[Hashable, Any] = {}

    def knows(self, key: Hashable) -> bool:
        """Whether something was recorded under this key."""
        return key in self._recordings

    def pays(self, key: Hashable) -> bool:
        """Whether what is made of computations that were recorded is recorded, too, or is to be: it came often."""
        if key in self._combined:
            return True
        self._missed[key] += 1
        if self._missed[key] <= OFTEN or len(self._combined) == self._most:
            return False
        self._combined.add(key)
        return True

    def _is_ready(self, key: Hashable) -> bool:
        """Whether it is recorded now; what is made of others is as warm as they are."""
        if not self._enabled or key in self._combined:
            return self._enabled
        self._seen[key] += 1
        full = self._most is not None and len(self._recordings) - len(self._combined) >= self._most
        return not full and self._seen[key] > WARM_UP

    def __call__(self, key: Hashable, run: Callable[[], None], optimizer: torch.optim.Optimizer) -> None:
        """Run it, or replay what was recorded under this key."""
        if key not in self._recordings:
            if not self._is_ready(key):
                run()
                return
            self._recordings[key] = record(run, optimizer)[0]
        self._recordings[key].replay()


def record(run: Callable[[], T], optimizer: torch.optim.Optimizer) -> tuple[Any, T]:
    """A graph of what this computes, which is not computed yet, and where its result will be."""
    graph = torch.cuda.CUDAGraph()
    with _capturable(optimizer), _no_garbage_collected():
        # Other threads may keep using the GPU meanwhile. Each graph has its own memory, which is freed with
        # it: PyTorch 2.11 does not record into a pool again after the last graph in it has gone.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = run()
        finally:
            graph.capture_end()
    return graph, result


def put_optimizer(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move its state to where the parameters are. On a GPU, Adam is fused and counts its steps there."""
    fused = True if device.type == "cuda" else None
    state = optimizer.state_dict()
    adams = [group for group in state["param_groups"] if "capturable" in group]
    for group in adams:
        group["fused"] = True  # so that loading moves the count of steps too
    optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["fused"] = fused
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if torch.is_tensor(value) and value.shape == parameter.shape and value.dim() > 0:
                values[name] = torch.empty_like(parameter).copy_(value)  # in the parameter's layout


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Adam must be told that it is being recorded; at other times that would make it warn."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Collecting an old graph in the middle of a recording would break it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
