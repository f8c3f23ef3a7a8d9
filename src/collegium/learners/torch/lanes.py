"""Nets on a GPU that are trained side by side, each on a stream of its own.

A step of one net is too small for a GPU. What it computes is recorded once and replayed, with the rows of the step
looked up on the device: Python only starts it. Nets with convolutions or batch norm, and nets that differ, are trained
like this; several with the same dense layers are one computation (`collegium.learners.torch.together`).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache, partial
from itertools import count
from typing import Any, Final

import torch

from collegium.core.terms import UpdateReport
from collegium.learners.torch.batches import Batch
from collegium.learners.torch.cuda_graphs import Recorder, can_record, on_side_stream, turn
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.devices import computing
from collegium.learners.torch.feeding import DeviceFeed, Fed, Shape, Tables
from collegium.learners.torch.training import Training, Update

STREAMS: Final = 16
MOST_KEPT: Final = 128
"""Recordings take memory: so many nets keep theirs until their next update."""
WORTH_RECORDING: Final = 16
"""Steps of an update that are worth a recording, even if the net is never trained again."""

_numbers = count()
_keeping: deque[weakref.ref[Training]] = deque()


def has_lane(update: Update) -> bool:
    """Whether the steps of an update can be recorded: its rows stay on the GPU, and so does all that its losses do."""
    if not can_record(update.schedule.device) or not all(each.rows.can_stay for each in update.every):
        return False
    return update.recordable


class Lane:
    """One net's steps, which are recorded. It is kept for the net's next update, if that computes the same."""

    def __init__(self, update: Update) -> None:
        self._descent: Descent = update.training.descent(update)
        self._training = weakref.ref(update.training)
        self._settings = _settings(update)
        self._states = _tensors_kept(update.optimizer)
        self._tables: Tables | None = None
        self._feed: DeviceFeed | None = None
        self._recorder = Recorder(enabled=False)
        self._updates = 0
        self._total = torch.zeros((), device=update.schedule.device)
        self.stream = _streams(update.schedule.device)[next(_numbers) % STREAMS]
        """Always the same: what was recorded on a stream uses that stream's scratch memory."""

    def serves(self, update: Update) -> bool:
        """Whether what it recorded is what this update computes."""
        now = _tensors_kept(update.optimizer)
        same = self._settings == _settings(update) and list(map(id, now)) == list(map(id, self._states))
        return same and self._descent.renew(update.terms.added)

    def knows(self, update: Update) -> bool:
        """Whether every step of an update has the shape of one that was recorded."""
        sizes = set(update.hands.sizes.tolist())
        return all(self._recorder.knows(Shape(1, size, filled=False)) for size in sizes)

    def begin(self, update: Update) -> None:
        """Take the steps of this update from now on."""
        self._update = update
        fed, sizes = [Fed(update.hands, update.sets, update.beside)], update.hands.sizes
        if self._tables is None or self._tables.key != Tables.key_of(fed):
            self._tables = Tables(fed, update.schedule.device)
        self._tables.set_targets(fed)
        if self._feed is None or not self._feed.serves(fed, self._tables, len(sizes), int(sizes.max())):
            self._feed = DeviceFeed(fed, self._tables, len(sizes), int(sizes.max()))
            self._recorder = Recorder(enabled=False)
        self._recorder.enabled = self._updates > 0 or len(sizes) >= WORTH_RECORDING
        self._updates += 1
        self._feed.begin(fed)
        self._total.zero_()

    def step(self, number: int) -> None:
        """Take this step: call it on its stream, for every step in turn."""
        feed, training = self._feed, self._update.training
        if feed is None:
            raise RuntimeError("A lane must begin before it takes a step.")
        feed.goto(number)
        shape = Shape(1, int(self._update.hands.sizes[number]), filled=False)
        first = self._descent.draws and not self._recorder.knows(shape)  # later it draws where it was recorded to
        with training.stream.playing(self._total.device) if first else nullcontext():
            self._recorder(shape, partial(self._take, feed, shape), self._descent.optimizer)

    def _take(self, feed: DeviceFeed, shape: Shape) -> None:
        batch, _ = feed.batch(shape)
        self._total += self._descent.step(Batch(*(None if part is None else part[0] for part in batch)))  # type: ignore[arg-type]

    def end(self) -> UpdateReport:
        """What came of the update."""
        update, taken = self._update, len(self._update.hands)
        update.training.note_steps(update.optimizer, taken)
        self._states = _tensors_kept(update.optimizer)
        schedule = update.schedule
        return UpdateReport(taken, schedule.lr, float(self._total) / taken, str(schedule.device), self._descent.parts())


def is_recorded(update: Update) -> bool:
    """Whether every step of this update was recorded: then none of them needs memory that is not there."""
    lane = update.training.cohort
    return isinstance(lane, Lane) and lane.serves(update) and lane.knows(update)


def train_alone(update: Update) -> UpdateReport:
    """Train one net; what it had before is what it has if that fails."""
    backup = None if is_recorded(update) else Backup([update])
    try:
        return train_side_by_side([update])[0]
    except Exception:
        if backup is not None:
            backup.restore()
        raise


def train_side_by_side(updates: Sequence[Update]) -> list[UpdateReport]:
    """Train these, which are on one GPU and compute with one precision."""
    device, precision = updates[0].schedule.device, updates[0].schedule.precision
    with turn(device), computing(device, precision), on_side_stream(device), ExitStack() as stack:
        main, streams = torch.cuda.current_stream(device), _streams(device)
        lanes = []
        for update in updates:
            stack.enter_context(update.training.learning(update.terms.train))
            lanes.append(_lane_for(update))
            lanes[-1].begin(update)
        for stream in streams:
            stream.wait_stream(main)
        for number in range(max(len(update.hands) for update in updates)):
            for lane, update in zip(lanes, updates, strict=True):
                if number < len(update.hands):
                    with torch.cuda.stream(lane.stream):
                        lane.step(number)
        for stream in streams:
            main.wait_stream(stream)
        main.synchronize()
        return [lane.end() for lane in lanes]


def _lane_for(update: Update) -> Lane:
    """That of the net's last update, if this one computes the same."""
    kept = update.training.cohort
    if isinstance(kept, Lane) and kept.serves(update):
        return kept
    lane = update.training.cohort = Lane(update)
    _keeping.append(weakref.ref(update.training))
    while len(_keeping) > MOST_KEPT:
        old = _keeping.popleft()()
        if old is not None and old is not update.training:
            old.cohort = None
    return lane


def _settings(update: Update) -> Hashable:
    terms = tuple(type(term) for term in update.terms.added)
    schedule = update.schedule
    return id(update.optimizer), schedule.lr, schedule.weight_decay, schedule.augment, update.terms.train, terms


def _tensors_kept(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What an optimizer keeps of each parameter: what was recorded changes it in its place."""
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


class Backup:
    """The weights of nets and what their optimizers keep, to go back to."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = updates
        self._values = [[value.clone() for value in _all_tensors(update)] for update in updates]

    @torch.no_grad()
    def restore(self) -> None:
        """As if nothing had happened; what was recorded is forgotten."""
        for update, values in zip(self._updates, self._values, strict=True):
            update.training.cohort = None
            now = _all_tensors(update)
            if len(now) > len(values):  # the optimizer had not begun
                update.optimizer.state.clear()
            for place, value in zip(now, values, strict=False):
                place.copy_(value)


def _all_tensors(update: Update) -> list[torch.Tensor]:
    net: Any = update.training.net
    return [*(each.detach() for each in net.parameters()), *net.buffers(), *_tensors_kept(update.optimizer)]


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]  # type: ignore[no-untyped-call]
