"""Counting the votes of very many sites, and choosing the winners.

Votes are added one site at a time, so that only the counts are held, never all labels at once. All
loops run over chunks of samples that stay in a core's own cache.

Ties are broken by lot, but the lot is drawn once and for all: every sample has a random ranking of
the classes, fixed by the seed and the sample's index, and of the tied classes the one ranked first
wins. A tie that persists over rounds therefore keeps its winner instead of flipping at every round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype

_CHUNK: Final = 1 << 16
_MATCHES: Final = 1 << 18
"""Bytes of a chunk's matches with every class."""


class Tally:
    """Votes per class and sample, summed site by site.

    Parameters
    ----------
    n_samples, n_classes:
        Size of the public set and number of classes.
    voters:
        The most sites that will be added. It sets the width of the counts: one byte up to 255
        voters, two up to 65,535, four beyond.
    """

    def __init__(self, n_samples: int, n_classes: int, voters: int) -> None:
        if n_samples < 0 or n_classes < 1 or voters < 0:
            raise ValueError("A tally needs at least one class; samples and voters cannot be negative.")
        width = np.uint8 if voters <= 0xFF else np.uint16 if voters <= 0xFFFF else np.uint32
        self._counts: NDArray[np.unsignedinteger[Any]] = np.zeros((n_classes, n_samples), width)
        self._match = np.empty((n_classes, min(n_samples, max(1, _MATCHES // n_classes))), np.bool_)
        self._voters = voters
        self._added = 0
        self._approvals = False

    @property
    def counts(self) -> NDArray[np.unsignedinteger[Any]]:
        """Votes so far, of shape (n_classes, n_samples); a read-only view, not a copy."""
        view = self._counts.view()
        view.flags.writeable = False
        return view

    @property
    def added(self) -> int:
        """How many sites were added."""
        return self._added

    def add(self, labels: NDArray[np.integer[Any]]) -> None:
        """Add one site's labels: a class code per sample, -1 where the site abstains."""
        n_classes, n_samples = self._counts.shape
        labels = np.asarray(labels)
        if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
            raise ValueError(f"Labels must be {n_samples} integer codes.")
        self._make_room(approvals=False)
        if n_samples and (labels.min() < -1 or labels.max() >= n_classes):
            raise ValueError(f"Labels must lie in -1 .. {n_classes - 1}.")
        classes = np.arange(n_classes, dtype=code_dtype(n_classes))[:, None]
        for part in _chunks(n_samples, max(1, _MATCHES // n_classes)):
            codes = labels[part].astype(classes.dtype, copy=False)
            # Two operations for all classes: threads that work beside this one get Python's lock at each.
            equal = np.equal(codes, classes, out=self._match[:, : codes.size])
            counts = self._counts[:, part]
            np.add(counts, equal.view(np.uint8), out=counts)
        self._added += 1

    def add_approvals(self, bits: NDArray[np.bool_]) -> None:
        """Add one site's approvals, of shape (n_samples, n_classes): any number of classes per sample.

        A tally counts labels or approvals, never both: their quorums are different things.
        """
        bits = np.asarray(bits)
        if bits.shape != self._counts.shape[::-1] or bits.dtype != np.bool_:
            raise ValueError(f"Approvals must be truth values of shape {self._counts.shape[::-1]}.")
        self._make_room(approvals=True)
        for part in _chunks(len(bits)):
            self._counts[:, part] += bits[part].T
        self._added += 1

    def add_counts(self, counts: NDArray[np.unsignedinteger[Any]], voters: int, *, approvals: bool) -> None:
        """Add the sum of that many sites' labels or approvals, of shape (n_classes, n_samples)."""
        if counts.shape != self._counts.shape or counts.dtype.kind != "u":
            raise ValueError(f"Counts must be whole numbers of shape {self._counts.shape}.")
        self._make_room(approvals, voters)
        self._counts += counts.astype(self._counts.dtype)
        self._added += voters

    def _make_room(self, approvals: bool, voters: int = 1) -> None:
        if self._added + voters > self._voters:
            raise ValueError(f"This tally is for {self._voters} voters; there is no room for one more.")
        if self._added and self._approvals != approvals:
            raise ValueError("A tally counts labels or approvals, not both.")
        self._approvals = approvals

    def winning_shares(self) -> NDArray[np.float64]:
        """The share of the votes cast that the class with most votes has, per sample; 0 where nobody voted."""
        shares = np.zeros(self._counts.shape[1])
        for part in _chunks(len(shares)):
            counts = self._counts[:, part]
            # Approvals may be more than voters; votes are not, and their sum fits the counts' own type.
            cast = counts.sum(axis=0, dtype=np.int64 if self._approvals else counts.dtype)
            np.divide(counts.max(axis=0), np.maximum(cast, 1), out=shares[part], dtype=np.float64)
        return shares

    def winners(self, seed: int, quorum: float = 0.0) -> Codes:
        """The class with most votes, per sample.

        It is -1 where nobody voted, and where the winner has less than the share `quorum` of the
        votes cast on that sample. Of approvals a site may give several or none: there, `quorum` is
        the share of all sites added that approve of the winner. Ties are broken as the function
        :func:`winners` does.
        """
        if not 0.0 <= quorum <= 1.0:
            raise ValueError(f"quorum must be between 0 and 1, got {quorum}.")
        # The small slack keeps 0.55 of 100 at 55 votes: in floating point the product is a little more.
        needed = np.ceil(quorum * np.arange(self._added + 1) - 1e-9)
        won = winners(self._counts, seed)
        for part in _chunks(won.size if quorum > 0.0 else 0):
            counts = self._counts[:, part]
            # A sample has at most as many votes as voters: the sum fits the counts' own type.
            cast = self._added if self._approvals else counts.sum(axis=0, dtype=counts.dtype)
            won[part][counts.max(axis=0) < needed[cast]] = -1
        return won


def winners(scores: NDArray[np.floating[Any]] | NDArray[np.integer[Any]], seed: int) -> Codes:
    """The class with the highest score, per sample; scores have shape (n_classes, n_samples).

    Classes with exactly equal scores are tied. Each sample has a random ranking of the classes that
    depends on `seed` and the sample's index alone, and the tied class that comes first in it wins:
    every tied class is equally likely, and repeated calls agree. A sample whose scores are all 0
    had no votes: its winner is -1.
    """
    if scores.ndim != 2 or not len(scores) or scores.dtype.kind not in "iuf":
        raise ValueError("Scores must be a numeric array of shape (n_classes, n_samples).")
    won: Codes = np.empty(scores.shape[1], code_dtype(scores.shape[0]))
    for part in _chunks(won.size, max(_CHUNK // 16, 8 * _CHUNK // (len(scores) * scores.itemsize))):
        block = scores[:, part]
        best = block.max(axis=0)
        if best.dtype.kind == "f" and np.isnan(best).any():
            raise ValueError("Scores must not be NaN.")
        silent = best == 0
        if scores.dtype.kind != "u":
            silent &= block.min(axis=0) == 0
        won[part] = _choose(block, best, ~silent, part.start, seed)
        won[part][silent] = -1
    return won


def _chunks(n: int, size: int = _CHUNK) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _choose(scores: NDArray[Any], best: NDArray[Any], voted: NDArray[np.bool_], start: int, seed: int) -> Codes:
    """Class of the best score in each column; the first column is sample number `start`."""
    chosen: Codes = np.zeros(best.size, code_dtype(len(scores)))
    own: Codes = np.empty_like(chosen)
    is_best = np.empty(best.size, np.bool_)
    seen = np.zeros(best.size, np.bool_)
    tied = np.zeros(best.size, np.bool_)
    for code, row in enumerate(scores):
        np.equal(row, best, out=is_best)
        tied |= is_best & seen
        seen |= is_best
        # Of tied classes the last: arithmetic is several times as fast as assigning where a mask is true.
        np.multiply(is_best.view(np.int8), chosen.dtype.type(code), out=own)
        np.maximum(chosen, own, out=chosen)
    where = np.flatnonzero(tied & voted)
    if where.size:
        chosen[where] = _draw(scores, best, where, start, seed)
    return chosen


def _draw(scores: NDArray[Any], best: NDArray[Any], where: NDArray[np.intp], start: int, seed: int) -> Codes:
    """Of the classes with the best score, the one ranked first, in the columns `where`."""
    seed_key = _mix(np.array([seed & 0xFFFF_FFFF_FFFF_FFFF], np.uint64))
    keys = _mix(seed_key + (where + start).astype(np.uint64))
    drawn: Codes = np.zeros(where.size, code_dtype(len(scores)))
    highest = np.zeros(where.size, np.uint64)
    for code, row in enumerate(scores):
        at = np.flatnonzero(row[where] == best[where])
        rank = _mix(keys[at] + np.uint64(code))
        higher = rank >= highest[at]
        at = at[higher]
        highest[at] = rank[higher]
        drawn[at] = code
    return drawn


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: each input to a well scrambled 64-bit number."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
