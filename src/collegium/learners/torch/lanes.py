"""Nets on a GPU that are trained side by side, each on a stream of its own.

A step of one net is too small for a GPU. What it computes is recorded once and replayed: Python only starts it. Nets
with convolutions or batch norm, and nets that differ, are trained like this; several with the same dense layers are one
computation (`collegium.learners.torch.together`).

A lane is a place where nets of one kind are trained in turn: the net's weights are copied in, and out when its last
step is done. So a few recordings serve a thousand nets, and a net whose update fails is as it was before.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Final

import numpy as np
import torch
from torch import nn

from collegium.core.terms import UpdateReport
from collegium.learners.torch.cuda_graphs import Recorder, can_record, on_side_stream, turn
from collegium.learners.torch.devices import computing
from collegium.learners.torch.feeding import Fed, LaneFeed, Shape
from collegium.learners.torch.together import kind_of
from collegium.learners.torch.training import Training, Update

STREAMS: Final = 16
MOST_RECORDED: Final = 8
"""Mini-batches of so many different sizes are recorded at each place: recordings take memory."""
MOST_IN_ONE: Final = 16
"""Steps that are replayed as one."""
MOST_WEIGHTS: Final = 2**27
"""Of all nets that are trained at a time: few large ones fill a GPU, and its memory."""
SMALL: Final = 2**16
"""Numbers in the rows of a step that a GPU takes sooner than Python starts it."""


def has_lane(update: Update) -> bool:
    """Whether the steps of an update can be recorded: its rows stay on the GPU, and so does all that its losses do."""
    if not update.training.recordable or not can_record(update.schedule.device):
        return False
    if not all(each.rows.can_stay for each in update.every):
        return False
    return update.recordable


class Lane:
    """A place for one net at a time, and what was recorded there."""

    def __init__(self, update: Update, stream: torch.cuda.Stream) -> None:
        device = update.schedule.device
        self.stream = stream
        self._net = copy.deepcopy(update.training.net)
        self._weights, self._buffers = list(self._net.parameters()), list(self._net.buffers())
        self._lr = torch.zeros((), device=device)
        self._generator = torch.Generator(device)
        self._total = torch.zeros((), device=device)
        self._feed = LaneFeed(_fed(update), device)
        self._prepare(update)

    def _prepare(self, update: Update) -> None:
        """Its optimizer has what it keeps of each parameter from the beginning: what is recorded changes it there."""
        training = update.training
        training.set_learning(self._net, update.terms.train)
        self._optimizer = update.make_optimizer(self._weights)
        for group in self._optimizer.param_groups:
            group.update(lr=self._lr, weight_decay=update.schedule.weight_decay, fused=True)
        for each in self._weights:
            each.grad = torch.zeros_like(each) if each.requires_grad else None
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._copy_in(update)
        self._descent = training.descent(update, self._net, self._optimizer)
        self._recorder = Recorder(can_record(self._lr.device), most=MOST_RECORDED)

    def begin(self, update: Update) -> None:
        """Take the steps of this update from now on: call it on its stream."""
        self._update, self._number = update, 0
        self._copy_in(update)
        if not self._descent.renew(update.terms.added):
            self._prepare(update)
        self._lr.fill_(update.schedule.lr)
        self._total.zero_()
        if self._descent.draws:
            self._generator.set_state(update.training.stream.gpu_state(self._lr.device))
        self._feed.begin(_fed(update))
        look_at = getattr(self._net, "look_at", None)
        self._seen = None if look_at is None else look_at(self._feed.tables)

    @torch.no_grad()
    def _copy_in(self, update: Update) -> None:
        parameters, buffers = update.training.tensors
        places, values, fresh = [*self._weights, *self._buffers], [*parameters, *buffers], []
        for own, parameter in zip(self._weights, parameters, strict=True):
            given = update.optimizer.state.get(parameter, {})
            for name, value in self._optimizer.state.get(own, {}).items():
                if name in given:
                    places.append(value)
                    values.append(given[name])
                else:
                    fresh.append(value)
        _copy(places, values)
        if fresh:
            torch._foreach_zero_(fresh)

    def step(self) -> bool:
        """Take the next step, or several, on its stream; whether the last was among them."""
        update, feed = self._update, self._feed
        feed.goto(self._number)
        shape = Shape(1, int(update.hands.sizes[self._number]), filled=False)
        steps = self._in_one(shape)
        key = shape, steps, self._seen
        first = not self._recorder.knows(key)
        stream = update.training.stream
        drawing = stream.playing(self._lr.device, self._generator) if first and self._descent.draws else nullcontext()
        with drawing:
            self._recorder(key, partial(self._take, shape, steps), self._optimizer)
        self._number += steps
        return self._number == len(update.hands)

    def _in_one(self, shape: Shape) -> int:
        """How many of the next steps are replayed as one: a power of 2, so that few different numbers are recorded."""
        feed = self._feed
        if feed.values(shape) > SMALL or not self._recorder.knows((shape, 1, self._seen)):
            return 1
        ready = min(MOST_IN_ONE, feed.ready(self._number))
        others = np.flatnonzero(self._update.hands.sizes[self._number : self._number + ready] != shape.rows)
        alike = int(others[0]) if len(others) else ready
        steps = 1 << (alike.bit_length() - 1)
        return steps if steps > 1 and self._recorder.pays((shape, steps, self._seen)) else 1

    def _take(self, shape: Shape, steps: int) -> None:
        for batch in self._feed.batches(shape, steps):
            self._total += self._descent.step(batch)

    @torch.no_grad()
    def end(self, total: torch.Tensor) -> UpdateReport:
        """The net has the new weights, and `total` the sum of the losses: call it on its stream."""
        update, training = self._update, self._update.training
        parameters, buffers = training.tensors
        places, values = [*parameters, *buffers], [*self._weights, *self._buffers]
        made: list[tuple[nn.Parameter, str, torch.Tensor]] = []
        for own, parameter in zip(self._weights, parameters, strict=True) if training.keeps(update.optimizer) else ():
            given = update.optimizer.state.get(parameter, {})
            for name, value in self._optimizer.state.get(own, {}).items():
                place = given.get(name)
                if place is None:
                    place = torch.empty_like(value)
                    made.append((parameter, name, place))
                places.append(place)
                values.append(value)
        _copy(places, values)
        for parameter, name, place in made:  # only now: without memory for all of them, none is there
            update.optimizer.state[parameter][name] = place
        if self._descent.draws:
            training.stream.set_gpu_state(self._lr.device, self._generator.get_state())
        total.copy_(self._total)
        taken, schedule = len(update.hands), update.schedule
        training.note_steps(update.optimizer, taken)
        return UpdateReport(taken, schedule.lr, float("nan"), str(schedule.device), self._descent.parts())


def places_for(training: Training) -> int:
    """How many such nets are trained at a time."""
    weights = sum(each.numel() for each in training.tensors[0])
    return min(STREAMS, max(1, MOST_WEIGHTS // max(1, weights)))


class Lanes:
    """The places for nets of one kind, as many as there are streams, or fewer for large nets.

    They are kept by the nets that used them last.
    """

    def __init__(self) -> None:
        self._free: list[Lane] = []
        self._made = 0

    def take(self, update: Update) -> Lane | None:
        """A place that is free; None if all are taken."""
        if not self._free:
            streams = _streams(update.schedule.device)
            if self._made == min(len(streams), places_for(update.training)):
                return None
            # On its own stream, too: what another did for it might still be waiting there when its first step is taken.
            torch.cuda.set_stream(streams[self._made])
            self._free.append(Lane(update, streams[self._made]))
            self._made += 1
        return self._free.pop()

    def give_back(self, lane: Lane) -> None:
        """It is free again."""
        self._free.append(lane)


_lanes: weakref.WeakValueDictionary[Hashable, Lanes] = weakref.WeakValueDictionary()


def train_side_by_side(updates: Sequence[Update], done: dict[int, UpdateReport]) -> None:
    """Train these, which are on one GPU and compute with one precision. `done` has the reports of those that are."""
    device, precision = updates[0].schedule.device, updates[0].schedule.precision
    ended: dict[int, UpdateReport] = {}
    totals = torch.zeros(len(updates), device=device)
    with turn(device), computing(device, precision), on_side_stream(device):
        main = torch.cuda.current_stream(device)
        for stream in _streams(device):
            stream.wait_stream(main)
        try:
            _take_turns(updates, totals, ended)
        except BaseException:
            for each in updates:  # what is at work there is forgotten
                _lanes.pop(_kind(each), None)
                each.training.forget()
            raise
        finally:
            torch.cuda.set_stream(main)
            torch.cuda.synchronize(device)
            sums = totals.tolist()
            done |= {at: dataclasses.replace(each, found=sums[at] / each.steps) for at, each in ended.items()}


def _take_turns(updates: Sequence[Update], totals: torch.Tensor, ended: dict[int, UpdateReport]) -> None:
    """Each takes the next free place; all that have one take a step in turn."""
    waiting = deque(sorted(range(len(updates)), key=lambda at: -len(updates[at].hands)))
    lanes = [_lanes_for(update) for update in updates]
    busy: list[tuple[int, Lane, Lanes]] = []
    while waiting or busy:
        while waiting:
            update, places = updates[waiting[0]], lanes[waiting[0]]
            lane = places.take(update)
            if lane is None:
                break
            torch.cuda.set_stream(lane.stream)
            lane.begin(update)
            busy.append((waiting.popleft(), lane, places))
        for each in list(busy):
            at, lane, places = each
            torch.cuda.set_stream(lane.stream)
            if lane.step():
                ended[at] = lane.end(totals[at])
                places.give_back(lane)
                busy.remove(each)


def _lanes_for(update: Update) -> Lanes:
    kind = _kind(update)
    places = _lanes.get(kind)
    if places is None:
        places = _lanes[kind] = Lanes()
    update.training.keep(places)
    return places


def _kind(update: Update) -> Hashable:
    """Equal for updates that are the same computation on other numbers; the learning rate is one of them."""
    rated = dataclasses.replace(update, schedule=dataclasses.replace(update.schedule, lr=0.0))
    return kind_of(rated), LaneFeed.kind_of(_fed(update))


def _fed(update: Update) -> Fed:
    return Fed(update.hands, update.sets, update.beside)


def _copy(places: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """All at once, those of one type."""
    by_type: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for place, value in zip(places, values, strict=True):
        if place is value:  # what nobody trains is shared
            continue
        own = by_type.setdefault(place.dtype, ([], []))
        own[0].append(place)
        own[1].append(value)
    for some, given in by_type.values():
        torch._foreach_copy_(some, given)


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]  # type: ignore[no-untyped-call]
