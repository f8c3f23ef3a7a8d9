"""One label per public sample, in few bytes.

A label is a class code 0 .. C-1, or -1 for none. Two codes exist, and the smaller one is used:

* plain: groups of k symbols are read as one number in base S and written with the fewest bits
  (S = C, or C + 1 when -1 occurs). This costs log2(S) bits per label and at most 5 % more.
* diff: against a reference that both sides know, the places that differ and by how much they differ.
  This costs about the entropy of the differences, and nothing at all when nothing differs.

The places are written as gaps in a Rice code whose quotients (in unary) and remainders form separate
streams of bits, so that numpy reads and writes them without a loop over symbols. The differences are
packed like plain symbols, or in a Huffman code of the frequent ones where that is smaller. A Huffman code
is written one bit plane after the other (the first bits of all symbols, then the second bits of those that
have one, ...): each plane is again a set of places, so that less than one bit per symbol is within reach.

The header says how the content is to be read. Neither is trusted: `decode` raises WireError on anything
that does not fit, and allocates no more than labels of the size that the content can hold.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype
from collegium.errors import WireError

Header: TypeAlias = dict[str, int | str]
Bits: TypeAlias = NDArray[np.uint8]
"""One bit per byte, as a stream is read and written."""

_MAX: Final = (1 << 30) - 1  # of classes and of labels: sums of two still fit 32 bits
_MAX_FREE: Final = 1 << 26  # labels of a single class cost no bytes, so only the header tells how many
_MAX_ALPHABET: Final = 1 << 16  # for a Huffman code
_OTHER: Final = 0  # in a table, stands for all differences that are not listed: none of them is 0
_ENTRY_PRICE: Final = 4  # bits of content that one more character in the header must save
_MAX_PLANES: Final = 60  # 2^30 symbols cannot give a longer Huffman code
_CHUNK: Final = 1 << 12  # of bytes per bit of a group: a plain chunk is 8 * _CHUNK groups


def encode(
    labels: NDArray[np.integer[Any]], n_classes: int, reference: NDArray[np.integer[Any]] | None = None
) -> tuple[Header, NDArray[np.uint8]]:
    """Write labels (-1 .. n_classes - 1) as a header of plain JSON values and a content of bytes.

    With a `reference`, labels of the same length that the reader also has, the difference is written
    where that is smaller.
    """
    problem = _problem(labels, n_classes)
    if problem is None and reference is not None:
        problem = _problem(reference, n_classes)
        if problem is None and reference.shape != labels.shape:
            problem = "Labels and reference differ in length."
    if problem:
        raise ValueError(problem)
    s = n_classes + int(_abstains(labels))
    if reference is not None:
        difference = _encode_difference(labels, reference, n_classes)
        if difference[1].size < _bytes(_radix_size(labels.size, s)):
            return difference
    return {"code": "plain", "n": labels.size, "s": s}, _encode_plain(labels, s, s - n_classes)


def decode(
    header: Mapping[str, object],
    content: NDArray[np.uint8],
    n_classes: int,
    reference: NDArray[np.integer[Any]] | None = None,
) -> Codes:
    """Read what `encode` wrote, with the same `n_classes` and `reference`; WireError if it does not fit."""
    if not 1 <= n_classes <= _MAX:
        raise WireError(f"Labels of {n_classes} classes cannot be read.")
    if content.dtype != np.uint8 or content.ndim != 1:
        raise WireError("The content of labels must be a row of bytes.")
    n, s = _integer(header, "n"), _integer(header, "s")
    if s - n_classes not in (0, 1):
        raise WireError("The header of labels names a number of symbols that cannot be.")
    if header.get("code") == "plain":
        return _decode_plain(content, n, s, n_classes)
    if header.get("code") == "diff":
        if reference is None:
            raise WireError("The labels are a difference from others that are missing here.")
        if reference.shape != (n,) or _problem(reference, n_classes) or (s == n_classes and _abstains(reference)):
            raise WireError("The labels are a difference from others than those given.")
        return _decode_difference(header, content, s, n_classes, reference)
    raise WireError("The code of the labels is unknown.")


def _problem(labels: NDArray[np.integer[Any]], n_classes: int) -> str | None:
    if not 1 <= n_classes <= _MAX:
        return f"n_classes must lie in 1 .. {_MAX}, not {n_classes}."
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size > _MAX:
        return f"Labels must be a row of at most {_MAX} integer codes."
    if labels.size and (labels.min() < -1 or labels.max() >= n_classes):
        return f"Labels must lie in -1 .. {n_classes - 1}."
    return None


def _abstains(labels: NDArray[np.integer[Any]]) -> bool:
    return bool(labels.size and labels.min() < 0)


def _integer(header: Mapping[str, object], key: str) -> int:
    value = header.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"The header of labels lacks a count {key!r}.")
    return value


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


# ---------------------------------------------------------------- plain


def _encode_plain(labels: NDArray[np.integer[Any]], s: int, offset: int) -> NDArray[np.uint8]:
    content = np.empty(_bytes(_radix_size(labels.size, s)), np.uint8)
    for symbols, packed in _plain_chunks(labels.size, s):
        content[packed] = np.packbits(_radix_bits(labels[symbols].astype(np.int32) + offset, s), bitorder="little")
    return content


def _decode_plain(content: NDArray[np.uint8], n: int, s: int, n_classes: int) -> Codes:
    if content.size != _bytes(_radix_size(n, s)) or (s == 1 and n > _MAX_FREE):
        raise WireError("The content of the labels does not have the size that the header tells.")
    labels: Codes = np.empty(n, code_dtype(n_classes))
    for symbols, packed in _plain_chunks(n, s):
        reader = _Reader(content[packed])
        labels[symbols] = reader.radix(symbols.stop - symbols.start, s) - (s - n_classes)
        reader.close()
    return labels


def _plain_chunks(n: int, s: int) -> Iterator[tuple[slice, slice]]:
    """Slices of symbols and of the bytes they take; every chunk but the last fills whole bytes."""
    k, width = _grouping(s)
    for chunk, start in enumerate(range(0, n, 8 * k * _CHUNK)):
        stop = min(start + 8 * k * _CHUNK, n)
        first = chunk * width * _CHUNK
        yield slice(start, stop), slice(first, first + _bytes(_radix_size(stop - start, s)))


# ---------------------------------------------------------------- difference


def _encode_difference(
    labels: NDArray[np.integer[Any]], reference: NDArray[np.integer[Any]], n_classes: int
) -> tuple[Header, NDArray[np.uint8]]:
    s = n_classes + int(_abstains(labels) or _abstains(reference))
    changed = np.flatnonzero(labels != reference).astype(np.int32)
    # The labels and not the symbols may be subtracted: the offset between them cancels.
    differences = (labels[changed].astype(np.int32) - reference[changed].astype(np.int32)) % np.int32(s)
    plane, bits = _write_places(changed)
    table, planes, coded = _write_differences(differences, s)
    header: Header = {"code": "diff", "n": labels.size, "s": s, "planes": " ".join([plane, *planes])}
    if table:
        header["table"] = table
    return header, np.packbits(np.concatenate([*bits, *coded]), bitorder="little")


def _decode_difference(
    header: Mapping[str, object],
    content: NDArray[np.uint8],
    s: int,
    n_classes: int,
    reference: NDArray[np.integer[Any]],
) -> Codes:
    if content.size > _bytes(_radix_size(reference.size, s)):
        raise WireError("A difference of labels is longer than the labels themselves.")
    planes, table = header.get("planes"), header.get("table", "")
    if not isinstance(planes, str) or not isinstance(table, str):
        raise WireError("The header of labels lacks its planes.")
    first, *others = [_numbers(plane) for plane in planes.split(" ", _MAX_PLANES + 1)]
    reader = _Reader(content)
    changed = reader.places(reference.size, first)
    if table:
        differences = reader.huffman(changed.size, _read_table(table, s), others)
        other = differences == _OTHER
        differences[other] = reader.radix(int(other.sum()), s - 1) + 1
    elif others:
        raise WireError("The header of labels has planes without a table.")
    else:
        differences = reader.radix(changed.size, s - 1) + 1
    reader.close()
    labels: Codes = reference.astype(code_dtype(n_classes))
    offset = s - n_classes
    labels[changed] = (reference[changed].astype(np.int32) + offset + differences) % np.int32(s) - offset
    return labels


def _write_differences(differences: NDArray[np.int32], s: int) -> tuple[str, list[str], list[Bits]]:
    """A Huffman code's table, planes and bits where that is smaller; otherwise radix-packed bits alone."""
    packed: tuple[str, list[str], list[Bits]] = "", [], [_radix_bits(differences - np.int32(1), s - 1)]
    listed = _listed(differences, s)
    if not listed.size:
        return packed
    token_of = np.full(s, _OTHER, np.int32)
    token_of[listed] = listed
    tokens = token_of[differences]
    levels = _huffman_levels(np.bincount(tokens, minlength=s))
    planes, coded = _write_planes(tokens, levels, s)
    coded.append(_radix_bits(differences[tokens == _OTHER] - np.int32(1), s - 1))
    table = "/".join(",".join(map(str, level)) for level in levels)
    return min(packed, (table, planes, coded), key=lambda code: sum(bits.size for bits in code[2]))


def _listed(differences: NDArray[np.int32], s: int) -> NDArray[np.intp]:
    """The most frequent differences: as many as pay for their entries in a Huffman code's table."""
    if s > _MAX_ALPHABET or not differences.size:
        return np.empty(0, np.intp)
    counts = np.bincount(differences, minlength=s)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    others = differences.size - np.cumsum(np.append(0, counts[order]))
    entries = _ENTRY_PRICE * (np.floor(np.log10(order)) + 2)
    listed_bits = np.cumsum(np.append(0, _ideal_bits(counts[order], differences.size) + entries))
    bits = listed_bits + _ideal_bits(others, differences.size) + others * np.log2(s - 1)
    return order[: np.argmin(bits)]


def _ideal_bits(counts: NDArray[np.integer[Any]], total: int) -> NDArray[np.float64]:
    bits: NDArray[np.float64] = counts * np.log2(total / np.maximum(counts, 1))
    return bits


# ---------------------------------------------------------------- places: gaps in a Rice code


def _write_places(places: NDArray[np.int32]) -> tuple[str, list[Bits]]:
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


# ---------------------------------------------------------------- Huffman code in bit planes


def _huffman_levels(counts: NDArray[np.integer[Any]]) -> list[list[int]]:
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


def _write_planes(symbols: NDArray[np.int32], levels: list[list[int]], s: int) -> tuple[list[str], list[Bits]]:
    if _is_lone(levels):
        return [], []
    plane_bits = _plane_bits(levels, s)
    lengths = np.zeros(s, np.uint8)
    for number, level in enumerate(levels):
        lengths[level] = number + 1
    planes: list[str] = []
    coded: list[Bits] = []
    for number in range(len(levels)):
        plane, bits = _write_places(np.flatnonzero(plane_bits[number][symbols]).astype(np.int32))
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


def _read_table(table: str, s: int) -> list[list[int]]:
    """Symbols by the length of their code. Each occurs once, and together they form a complete code."""
    levels = [_numbers(level) if level else [] for level in table.split("/", _MAX_PLANES)]
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


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise WireError("The header of labels holds something else than numbers.")
    return [int(part) for part in parts]


# ---------------------------------------------------------------- radix packing


@lru_cache(maxsize=64)
def _grouping(s: int) -> tuple[int, int]:
    """How many symbols of an alphabet of s to write as one number, and its bits: (k, width)."""
    if s <= 1:
        return 1, 0
    widths = [(k, _width(s, k)) for k in range(1, 64) if s**k <= 1 << 63]
    best = min(width / k for k, width in widths)
    return next((k, width) for k, width in widths if width / k <= 1.005 * best)


def _width(s: int, k: int) -> int:
    return int((s**k - 1).bit_length())


def _radix_size(n: int, s: int) -> int:
    """Bits of n symbols; the last group is written with the bits that it needs alone."""
    k, width = _grouping(s)
    return n // k * width + _width(s, n % k)


def _radix_bits(symbols: NDArray[np.int32], s: int) -> Bits:
    k, width = _grouping(s)
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


class _Reader:
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
        k, width = _grouping(s)
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
