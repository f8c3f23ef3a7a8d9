"""Several updates in one computation, each with the steps that it would take alone."""

from __future__ import annotations

import dataclasses
import threading
import warnings
import weakref
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Final

import numpy as np
import torch
from torch import nn

from collegium.core.meeting import Alone, in_places, places_here
from collegium.core.terms import LocalTerm, UpdateReport
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.torch import memory
from collegium.learners.torch.batches import Labelled
from collegium.learners.torch.cuda_graphs import Recorder, can_record, on_side_stream, turn
from collegium.learners.torch.devices import CPU, computing
from collegium.learners.torch.feeding import DeviceFeed, Fed, Feed, HostFeed, Shape, Tables
from collegium.learners.torch.losses import LocalLoss
from collegium.learners.torch.on_their_way import OnTheirWay
from collegium.learners.torch.stacked import Member, Part, Stack
from collegium.learners.torch.training import Training, Update
from collegium.registry import lookup

WORTH_A_CORE: Final = 2**26
"""Products in a step of several nets on a CPU: with fewer, Python takes longer than they do."""
USEFUL: Final = 0.9
"""A mini-batch is filled up by no more than this leaves, and so is the list of nets: both together leave over 80%."""


def stacks_well(training: Training) -> bool:
    """Whether several such nets are computed faster at once than one after the other, and as exactly.

    Convolutions of several nets become one with groups, which is slower than it looks, also for small nets: FedKT's
    LeNets are trained faster side by side. Batch norm makes the last bits of their sums matter.
    """
    layers = (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.modules.rnn.RNNBase)
    return training.stackable and not training.has_layer(*layers)


def why_not(update: Update) -> str | None:
    """Why this update cannot be one of several in one computation; None if it can."""
    if not stacks_well(update.training):
        return "its net has layers that are computed for one net at a time"
    if update.training.has_layer(nn.modules.dropout._DropoutNd):
        return "its net draws random numbers, which are its own only where it is computed by itself"
    if update.schedule.augment:
        return "it trains on random views"
    if update.schedule.device != CPU and not all(each.rows.can_stay for each in update.every):
        return "its rows are too many to stay on the GPU, or may change"
    for term in update.terms.added:
        if not lookup("local_loss", term.loss).stackable:
            return f"its loss {term.loss!r} is computed for one net at a time"
    return None


_OF_SCHEDULE: Final = ("params", "lr", "weight_decay")


def kind_of(update: Update) -> Hashable:
    """Equal for updates that are the same computation on other numbers."""
    group, schedule = update.optimizer.param_groups[0], update.schedule
    return (
        update.training.layers,
        update.training.shapes,
        (type(update.optimizer), tuple(sorted([each for each in group.items() if each[0] not in _OF_SCHEDULE]))),
        (schedule.batch_size, schedule.lr, schedule.weight_decay, schedule.device, schedule.augment),
        schedule.precision,
        (len(update.sets), update.beside is not None, update.terms.train),
        tuple(_signature(term) for term in update.terms.added),
    )


def _signature(term: LocalTerm) -> Hashable:
    """A term without the arrays in it."""
    fields = [(each.name, getattr(term, each.name)) for each in dataclasses.fields(term)]
    return type(term), tuple(
        (name, value if isinstance(value, int | float | str) else value is None) for name, value in fields
    )


def cohorts(updates: Sequence[Update]) -> list[list[int]]:
    """Which of these are trained in one computation, by their place: those that would fill up others too much are not.

    Those with the most steps come first.
    """
    by_batch = updates[0].training.has_layer(nn.modules.batchnorm._BatchNorm) and updates[0].terms.train == "all"
    exact = by_batch or updates[0].beside is not None  # no row may be there to fill up a batch
    groups: dict[Hashable, list[int]] = {}
    widest = 0
    for at in sorted(range(len(updates)), key=lambda at: -int(updates[at].hands.sizes.max())):
        sizes = updates[at].hands.sizes
        width = int(sizes.max())
        widest = width if not widest or width < USEFUL * widest else widest
        groups.setdefault(sizes.tobytes() if exact else widest, []).append(at)
    return [sorted(group, key=lambda at: (-len(updates[at].hands), at)) for group in groups.values()]


class Cohort:
    """Nets that are trained in one computation, again and again: their places, and what was recorded."""

    def __init__(self, updates: Sequence[Update]) -> None:
        first = updates[0]
        self._sums: OnTheirWay | None = None
        trained = first.training.trained_names(first.terms.train)
        self._stack = Stack(_member(first), len(updates), trained)
        self._stack.net.train(first.terms.train == "all")
        self._parts: dict[tuple[int, bool], Part] = {}
        self._feed: DeviceFeed | None = None
        self._tables: Tables | None = None
        self._totals = torch.zeros(len(updates), device=first.schedule.device)
        self._recorder = Recorder(can_record(self._totals.device))
        self.lock = threading.Lock()

    def train(self, updates: Sequence[Update], reports: dict[int, UpdateReport]) -> None:
        """Take all steps of these, of which the first has the most. `reports` has, by place, those that are done."""
        first = updates[0]
        device, members = first.schedule.device, [_member(each) for each in updates]
        fed = [Fed(each.hands, each.sets, each.beside) for each in updates]
        lengths = np.array([len(each.hands) for each in updates])
        shapes = shapes_of(updates)
        feed: Feed = HostFeed(fed, device) if device == CPU else self._fed_there(fed, shapes)
        self._stack.load(members)
        self._renew_losses(updates)
        self._totals.zero_()
        for step, shape in enumerate(shapes):
            feed.goto(step)
            part = self._part(shape.nets, updates)
            take = partial(self._step, part, feed, shape)
            self._recorder((shape, self._stack.even), take, part.optimizer)
            done = np.flatnonzero(lengths == step + 1)
            if len(done):
                self._finish({at: updates[at] for at in done.tolist()}, members, reports)

    def _step(self, part: Part, feed: Feed, shape: Shape) -> None:
        batch, counts = feed.batch(shape)
        self._totals[: shape.nets] += part.step(batch, counts)

    def _finish(self, done: Mapping[int, Update], members: Sequence[Member], reports: dict[int, UpdateReport]) -> None:
        self._stack.store({at: members[at] for at in done})
        sums = self._sums = OnTheirWay(self._totals)
        for at, update in done.items():
            taken, schedule = len(update.hands), update.schedule
            update.training.note_steps(update.optimizer, taken)
            reports[at] = UpdateReport(taken, schedule.lr, partial(_mean, sums, at, taken), str(schedule.device))

    def _fed_there(self, fed: Sequence[Fed], shapes: Sequence[Shape]) -> DeviceFeed:
        """The rows on the device; what is there already stays."""
        device, rows = self._totals.device, max(shape.rows for shape in shapes)
        if self._tables is None or self._tables.key != Tables.key_of(fed):
            self._tables = Tables(fed, device)
        self._tables.set_targets(fed)
        if self._feed is None or not self._feed.serves(fed, self._tables, len(shapes), rows):
            self._feed = DeviceFeed(fed, self._tables, len(shapes), rows)
            self._forget_recorded()
        self._feed.begin(fed)
        return self._feed

    def _part(self, n: int, updates: Sequence[Update]) -> Part:
        key = n, self._stack.even
        if key not in self._parts:
            part = self._parts[key] = Part(self._stack, n, updates[0].schedule.precision)
            updates[0].schedule.applied_to(part.optimizer)
            part.losses = [_loss(place, updates[:n], part) for place in range(len(updates[0].terms.added))]
        return self._parts[key]

    def _renew_losses(self, updates: Sequence[Update]) -> None:
        """Losses that keep something beside the weights take this update's; if they cannot, they are made anew."""
        for key, part in list(self._parts.items()):
            terms = [_stacked_term(place, updates[: key[0]]) for place in range(len(part.losses))]
            if not all(loss.renew(term) for loss, term in zip(part.losses, terms, strict=True)):
                del self._parts[key]
                self._forget_recorded()

    def _forget_recorded(self) -> None:
        self._wait()
        self._recorder = Recorder(can_record(self._totals.device))

    def _wait(self) -> None:
        """Until the GPU is done with what was recorded: only then may that go."""
        if self._sums is not None:
            self._sums.wait()

    def __del__(self) -> None:
        self._wait()


def shapes_of(updates: Sequence[Update]) -> list[Shape]:
    """The shape of each step: few different numbers of nets, so that few different computations are recorded."""
    lengths = np.array([len(each.hands) for each in updates])
    levels = [len(updates)]
    while levels[-1] > 1:
        levels.append(min(levels[-1] - 1, max(1, int(levels[-1] * USEFUL))))
    levels.reverse()
    takes_part = np.arange(lengths[0]) < lengths[:, None]
    sizes = np.zeros(takes_part.shape, dtype=np.intp)
    sizes[takes_part] = np.concatenate([each.hands.sizes for each in updates])
    rows = sizes.max(axis=0)
    filled = np.where(takes_part, sizes, rows).min(axis=0) < rows
    nets = np.array(levels)[np.searchsorted(levels, takes_part.sum(axis=0))]
    return [Shape(*each) for each in zip(nets.tolist(), rows.tolist(), filled.tolist(), strict=True)]


def _mean(sums: OnTheirWay, at: int, steps: int) -> float:
    return float(sums()[at]) / steps


def _member(update: Update) -> Member:
    training = update.training
    return Member(training.net, *training.tensors, update.optimizer, training.steps_of(update.optimizer))


def _loss(place: int, updates: Sequence[Update], part: Part) -> LocalLoss:
    term = _stacked_term(place, updates)
    make = updates[0].make_optimizer
    loss: LocalLoss = lookup("local_loss", term.loss)(term, part, make)
    return loss


def _stacked_term(place: int, updates: Sequence[Update]) -> LocalTerm:
    """The terms of several nets as one: their arrays lie one behind the other."""
    terms = [each.terms.added[place] for each in updates]
    arrays = {}
    for each in dataclasses.fields(terms[0]):
        values = [getattr(term, each.name) for term in terms]
        if isinstance(values[0], Mapping):
            arrays[each.name] = {name: np.stack([value[name] for value in values]) for name in values[0]}
    return dataclasses.replace(terms[0], **arrays)


_cohorts: weakref.WeakValueDictionary[Hashable, Cohort] = weakref.WeakValueDictionary()
"""Kept by the nets that were trained in them last: what was recorded serves their next update."""


def train_together(updates: Sequence[Update]) -> list[UpdateReport | Alone]:
    """Train these, of one kind, in one computation, or in as many as memory or their rows ask for."""
    outcomes: list[UpdateReport | Alone] = [
        Alone("too many of the others' rows would be there to fill up its own")
    ] * len(updates)
    parts = [part for group in cohorts(updates) for part in _shared_out(group, updates)]
    in_places([partial(_train_group, updates, part, place, outcomes) for place, part in enumerate(parts)])
    return outcomes


def parts_of(nets: int, products: float) -> int:
    """In how many parts so many nets are computed on a CPU, each on a core, with so many products of each net.

    On a GPU there is one place, and one part.
    """
    return max(1, min(places_here(), nets // 2, int(nets * products / WORTH_A_CORE)))


def _shared_out(group: list[int], updates: Sequence[Update]) -> list[list[int]]:
    """The nets of a group, shared out among cores; each part begins with those that have the most steps."""
    first = updates[group[0]]
    if first.schedule.device != CPU:
        return [group]
    weights = sum(prod(shape) for _, shape, _ in first.training.shapes)
    n = parts_of(len(group), weights * len(first.every) * float(first.hands.sizes.max()))
    return [group[place::n] for place in range(n)]


def _train_group(updates: Sequence[Update], group: list[int], place: int, outcomes: list[UpdateReport | Alone]) -> None:
    """Train these in one computation, or in smaller ones; who cannot be is left to be trained alone."""
    waiting, gave_back = [group], False
    while waiting:
        group = waiting.pop()
        if len(group) == 1:
            continue
        done: dict[int, UpdateReport] = {}
        is_short = False
        try:
            _train([updates[at] for at in group], done, place)
        except torch.cuda.OutOfMemoryError:
            is_short = True  # no more here: the error has hold of memory
        except ConfigError:  # somebody's rows: they are refused where they were brought
            left = [at for number, at in enumerate(group) if number not in done]
            sound = [at for at in left if _has_sound_rows(updates[at])]
            waiting += [sound] if len(sound) < len(left) else []
        except Exception as error:  # a net of the user's own may do what cannot be done for several at once
            for at in group:
                outcomes[at] = Alone(f"its net cannot be computed with others ({type(error).__name__})")
        for number, report in done.items():
            outcomes[group[number]] = report
        left = [at for number, at in enumerate(group) if number not in done]
        if is_short and left:
            for at in left:
                outcomes[at] = Alone("there is no memory for more than one net")
            if has_room_now([updates[at] for at in left]) and not gave_back:
                gave_back = True
                waiting.append(left)
            else:
                half = (len(left) + 1) // 2
                waiting += [left[:half], left[half:]]
                warn_of_memory(len(left), half)


def has_room_now(updates: Sequence[Update]) -> bool:
    """Whether others gave back memory that they kept; these give back their own, too, which does not count."""
    with turn(updates[0].schedule.device):
        return memory.give_back(but_for=[each.training for each in updates])


def _has_sound_rows(update: Update) -> bool:
    try:
        for each, rows in zip(update.every, update.hands.rows, strict=True):
            each.rows.take(np.unique(rows))
            if isinstance(each, Labelled):
                each.codes(rows)
    except ConfigError:
        return False
    return True


def warn_of_memory(nets: int, half: int) -> None:
    """Say that fewer are trained at a time."""
    text = f"{nets} nets do not fit into the memory of the GPU: {half} are trained at a time."
    warnings.warn(text, CollegiumWarning, stacklevel=3)


def _train(updates: Sequence[Update], done: dict[int, UpdateReport], place: int) -> None:
    device = updates[0].schedule.device
    with turn(device), computing(device, updates[0].schedule.precision), on_side_stream(device, wait=False):
        key = kind_of(updates[0]), len(updates), place
        cohort = _cohort_for(updates, key)
        try:
            cohort.train(updates, done)
        except BaseException:
            _cohorts.pop(key, None)
            raise
        finally:
            cohort.lock.release()


def _cohort_for(updates: Sequence[Update], key: Hashable) -> Cohort:
    """One with room for these, locked: that of their last update, if it was such a one."""
    cohort = _cohorts.get(key)
    if cohort is None or not cohort.lock.acquire(blocking=False):
        cohort = _cohorts[key] = Cohort(updates)
        cohort.lock.acquire()
    for each in updates:
        each.training.keep(cohort)
    return cohort
