"""One label per public sample, in few bytes.

A label is a class code 0 .. C-1, or -1 for none. Two codes exist, and the smaller one is used:

* plain: groups of k symbols are read as one number in base S and written with the fewest bits
  (S = C, or C + 1 when -1 occurs). This costs log2(S) bits per label and at most 5 % more.
* diff: against a reference that both sides know, the places that differ and by how much they differ.
  This costs about the entropy of the differences, and nothing at all when nothing differs.

The places are written as gaps in a Rice code. The differences are packed like plain symbols, or in a Huffman
code of the frequent ones where that is smaller.

The header says how the content is to be read. Neither is trusted: `decode` raises WireError on anything
that does not fit, and allocates no more than labels of the size that the content can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype
from collegium.errors import WireError
from collegium.wire.bit_streams import (
    MAX_PLANES,
    Bits,
    Reader,
    grouping,
    huffman_levels,
    numbers,
    radix_bits,
    radix_size,
    read_table,
    write_places,
    write_planes,
)

Header: TypeAlias = dict[str, int | str]

_MAX: Final = (1 << 30) - 1  # of classes and of labels: sums of two still fit 32 bits
_MAX_FREE: Final = 1 << 26  # labels of a single class cost no bytes, so only the header tells how many
_MAX_ALPHABET: Final = 1 << 16  # for a Huffman code
_OTHER: Final = 0  # in a table, stands for all differences that are not listed: none of them is 0
_ENTRY_PRICE: Final = 4  # bits of content that one more character in the header must save
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
        if difference[1].size < _bytes(radix_size(labels.size, s)):
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


# Plain


def _encode_plain(labels: NDArray[np.integer[Any]], s: int, offset: int) -> NDArray[np.uint8]:
    content = np.empty(_bytes(radix_size(labels.size, s)), np.uint8)
    for symbols, packed in _plain_chunks(labels.size, s):
        content[packed] = np.packbits(radix_bits(labels[symbols].astype(np.int32) + offset, s), bitorder="little")
    return content


def _decode_plain(content: NDArray[np.uint8], n: int, s: int, n_classes: int) -> Codes:
    if content.size != _bytes(radix_size(n, s)) or (s == 1 and n > _MAX_FREE):
        raise WireError("The content of the labels does not have the size that the header tells.")
    labels: Codes = np.empty(n, code_dtype(n_classes))
    for symbols, packed in _plain_chunks(n, s):
        reader = Reader(content[packed])
        labels[symbols] = reader.radix(symbols.stop - symbols.start, s) - (s - n_classes)
        reader.close()
    return labels


def _plain_chunks(n: int, s: int) -> Iterator[tuple[slice, slice]]:
    """Slices of symbols and of the bytes they take; every chunk but the last fills whole bytes."""
    k, width = grouping(s)
    for chunk, start in enumerate(range(0, n, 8 * k * _CHUNK)):
        stop = min(start + 8 * k * _CHUNK, n)
        first = chunk * width * _CHUNK
        yield slice(start, stop), slice(first, first + _bytes(radix_size(stop - start, s)))


# Difference


def _encode_difference(
    labels: NDArray[np.integer[Any]], reference: NDArray[np.integer[Any]], n_classes: int
) -> tuple[Header, NDArray[np.uint8]]:
    s = n_classes + int(_abstains(labels) or _abstains(reference))
    changed = np.flatnonzero(labels != reference).astype(np.int32)
    # The labels and not the symbols may be subtracted: the offset between them cancels.
    differences = (labels[changed].astype(np.int32) - reference[changed].astype(np.int32)) % np.int32(s)
    plane, bits = write_places(changed)
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
    if content.size > _bytes(radix_size(reference.size, s)):
        raise WireError("A difference of labels is longer than the labels themselves.")
    planes, table = header.get("planes"), header.get("table", "")
    if not isinstance(planes, str) or not isinstance(table, str):
        raise WireError("The header of labels lacks its planes.")
    first, *others = [numbers(plane) for plane in planes.split(" ", MAX_PLANES + 1)]
    reader = Reader(content)
    changed = reader.places(reference.size, first)
    if table:
        differences = reader.huffman(changed.size, read_table(table, s), others)
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
    packed: tuple[str, list[str], list[Bits]] = "", [], [radix_bits(differences - np.int32(1), s - 1)]
    listed = _listed(differences, s)
    if not listed.size:
        return packed
    token_of = np.full(s, _OTHER, np.int32)
    token_of[listed] = listed
    tokens = token_of[differences]
    levels = huffman_levels(np.bincount(tokens, minlength=s))
    planes, coded = write_planes(tokens, levels, s)
    coded.append(radix_bits(differences[tokens == _OTHER] - np.int32(1), s - 1))
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
