"""Streams of bits: numbers in any base and increasing places, without a loop over symbols.

Places are written as gaps in a Rice code whose quotients (in unary) and remainders form separate streams.

What is read is not trusted: a `Reader` raises WireError on anything that does not fit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.errors import WireError

Bits: TypeAlias = NDArray[np.uint8]
"""One bit per byte, as a stream is read and written."""
_NEAR: Final = 4
"""How many Rice parameters near the likely one are tried."""
_FEW: Final = 4
"""Symbols in a group, up to which adding them up one by one is faster than a product of matrices."""


# Numbers in base s


@lru_cache(maxsize=64)
def grouping(s: int) -> tuple[int, int]:
    """How many symbols of an alphabet of s to write as one number, and its bits: (k, width)."""
    if s <= 1:
        return 1, 0
    widths = [(k, _width(s, k)) for k in range(1, 64) if s**k <= 1 << 63]
    best = min(width / k for k, width in widths)
    return next((k, width) for k, width in widths if width / k <= 1.005 * best)


def _width(s: int, k: int) -> int:
    return int((s**k - 1).bit_length())


def radix_size(n: int, s: int) -> int:
    """Bits of n symbols; the last group is written with the bits that it needs alone."""
    k, width = grouping(s)
    return n // k * width + _width(s, n % k)


def radix_bits(symbols: NDArray[np.integer[Any]], s: int) -> Bits:
    """Symbols of an alphabet of s, in groups."""
    k, width = grouping(s)
    rest = symbols.size % k
    if rest:  # zeros before its symbols make the last group as long as the others, and are the same number
        whole = symbols.size - rest
        groups = np.zeros((whole // k + 1, k), symbols.dtype)
        groups.reshape(-1)[:whole] = symbols[:whole]
        groups[-1, k - rest :] = symbols[whole:]
    else:
        groups = symbols.reshape(-1, k)
    return _group_bits(groups, s, width)[: radix_size(symbols.size, s)]


def _group_bits(groups: NDArray[np.integer[Any]], s: int, width: int) -> Bits:
    if groups.shape[1] > _FEW:
        return _to_bits(groups.astype("<u8") @ _powers(s, groups.shape[1])[::-1], width)
    dtype = np.dtype("<u4" if width <= 32 else "<u8")
    numbers = np.zeros(len(groups), dtype)
    for column in groups.T:
        numbers *= dtype.type(s)
        numbers += column.astype(dtype)
    return _to_bits(numbers, width)


@lru_cache(maxsize=64)
def _powers(base: int, n: int) -> NDArray[np.uint64]:
    """Of a base, from 0 on: the last one fits 64 bits."""
    return np.array([base**exponent for exponent in range(n)], "<u8")


def _to_bits(numbers: NDArray[np.unsignedinteger[Any]], width: int) -> Bits:
    if width < 2:
        return numbers.astype(np.uint8) if width else np.empty(0, np.uint8)
    rows = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize)
    return np.unpackbits(rows, axis=1, count=width, bitorder="little").ravel()


# Places: gaps in a Rice code


def write_places(places: NDArray[np.integer[Any]]) -> tuple[int, NDArray[np.uint8], list[Bits]]:
    """Increasing places as their Rice parameter, and remainders and quotients: whole bytes, and the bits after them.

    In as few operations as possible: places are few, and each operation finds the caches full of something else.
    """
    if not places.size:
        return 0, np.empty(0, np.uint8), []
    gaps = places.astype(np.int32)
    gaps[1:] -= gaps[:-1] + np.int32(1)
    rice, quotients = _best_rice(gaps, int(places[-1]) + 1 - places.size)
    ones = np.cumsum(quotients + np.int32(1), dtype=np.intp)
    unary = np.zeros(int(ones[-1]) + 1, np.uint8)
    unary[ones] = 1
    in_bytes, remainders = _split(gaps & np.int32((1 << rice) - 1), rice)
    return rice, in_bytes, [remainders, unary[1:]]


def _split(numbers: NDArray[np.int32], width: int) -> tuple[NDArray[np.uint8], Bits]:
    """Numbers of so many bits: as many as fill whole bytes, and the bits of the others."""
    if not 0 < width < 8:
        return np.empty(0, np.uint8), _to_bits(numbers.astype("<u4"), width)
    whole = numbers.size - numbers.size % 8  # eight of them fill `width` bytes, and are one number of 64 bits
    eights = numbers[:whole].reshape(-1, 8).astype("<u8") @ _powers(1 << width, 8)
    in_bytes = eights.view(np.uint8).reshape(-1, 8)[:, :width].ravel()
    return in_bytes, _to_bits(numbers[whole:].astype("<u4"), width)


def _steps(places: NDArray[Any]) -> NDArray[Any]:
    """From each place to the next, the first from -1. (np.diff takes several times as long for as few as there are.)"""
    steps = places.copy()
    steps[1:] -= places[:-1]
    steps[:1] += 1
    return steps


def _best_rice(gaps: NDArray[np.int32], total: int) -> tuple[int, NDArray[np.int32]]:
    """The parameter that takes fewest bits, and the quotients by it; `total` is the sum of the gaps."""
    # The cost, size * (1 + r) + sum(gaps >> r), is convex in r: it falls until a bit more saves too little, which is
    # somewhere near the mean. All of those near it are tried at once.
    first = max(0, (total // gaps.size).bit_length() - 3)
    quotients = gaps >> np.arange(first, first + _NEAR, dtype=np.int32)[:, None]
    # Their sums are less than the number of places, and fit 32 bits.
    sums: list[int] = np.add.reduce(quotients, axis=1, dtype=np.int32).tolist()
    rice = next((i for i in range(_NEAR - 1) if sums[i] - sums[i + 1] <= gaps.size), None)
    if rice is None or (rice == 0 and first > 0):  # further away: never seen, but nothing rules it out
        costs = [gaps.size * r + int(np.add.reduce(gaps >> np.int32(r), dtype=np.int64)) for r in range(31)]
        rice = costs.index(min(costs))
        return rice, gaps >> np.int32(rice)
    return first + rice, quotients[rice]


class Reader:
    """Reads a stream of bits that may be anything."""

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._bits: Bits = np.unpackbits(content, bitorder="little")
        self._at = 0

    def close(self) -> None:
        """All must have been read, but for the zeros that fill up the last byte."""
        rest = self._bits[self._at :]
        if rest.size > 7 or rest.any():
            raise WireError("Packed labels have bytes after their end.")

    def radix(self, n: int, s: int) -> NDArray[np.int32]:
        """n symbols of an alphabet of s."""
        k, width = grouping(s)
        symbols = np.empty(n, np.int32)
        whole = n - n % k
        self._groups(symbols[:whole].reshape(-1, k), s, width)
        self._groups(symbols[whole:].reshape(1, -1), s, _width(s, n % k))
        return symbols

    def _groups(self, out: NDArray[np.int32], s: int, width: int) -> None:
        numbers = self._numbers(len(out), width)
        if numbers.size and int(numbers.max()) >= s ** out.shape[1]:
            raise WireError("Packed labels hold an invalid symbol.")
        for column in reversed(out.T):
            quotient = numbers // numbers.dtype.type(s)
            column[:] = numbers - quotient * numbers.dtype.type(s)
            numbers = quotient

    def places(self, n: int, count: int, rice: int) -> NDArray[np.int64]:
        """Increasing places below n, as many as `count`, written with that Rice parameter."""
        if not (0 <= count <= min(n, self._bits.size - self._at) and 0 <= rice <= 30):
            raise WireError("The header of packed labels declares invalid places.")
        remainders = self._numbers(count, rice).astype(np.int64)
        longest = count + ((n - count) >> rice)
        ends = np.flatnonzero(self._bits[self._at : self._at + longest])[:count].astype(np.int64)
        if ends.size < count:
            raise WireError("Packed labels are too short.")
        if count:
            self._at += int(ends[-1]) + 1
        quotients = _steps(ends) - 1
        places: NDArray[np.int64] = np.cumsum((quotients << rice) + remainders + 1) - 1
        if count and places[-1] >= n:
            raise WireError("Packed labels name a place past their end.")
        return places

    def _numbers(self, count: int, width: int) -> NDArray[np.unsignedinteger[Any]]:
        bits = self._bits[self._at : self._at + count * width]
        if bits.size < count * width:
            raise WireError("Packed labels are too short.")
        self._at += bits.size
        dtype = np.dtype("<u4" if width <= 32 else "<u8")
        rows = np.zeros((count, dtype.itemsize), np.uint8)
        if width:
            packed = np.packbits(bits.reshape(count, width), axis=1, bitorder="little")
            rows[:, : packed.shape[1]] = packed
        return rows.view(dtype).ravel()
