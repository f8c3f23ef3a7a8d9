"""The rows of all mini-batches of one update, dealt at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]


class Deck:
    """Deals the numbers 0 to n-1 in random order, and reshuffles when all have been dealt."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._n = n
        self._order: Indices = rng.permutation(n)
        self.left = n
        """How many numbers come before the next shuffle."""

    def __len__(self) -> int:
        return self._n

    def deal(self, k: int) -> Indices:
        """The next k numbers; a hand may reach into the next shuffle."""
        start = self._n - self.left
        if k <= self.left:
            self.left -= k
            return self._order[start : start + k]
        first, more = self._order[start:], k - self.left
        shuffles = -(-more // self._n)
        self.left = shuffles * self._n - more
        if shuffles == 1:
            self._order = self._rng.permutation(self._n)
            return np.concatenate([first, self._order[:more]])
        # The same draws as one permutation after the other, and quicker.
        orders = self._rng.permuted(np.tile(np.arange(self._n), (shuffles, 1)), axis=1)
        self._order = orders[-1].copy()
        return np.concatenate([first, orders.ravel()[:more]])

    def restart(self) -> None:
        """Shuffle now if some numbers have been dealt, so that the next n are all the numbers."""
        if self.left < self._n:
            self._shuffle()

    def _shuffle(self) -> None:
        self._order = self._rng.permutation(self._n)
        self.left = self._n


@dataclass(frozen=True)
class Hands:
    """Which rows of each set make up each mini-batch."""

    sizes: Indices
    """Rows of each set in each mini-batch."""
    rows: Sequence[Indices]
    """By set: the rows of all mini-batches, one after the other."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def starts(self) -> Indices:
        """Where the rows of each mini-batch start."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.intp)


def deal_steps(decks: Sequence[Deck], size: int, steps: int) -> Hands:
    """So many mini-batches of one size."""
    return Hands(np.full(steps, size, dtype=np.intp), _deal(decks, [size] * steps))


def deal_sweeps(decks: Sequence[Deck], size: int, epochs: int) -> Hands:
    """So many sweeps over the largest deck, which is shuffled before each; smaller decks are repeated."""
    largest = max(map(len, decks))
    sizes = sweep(largest, size)
    dealt: list[list[Indices]] = []
    for _ in range(epochs):
        for deck in decks:
            if len(deck) == largest:
                deck.restart()
        dealt.append(_deal(decks, sizes))
    rows = [np.concatenate(each) for each in zip(*dealt, strict=True)]
    return Hands(np.array(sizes * epochs, dtype=np.intp), rows)


def sweep(n: int, size: int) -> list[int]:
    """Batch sizes that sum to n. A single last row joins the previous batch: batch norm needs two."""
    full, rest = divmod(n, size)
    sizes = [size] * full
    if rest == 1 and full:
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _deal(decks: Sequence[Deck], sizes: Sequence[int]) -> list[Indices]:
    """A hand from every deck for each mini-batch in turn: decks share a generator, so the order of shuffles counts.

    As long as one deck at most is shuffled, many hands are one.
    """
    hands: list[list[Indices]] = [[] for _ in decks]
    at = 0
    while at < len(sizes):
        lefts = sorted(deck.left for deck in decks)
        room = lefts[1] if len(lefts) > 1 else sum(sizes)
        k = sizes[at]
        at += 1
        while at < len(sizes) and k + sizes[at] <= room:
            if sizes[at] == sizes[-1]:  # and so are all in between, of which there may be many
                many = min(len(sizes) - at, (room - k) // sizes[at])
                k, at = k + many * sizes[at], at + many
                break
            k, at = k + sizes[at], at + 1
        for hand, deck in zip(hands, decks, strict=True):
            hand.append(deck.deal(k))
    return [np.concatenate(each) for each in hands]
