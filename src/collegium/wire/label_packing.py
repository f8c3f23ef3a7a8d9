"""Packed labels: one label per public sample, in few bytes.

A label is a class code 0 .. C-1, or -1 for none. There are two forms, and the smaller one is used:

* plain: groups of k symbols are read as one number in base S and written with the fewest bits
  (S = C, or C + 1 when -1 occurs). This costs log2(S) bits per label and at most 5 % more.
* diff: against a reference that both sides know, the places that differ and by how much they differ.
  This costs about the entropy of the places and log2(S - 1) bits per difference, and nothing when nothing differs.

The places are written as gaps in a Rice code; the differences are packed like plain symbols. (In real runs, the table
of a Huffman code cost more than it saved.)

The header says how the content is to be read: [n, S] for n plain labels, [n, S, changed, Rice parameter] for a
difference. Neither is trusted: `decode` raises WireError on anything that does not fit, and allocates no more than
labels of the size that the content can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype
from collegium.errors import WireError
from collegium.wire.bit_streams import Reader, grouping, radix_bits, radix_size, write_places

Header: TypeAlias = list[int]

_MAX: Final = (1 << 30) - 1  # of classes and of labels: sums of two still fit 32 bits
_MAX_FREE: Final = 1 << 26  # labels of a single class cost no bytes, so only the header tells how many
_CHUNK: Final = 1 << 12  # of bytes per bit of a group: a plain chunk is 8 * _CHUNK groups


def encode(
    labels: NDArray[np.integer[Any]], n_classes: int, reference: NDArray[np.integer[Any]] | None = None
) -> tuple[Header, NDArray[np.uint8]]:
    """Write labels (-1 .. n_classes - 1) as a header of a few numbers and a content of bytes.

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
    return encode_valid(labels, n_classes, reference)


def encode_valid(
    labels: NDArray[np.integer[Any]], n_classes: int, reference: NDArray[np.integer[Any]] | None = None
) -> tuple[Header, NDArray[np.uint8]]:
    """The same for labels that were checked before, as those of a `Labels` were."""
    s = n_classes + int(_abstains(labels))
    if reference is not None:
        difference = _encode_difference(labels, reference, s, n_classes)
        if difference[1].size < _bytes(radix_size(labels.size, s)):
            return difference
    return [labels.size, s], _encode_plain(labels, s, s - n_classes)


def most_bytes(n: int, n_classes: int) -> int:
    """How long the content of n labels can be, abstentions included."""
    return _bytes(radix_size(n, n_classes + 1))


def is_difference(header: Header) -> bool:
    """Whether labels with this header can only be read with the reference."""
    return len(header) == 4


def decode(
    header: object,
    content: NDArray[np.uint8],
    n_classes: int,
    reference: NDArray[np.integer[Any]] | None = None,
) -> Codes:
    """Read what `encode` wrote, with the same `n_classes` and `reference`; WireError if it does not fit."""
    n, s, *places = _parsed(header, n_classes)
    if content.dtype != np.uint8 or content.ndim != 1:
        raise WireError("Packed labels must be a row of bytes.")
    if not places:
        return _decode_plain(content, n, s, n_classes)
    if reference is None:
        raise WireError("Packed labels are a difference from others that are missing here.")
    if reference.shape != (n,) or _problem(reference, n_classes) or (s == n_classes and _abstains(reference)):
        raise WireError("Packed labels are a difference from others than those given.")
    return _decode_difference(places, content, s, n_classes, reference)


def decoded_bytes(header: object, n_classes: int) -> int:
    """What `decode` would make of labels with this header; nothing is allocated."""
    return _parsed(header, n_classes)[0] * np.dtype(code_dtype(n_classes)).itemsize


def _parsed(header: object, n_classes: int) -> Header:
    """An untrusted header, if it is one of the two forms."""
    if not 1 <= n_classes <= _MAX:
        raise WireError("Packed labels of so many classes cannot be read.")
    if not isinstance(header, list) or not all(type(number) is int and 0 <= number <= _MAX for number in header):
        raise WireError("The header of packed labels must be a list of valid integers.")
    if len(header) not in (2, 4) or header[1] - n_classes not in (0, 1):
        raise WireError("The header of packed labels declares an invalid form or number of symbols.")
    return header


def _problem(labels: NDArray[np.integer[Any]], n_classes: int) -> str | None:
    if not 1 <= n_classes <= _MAX:
        return f"n_classes must be between 1 and {_MAX}, got {n_classes}."
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size > _MAX:
        return f"Labels must be a row of at most {_MAX} integer codes."
    if labels.size and (labels.min() < -1 or labels.max() >= n_classes):
        return f"Labels must lie in -1 .. {n_classes - 1}."
    return None


def _abstains(labels: NDArray[np.integer[Any]]) -> bool:
    return bool(labels.size and labels.min() < 0)


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
        raise WireError("Packed labels do not have the size that their header declares.")
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
    labels: NDArray[np.integer[Any]], reference: NDArray[np.integer[Any]], plain: int, n_classes: int
) -> tuple[Header, NDArray[np.uint8]]:
    """`plain` is the number of symbols of the labels by themselves."""
    s = max(plain, n_classes + int(_abstains(reference)))
    changed = (labels != reference).nonzero()[0]
    # The labels and not the symbols may be subtracted: the offset between them cancels. Modulo s, they differ by 1 to
    # s - 1, which is written as 0 to s - 2.
    differences = np.subtract(labels.take(changed), reference.take(changed), dtype=np.int32)
    differences += np.where(differences < 0, np.int32(s - 1), np.int32(-1))
    rice, in_bytes, bits = write_places(changed)
    content = np.packbits(np.concatenate([*bits, radix_bits(differences, s - 1)]), bitorder="little")
    return [labels.size, s, changed.size, rice], np.concatenate([in_bytes, content])


def _decode_difference(
    places: list[int], content: NDArray[np.uint8], s: int, n_classes: int, reference: NDArray[np.integer[Any]]
) -> Codes:
    if content.size > _bytes(radix_size(reference.size, s)):
        raise WireError("Packed labels are longer as a difference than by themselves.")
    reader = Reader(content)
    changed = reader.places(reference.size, *places)
    differences = reader.radix(changed.size, s - 1) + 1
    reader.close()
    labels: Codes = reference.astype(code_dtype(n_classes))
    offset = s - n_classes
    labels[changed] = (reference[changed].astype(np.int32) + offset + differences) % np.int32(s) - offset
    return labels
