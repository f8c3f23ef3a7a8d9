"""The mini-batches of several nets at once, one behind the other.

Where a net's mini-batch has fewer rows than another's, rows that weigh nothing fill it up.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from collegium.learners.torch.batches import Batch, Beside, Labelled, Rows
from collegium.learners.torch.hands import Hands, Indices

CHUNK: Final = 256
"""Steps whose rows are told to a device at a time."""

MOST_VALUES: Final = 2**23
"""Numbers in rows that lie ready for one net: 32 MiB."""


class Fed(NamedTuple):
    """The rows that a net learns from, and which of them make up which mini-batch."""

    hands: Hands
    sets: Sequence[Labelled]
    beside: Beside | None

    @property
    def every(self) -> list[Labelled | Beside]:
        """All sets: those with labels first."""
        return [*self.sets, *([] if self.beside is None else [self.beside])]


class Shape(NamedTuple):
    """What must be alike for steps to be the same computation: nets, rows of each set, whether some weigh nothing."""

    nets: int
    rows: int
    filled: bool


class Feed(Protocol):
    """Mini-batches of several nets, in the order of their steps."""

    def goto(self, step: int) -> None:
        """The next mini-batch is that of this step."""

    def batch(self, shape: Shape) -> tuple[Batch, torch.Tensor | None]:
        """The next one of the first nets; and how many labeled rows of each count, where some do not."""


class HostFeed:
    """Rows are read where they are, a step at a time."""

    def __init__(self, fed: Sequence[Fed], device: torch.device) -> None:
        self._fed, self._device = fed, device
        self._starts = [each.hands.starts for each in fed]
        self._step = -1

    def goto(self, step: int) -> None:
        """The next mini-batch is that of this step."""
        self._step = step

    def batch(self, shape: Shape) -> tuple[Batch, torch.Tensor | None]:
        """The next one of the first nets; and how many labeled rows of each count, where some do not."""
        own = [self._own(at, shape.rows) for at in range(shape.nets)]
        weighted = shape.filled or any(each.weights is not None for fed in self._fed for each in fed.sets)
        soft = [None if each.beside is None else each.beside.targets(hands[-1]) for each, hands, _ in own]
        batch = Batch(
            self._stack([self._rows(each, hands) for each, hands, _ in own]),
            self._stack(
                [_joined([s.codes(h) for s, h in zip(each.sets, hands, strict=False)]) for each, hands, _ in own]
            ),
            self._stack([_weights(each.sets, hands, k) for each, hands, k in own]) if weighted else None,
            None if soft[0] is None else self._stack(soft),
            None if self._fed[0].beside is None else self._stack([hands[-1] for _, hands, _ in own]),
        )
        counts = [float(len(each.sets) * k) for each, _, k in own] if shape.filled else None
        return batch, None if counts is None else torch.tensor(counts, device=self._device)

    def _own(self, at: int, rows: int) -> tuple[Fed, list[Indices], int]:
        """A net's hands, filled up with their first row, and how many rows of each set there are."""
        fed = self._fed[at]
        step = min(self._step, len(fed.hands) - 1)  # one that is done goes on for nobody
        start, k = self._starts[at][step], int(fed.hands.sizes[step])
        hands = [each[start : start + k] for each in fed.hands.rows]
        return fed, [np.concatenate([hand, np.repeat(hand[:1], rows - k)]) for hand in hands], k

    @staticmethod
    def _rows(fed: Fed, hands: Sequence[Indices]) -> NDArray[Any]:
        return _joined([each.rows.take(hand) for each, hand in zip(fed.every, hands, strict=True)])

    def _stack(self, arrays: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(np.stack(arrays)).to(self._device)


class DeviceFeed:
    """All rows are on the device, and a mini-batch is looked up there: only their numbers travel, many steps at a time.

    What it does for a step is the same each time, so that it can be recorded: it counts the steps itself.
    """

    def __init__(self, fed: Sequence[Fed], tables: Tables, steps: int, rows: int) -> None:
        self._tables, self._rows = tables, rows
        device, nets, room = tables.device, len(fed), min(steps, CHUNK)
        self._sets, labelled = len(fed[0].every), len(fed[0].sets)
        self.weighted = any(each.weights is not None for own in fed for each in own.sets)
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        # Rows' numbers, set by set, and then codes: a step takes all of them in one operation.
        self._told = torch.zeros((room, nets, self._sets + labelled, rows), dtype=torch.long, device=device)
        self._weights = torch.zeros((room, nets, labelled, rows), device=device)
        self._counts = torch.ones((room, nets), device=device)
        self._room = room
        self._first = -room

    def serves(self, fed: Sequence[Fed], tables: Tables, steps: int, rows: int) -> bool:
        """Whether it has room for these."""
        weighted = any(each.weights is not None for own in fed for each in own.sets)
        fits = min(steps, CHUNK) <= self._room and rows == self._rows
        return fits and tables is self._tables and weighted == self.weighted

    def begin(self, fed: Sequence[Fed]) -> None:
        """Feed these nets from now on."""
        self._fed = fed
        self._first = -self._room

    def goto(self, step: int) -> None:
        """The next mini-batch is that of this step: call it for every step in turn."""
        if not self._first <= step < self._first + self._room:
            self._first = step
            self._tell(step)
            self._at.zero_()

    def _tell(self, first: int) -> None:
        """Copy the numbers, codes and weights of the rows of the next steps to the device."""
        chunks = [_Chunk(each, first, self._room, self._rows) for each in self._fed]
        for place in range(self._sets):
            own = np.empty((len(chunks), self._room, self._rows), np.int32)  # half as much to copy; by net, as it comes
            for at, (each, start) in enumerate(zip(chunks, self._tables.starts[place], strict=True)):
                np.add(each.numbers[place], start, out=own[at], casting="same_kind")
            self._told[:, :, place].copy_(_there(own, self._told.device).transpose(0, 1))
        labelled = self._weights.shape[2]
        for place in range(labelled):
            self._tell_codes(place, chunks)
        if self.weighted or any(each.is_filled for each in chunks):
            for place in range(labelled):
                _put(self._weights[:, :, place], np.stack([each.weights(place) for each in chunks], axis=1))
            counts = np.stack([each.sizes for each in chunks], axis=1)
            _put(self._counts, np.maximum(1, labelled * counts).astype(np.float32))

    def _tell_codes(self, place: int, chunks: Sequence[_Chunk]) -> None:
        """The codes of rows whose numbers the device has: all codes, looked up there, where that is less to copy."""
        numbers, codes = self._told[:, :, place], self._told[:, :, self._sets + place]
        every = _labels_by_rows([own.sets[place] for own in self._fed])
        if every is None or sum(map(len, every)) > codes.numel():
            _put(codes, np.stack([each.codes(place) for each in chunks], axis=1))
        else:
            table = _there(_joined([each.codes(slice(None)) for each in every]), codes.device)
            codes.copy_(table[numbers])

    def batch(self, shape: Shape) -> tuple[Batch, torch.Tensor | None]:
        """The next one of the first nets; and how many labeled rows of each count, where some do not."""

        def now(values: torch.Tensor) -> torch.Tensor:
            return values.index_select(0, self._at)[0, : shape.nets, ..., : shape.rows]

        told = now(self._told)
        numbers, codes = told[:, : self._sets].unbind(1), told[:, self._sets :].flatten(1)
        X = [table[own] for table, own in zip(self._tables.rows, numbers, strict=True)]
        soft = self._tables.targets
        if soft is not None and self._tables.to_targets is not None:
            soft = soft[numbers[-1] + self._tables.to_targets[: shape.nets]]
        batch = Batch(
            X[0] if len(X) == 1 else torch.cat(X, dim=1),
            codes,
            now(self._weights).flatten(1) if shape.filled or self.weighted else None,
            soft,
            numbers[-1] if self._sets > self._weights.shape[2] else None,
        )
        counts = self._counts.index_select(0, self._at)[0, : shape.nets] if shape.filled else None
        self._at.add_(1)
        return batch, counts


class LaneFeed:
    """Mini-batches of one net after another, which lie on the device ready for many steps at a time.

    A step takes the next one from where it always lies, so that it can be recorded, whoever's rows these are.
    """

    def __init__(self, fed: Fed, device: torch.device) -> None:
        self._rows = _room_for(fed)
        shape = fed.every[0].rows.shape
        of_a_step = len(fed.every) * self._rows * max(1, prod(shape))
        room = self._room = max(1, min(CHUNK, MOST_VALUES // of_a_step))
        numbers = room, self._rows

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._device = device
        self._at = zeros(1, dtype=torch.long)
        self._places = torch.arange(room, device=device)
        self._X = [zeros(*numbers, *shape) for _ in fed.every]
        self._codes = [zeros(*numbers, dtype=torch.long) for _ in fed.sets]
        self._weights = [zeros(*numbers) for _ in fed.sets if _is_weighted(fed)]
        self._beside: torch.Tensor | None = None
        self._soft: torch.Tensor | None = None
        if fed.beside is not None:
            self._beside = zeros(*numbers, dtype=torch.long)
            targets = fed.beside.targets(slice(0, 1))
            self._soft = None if targets is None else zeros(*numbers, targets.shape[1])

    @staticmethod
    def kind_of(fed: Fed) -> Hashable:
        """Equal for nets whose mini-batches can lie in the same place."""
        soft = fed.beside is not None and fed.beside.has_targets
        return fed.every[0].rows.shape, _room_for(fed), len(fed.sets), _is_weighted(fed), fed.beside is not None, soft

    def begin(self, fed: Fed) -> None:
        """Feed this net from now on."""
        self._fed = fed
        self._first = self._end = 0

    def goto(self, step: int) -> None:
        """The next mini-batch is that of this step: call it for every step in turn, or after some that lay ready."""
        if not self._first <= step < self._end:
            steps = min(self._room, len(self._fed.hands) - step)
            self._first, self._end = step, step + steps
            self._lay_ready(_Chunk(self._fed, step, steps, self._rows), steps)
            self._at.zero_()

    @property
    def tables(self) -> list[torch.Tensor]:
        """All rows that it takes mini-batches from."""
        return [self._table(each) for each in self._fed.every]

    def ready(self, step: int) -> int:
        """How many mini-batches lie ready from this step on: no more are looked up at once."""
        return self._end - step

    def values(self, shape: Shape) -> int:
        """How many numbers the rows of such a step have."""
        return len(self._X) * shape.rows * prod(self._X[0].shape[2:])

    def _lay_ready(self, chunk: _Chunk, steps: int) -> None:
        for place, (own, X) in enumerate(zip(self._fed.every, self._X, strict=True)):
            numbers = _there(chunk.numbers[place], self._device)
            torch.index_select(self._table(own), 0, numbers.view(-1), out=X[:steps].view(-1, *X.shape[2:]))
            if isinstance(own, Labelled):
                self._codes[place][:steps] = _there(chunk.codes(place), self._device)
            elif self._beside is not None:
                self._beside[:steps] = numbers
                targets = own.targets(chunk.numbers[place].ravel())
                if self._soft is not None and targets is not None:
                    self._soft[:steps].view(targets.shape).copy_(_there(targets, self._device))
        for place, weights in enumerate(self._weights):
            weights[:steps] = _there(chunk.weights(place), self._device)

    def _table(self, own: Labelled | Beside) -> torch.Tensor:
        kept = own.rows.resident(self._device)
        return own.rows.copy_to(self._device) if kept is None else kept

    def batches(self, shape: Shape, steps: int) -> list[Batch]:
        """The next ones, looked up all at once."""
        at = self._at if steps == 1 else self._at + self._places[:steps]

        def now(values: torch.Tensor) -> torch.Tensor:
            return values.index_select(0, at)[:, : shape.rows]

        def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
            return now(parts[0]) if len(parts) == 1 else torch.cat([now(each) for each in parts], dim=1)

        X = joined(self._X)
        codes = joined(self._codes) if self._codes else torch.zeros((steps, 0), dtype=torch.long, device=self._device)
        weights = joined(self._weights) if self._weights else None
        soft, beside = (None if each is None else now(each) for each in (self._soft, self._beside))
        self._at.add_(steps)
        of_all = (X, codes, weights, soft, beside)
        return [Batch(*(None if each is None else each[step] for each in of_all)) for step in range(steps)]  # type: ignore[arg-type]


def _room_for(fed: Fed) -> int:
    """Rows of a set in a mini-batch, rounded up, so that few different places are needed."""
    return -(-int(fed.hands.sizes.max()) // 8) * 8


def _is_weighted(fed: Fed) -> bool:
    return any(each.weights is not None for each in fed.sets)


class Tables:
    """The rows of all nets on a device: by set, one table for all of them."""

    def __init__(self, fed: Sequence[Fed], device: torch.device) -> None:
        self.device = device
        self.key = self.key_of(fed)
        self._given = [[each.rows for each in own.every] for own in fed]  # so that no other array takes their place
        self.rows: list[torch.Tensor] = []
        self.starts: list[list[int]] = []
        """By set and net: where its rows start."""
        for given in zip(*self._given, strict=True):
            table, starts = _table(given, device)
            self.rows.append(table)
            self.starts.append(starts)
        self.targets: torch.Tensor | None = None
        self.to_targets: torch.Tensor | None = None
        """By net: what to add to the number of a row without label for the number of its targets."""

    def set_targets(self, fed: Sequence[Fed]) -> None:
        """Take the target class probabilities of these nets' rows; they stay in the same place."""
        soft = [own.beside for own in fed if own.beside is not None and own.beside.has_targets]
        if not soft:
            return
        shared = all(each.has_same_targets(soft[0]) for each in soft)
        lengths = [0 if shared else len(each) for each in soft]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) - self.starts[-1]
        values = _joined([each.targets(slice(None)) for each in (soft[:1] if shared else soft)])
        self.targets = _in_place(self.targets, _there(values, self.device))
        self.to_targets = _in_place(self.to_targets, _there(starts[:, None], self.device))

    @staticmethod
    def key_of(fed: Sequence[Fed]) -> Any:
        """Equal for equal rows."""
        return tuple(tuple(each.rows.identity for each in own.every) for own in fed)


def _table(given: Sequence[Rows], device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """All rows, and where those of each net start. Rows that are the same ones are there once."""
    first: dict[int, int] = {}
    distinct: list[Rows] = []
    total = 0
    for rows in given:
        if rows.identity not in first:
            first[rows.identity] = total
            total += len(rows)
            distinct.append(rows)
    starts = [first[rows.identity] for rows in given]
    if len(distinct) == 1 and (resident := distinct[0].resident(device)) is not None:
        return resident, starts
    table = torch.empty((total, *given[0].shape), device=device)
    for rows in distinct:
        rows.copy_into(table[first[rows.identity] : first[rows.identity] + len(rows)])
    return table, starts


def _labels_by_rows(given: Sequence[Labelled]) -> list[Labelled] | None:
    """One of those with the same rows, in the order of `Tables`; None if the same rows have different labels."""
    first: dict[Any, Labelled] = {}
    for each in given:
        if not first.setdefault(each.rows.identity, each).has_labels_of(each):
            return None
    return list(first.values())


class _Chunk:
    """One net's rows in some steps: (steps, rows), with what fills them up."""

    def __init__(self, fed: Fed, first: int, steps: int, rows: int) -> None:
        self._fed = fed
        sizes = fed.hands.sizes[first : first + steps]
        start, total = int(fed.hands.sizes[:first].sum()), int(sizes.sum())
        dealt = [each[start : start + total] for each in fed.hands.rows]
        self.is_filled = total < len(sizes) * rows
        self.sizes = np.zeros(steps, dtype=np.intp)
        self.sizes[: len(sizes)] = sizes
        if total == steps * rows:
            self.numbers = [each.reshape(steps, rows) for each in dealt]
            return
        self._there = np.arange(rows) < self.sizes[:, None]
        self.numbers = [np.zeros((steps, rows), dtype=np.intp) for _ in dealt]
        for place, numbers in zip(self.numbers, dealt, strict=True):
            place[self._there] = numbers

    def codes(self, place: int) -> NDArray[np.int64]:
        return self._fed.sets[place].codes(self.numbers[place])

    def weights(self, place: int) -> NDArray[np.float32]:
        shape = self.numbers[place].shape
        own = self._fed.sets[place].weights_at(self.numbers[place].ravel()).reshape(shape)
        return np.where(self._there, own, np.float32(0)) if self.is_filled else own


def _codes(sets: Sequence[Labelled], hands: Sequence[Indices]) -> NDArray[np.int64]:
    return _joined([each.codes(hand) for each, hand in zip(sets, hands, strict=False)])


def _weights(sets: Sequence[Labelled], hands: Sequence[Indices], k: int) -> NDArray[np.float32]:
    """The weights of a net's labeled rows; those that fill it up have none."""
    own = [each.weights_at(hand) for each, hand in zip(sets, hands, strict=False)]
    for weights in own:
        weights[k:] = 0
    return _joined(own)


def _joined(arrays: Sequence[Any]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _in_place(place: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    return values if place is None or place.shape != values.shape else place.copy_(values)


def _put(place: torch.Tensor, values: NDArray[Any]) -> None:
    place.copy_(_there(values, place.device))  # of another type there, if it is


def _there(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """On the device; Python does not wait for a GPU, but for much, for which locked memory takes long to get."""
    here = torch.from_numpy(values)
    if device.type != "cuda" or here.numel() > MOST_VALUES:
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)
