"""Streams of bits: numbers in any base, increasing places, and Huffman codes, without a loop over symbols.

Places are written as gaps in a Rice code whose quotients (in unary) and remainders form separate streams. A Huffman
code is written one bit plane after the other (the first bits of all symbols, then the second bits of those that have
one, ...): each plane is again a set of places, so that less than one bit per symbol is within reach.

What is read is not trusted: a `Reader` raises WireError on anything that does not fit.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.errors import WireError

Bits: TypeAlias = NDArray[np.uint8]
"""One bit per byte, as a stream is read and written."""

MAX_PLANES: Final = 60  # 2^30 symbols cannot give a longer Huffman code


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


def radix_bits(symbols: NDArray[np.int32], s: int) -> Bits:
    """Symbols of an alphabet of s, in groups."""
    k, width = grouping(s)
    whole = symbols.size - symbols.size % k
    rest = symbols[whole:]
    groups = _group_bits(symbols[:whole].reshape(-1, k), s, width)
    return np.concatenate([groups, _group_bits(rest.reshape(1, -1), s, _width(s, rest.size))])


def _group_bits(groups: NDArray[np.int32], s: int, width: int) -> Bits:
    dtype = np.dtype("<u4" if width <= 32 else "<u8")
    numbers = np.zeros(len(groups), dtype)
    for column in groups.T:
        numbers *= dtype.type(s)
        numbers += column.astype(dtype)
    return _to_bits(numbers, width)


def _to_bits(numbers: NDArray[np.unsignedinteger[Any]], width: int) -> Bits:
    if not width:
        return np.empty(0, np.uint8)
    rows = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize)
    return np.unpackbits(rows, axis=1, count=width, bitorder="little").ravel()


# Places: gaps in a Rice code


def write_places(places: NDArray[np.int32]) -> tuple[str, list[Bits]]:
    """Increasing places as "number,Rice parameter" and the bits of remainders and quotients."""
    if not places.size:
        return "0,0", []
    gaps = np.diff(places, prepend=np.int32(-1)) - np.int32(1)
    rice = _best_rice(gaps)
    quotients = gaps >> np.int32(rice)
    ends = np.cumsum(quotients + np.int32(1), dtype=np.int32) - np.int32(1)
    unary = np.zeros(int(ends[-1]) + 1, np.uint8)
    unary[ends] = 1
    remainders = _to_bits((gaps & np.int32((1 << rice) - 1)).astype("<u4"), rice)
    return f"{places.size},{rice}", [remainders, unary]


def _best_rice(gaps: NDArray[np.int32]) -> int:
    # The cost, size * (1 + r) + sum(gaps >> r), is convex in r: stop where it no longer falls.
    rice, total = 0, int(gaps.sum(dtype=np.int64))
    while True:
        gaps = gaps >> np.int32(1)
        halved = int(gaps.sum(dtype=np.int64))
        if total - halved <= gaps.size:
            return rice
        rice, total = rice + 1, halved


# Huffman codes in bit planes


def huffman_levels(counts: NDArray[np.integer[Any]]) -> list[list[int]]:
    """Symbols by the length of their Huffman code, 1, 2, ...; a lone symbol has no bits at all."""
    # Frequent symbols come first within a level, so that the ones of a plane are never by far the majority.
    symbols = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    heap = [(int(counts[symbol]), node) for node, symbol in enumerate(symbols)]
    heapq.heapify(heap)
    parent = [0] * (2 * len(symbols) - 1)
    for node in range(len(symbols), len(parent)):
        weight, least = heapq.heappop(heap)
        second_weight, second = heap[0]
        parent[least] = parent[second] = node
        heapq.heapreplace(heap, (weight + second_weight, node))
    depth = [0] * len(parent)
    for node in range(len(parent) - 2, -1, -1):
        depth[node] = depth[parent[node]] + 1
    levels: list[list[int]] = [[] for _ in range(max(*depth, 1))]
    for node, symbol in enumerate(symbols):
        levels[max(depth[node], 1) - 1].append(symbol)
    return levels


def write_planes(symbols: NDArray[np.int32], levels: list[list[int]], s: int) -> tuple[list[str], list[Bits]]:
    """Symbols in the code of `huffman_levels`: what each plane's header says, and the bits."""
    if _is_lone(levels):
        return [], []
    plane_bits = _plane_bits(levels, s)
    lengths = np.zeros(s, np.uint8)
    for number, level in enumerate(levels):
        lengths[level] = number + 1
    planes: list[str] = []
    coded: list[Bits] = []
    for number in range(len(levels)):
        plane, bits = write_places(np.flatnonzero(plane_bits[number][symbols]).astype(np.int32))
        planes.append(plane)
        coded += bits
        symbols = symbols[lengths[symbols] > number + 1]
    return planes, coded


def _plane_bits(levels: list[list[int]], s: int) -> NDArray[np.bool_]:
    """Bit of each symbol in each plane: at every level the leaves come first, then the inner nodes."""
    bits = np.zeros((len(levels), s), np.bool_)
    for number, level in enumerate(levels):
        node = np.arange(len(level))
        for above in range(number, -1, -1):
            bits[above, level] = node & 1
            node = (node >> 1) + (len(levels[above - 1]) if above else 0)
    return bits


def read_table(table: str, s: int) -> list[list[int]]:
    """Symbols by the length of their code. Each occurs once, and together they form a complete code."""
    levels = [numbers(level) if level else [] for level in table.split("/", MAX_PLANES)]
    symbols = [symbol for level in levels for symbol in level]
    if len(set(symbols)) < len(symbols) or not all(symbol < s for symbol in symbols):
        raise WireError("The table of a label code names a symbol twice, or one that cannot be.")
    nodes = 1
    for level in levels:
        nodes = 2 * nodes - len(level)
    if nodes and not _is_lone(levels):
        raise WireError("The table of a label code is not that of a complete code.")
    return levels


def _is_lone(levels: list[list[int]]) -> bool:
    return [len(level) for level in levels] == [1]


def numbers(text: str) -> list[int]:
    """Numbers between commas, of at most ten digits."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise WireError("The header of labels holds something else than numbers.")
    return [int(part) for part in parts]


class Reader:
    """Reads a stream of bits that may be anything."""

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._bits: Bits = np.unpackbits(content, bitorder="little")
        self._at = 0

    def close(self) -> None:
        """All must have been read, but for the zeros that fill up the last byte."""
        rest = self._bits[self._at :]
        if rest.size > 7 or rest.any():
            raise WireError("The content of labels goes on after its end.")

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
            raise WireError("The content of labels holds a symbol that cannot be.")
        for column in reversed(out.T):
            quotient = numbers // numbers.dtype.type(s)
            column[:] = numbers - quotient * numbers.dtype.type(s)
            numbers = quotient

    def places(self, n: int, plane: list[int]) -> NDArray[np.int64]:
        """Increasing places below n, from a plane's number of places and Rice parameter."""
        if len(plane) != 2 or plane[0] > min(n, self._bits.size - self._at) or plane[1] > 30:
            raise WireError("The header of labels tells of places that cannot be.")
        count, rice = plane
        remainders = self._numbers(count, rice).astype(np.int64)
        longest = count + ((n - count) >> rice)
        ends = np.flatnonzero(self._bits[self._at : self._at + longest])[:count].astype(np.int64)
        if ends.size < count:
            raise WireError("The content of labels is too short.")
        if count:
            self._at += int(ends[-1]) + 1
        quotients = np.diff(ends, prepend=-1) - 1
        places: NDArray[np.int64] = np.cumsum((quotients << rice) + remainders + 1) - 1
        if count and places[-1] >= n:
            raise WireError("The content of labels names a place past their end.")
        return places

    def huffman(self, n: int, levels: list[list[int]], planes: list[list[int]]) -> NDArray[np.int32]:
        """n symbols, in as many planes as the code has levels."""
        if len(planes) != (0 if _is_lone(levels) else len(levels)):
            raise WireError("The header of labels does not have the planes of its code.")
        if _is_lone(levels):
            return np.full(n, levels[0][0], np.int32)
        symbols = np.empty(n, np.int32)
        active, node = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
        for level, plane in zip(levels, planes, strict=True):
            node <<= 1
            node[self.places(node.size, plane)] += 1
            leaf = node < len(level)
            symbols[active[leaf]] = np.array(level, np.int32)[node[leaf]]
            active, node = active[~leaf], node[~leaf] - np.int32(len(level))
        return symbols

    def _numbers(self, count: int, width: int) -> NDArray[np.unsignedinteger[Any]]:
        bits = self._bits[self._at : self._at + count * width]
        if bits.size < count * width:
            raise WireError("The content of labels is too short.")
        self._at += bits.size
        dtype = np.dtype("<u4" if width <= 32 else "<u8")
        rows = np.zeros((count, dtype.itemsize), np.uint8)
        if width:
            packed = np.packbits(bits.reshape(count, width), axis=1, bitorder="little")
            rows[:, : packed.shape[1]] = packed
        return rows.view(dtype).ravel()
