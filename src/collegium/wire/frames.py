"""The wire format: JSON for structure, raw bytes for arrays. Nothing is ever pickled or unpickled.

A message is a tree of plain data: None, bool, int, float, str, lists, dicts with string keys, numpy arrays of numbers,
truth values, times or text, and `Labels`. Labels are packed to log2(C) bits each and written as a difference from
labels that both ends already know, where that is smaller (see `label_packing`).

    "CLG2", then the sizes of head and body, in four big-endian bytes each
    head: JSON, with {"$array": [type, shape]} for an array, {"$labels": [classes, bytes, header]} for labels (and the
        digest of the labels that they are a difference from), {"$float": "nan"} for numbers that JSON does not have
    body: the contents of arrays and labels, one after the other, in the order in which the head names them

What is read is not trusted: whoever reads says how much that may be (see `limits`), and sizes are checked before
anything is allocated. While a difference is read, that takes also some 32 bytes for each of the labels that it is a
difference from.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Labels, read_only
from collegium.errors import WireError
from collegium.wire import label_packing, raw_arrays
from collegium.wire.limits import HEADER, MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MESSAGE, Limits

_MAGIC: Final = b"CLG2"
_SIZES: Final = struct.Struct(">II")
_START: Final = len(_MAGIC) + _SIZES.size
_ARRAY, _LABELS, _FLOAT = "$array", "$labels", "$float"
_AS_IT_IS: Final = frozenset({str, bool, type(None)})
_TOO_LONG: Final = 10 ** (MAX_DIGITS - 1)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("A number has too many digits.")
    return int(digits)


def _fraction(digits: str) -> float:
    if len(digits) > MAX_DIGITS or not math.isfinite(number := float(digits)):
        raise ValueError("A number has too many digits, or is too large.")
    return number


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_whole, parse_float=_fraction)


class KnownLabels:
    """Labels that both ends have seen, so that later ones can be sent as a difference."""

    def __init__(self, keep: int = 4) -> None:
        self._keep = keep
        self._by_digest: OrderedDict[str, Labels] = OrderedDict()

    def remember(self, labels: Labels) -> None:
        """Add labels; the oldest are forgotten."""
        self._by_digest[labels.digest] = labels
        self._by_digest.move_to_end(labels.digest)
        while len(self._by_digest) > self._keep:
            self._by_digest.popitem(last=False)

    def get(self, digest: str | None) -> Labels | None:
        """The labels of that name, if still known."""
        return None if digest is None else self._by_digest.get(digest)

    @property
    def latest(self) -> Labels | None:
        """The labels seen last."""
        return next(reversed(self._by_digest.values()), None)

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return sum(labels.codes.nbytes for labels in self._by_digest.values())


_NO_LABELS: Final = KnownLabels()
_READ: Final[WeakValueDictionary[tuple[Any, ...], Labels]] = WeakValueDictionary()
"""Labels by how they are written, for as long as anybody has them. In a simulation one process writes and reads the
same labels, many sites read the same consensus, and a message may hold it once for each of its orders."""


@dataclass(frozen=True)
class Packed:
    """A message as bytes, in parts, and how many of them are array contents (the rest is structure)."""

    parts: Sequence[bytes | memoryview]
    content_bytes: int
    labels: tuple[Labels, ...] = ()
    """The labels in it. While they are kept, reading them in this process takes no time."""

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @cached_property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)

    @property
    def sha256(self) -> str:
        """The hash of all of it."""
        # No cached_property: in Python 3.11 that has one lock for all messages, and threads would hash in turns.
        found: str | None = self.__dict__.get("_sha256")
        if found is None:
            digest = hashlib.sha256()
            for part in self.parts:
                digest.update(part)
            found = self.__dict__["_sha256"] = digest.hexdigest()
        return found


def pack(message: Any, reference: Labels | None = None, limits: Limits = MESSAGE) -> Packed:
    """Write a message; labels in it are written against `reference` where that is smaller."""
    return _packed(message, reference, limits)


def _packed(message: Any, reference: Labels | None = None, limits: Limits = MESSAGE, behind: int = 0) -> Packed:
    writer = _Writer(reference)
    tree = writer.plain(message)
    body_size = sum([content.size for content in writer.body])
    start = _started(_ENCODER.encode(tree).encode(), body_size, limits, behind)
    return Packed([start, *[content.data for content in writer.body]], body_size, tuple(writer.labels.values()))


def _started(head: bytes, body_size: int, limits: Limits = MESSAGE, behind: int = 0) -> bytes:
    """A message up to its body, for so many bytes `behind` it."""
    if max(body_size, behind) >= raw_arrays.LARGE:  # blanks, so that a reader finds numbers where it needs no copy
        head += b" " * (-(_START + len(head)) % raw_arrays.ALIGNED)
    limits.check_head(head)
    if _START + len(head) + body_size > MAX_BYTES:
        raise WireError(f"A message of {body_size} bytes is over the limit of {MAX_BYTES}.")
    return _MAGIC + _SIZES.pack(len(head), body_size) + head


def unpack(
    data: bytes | memoryview, known: KnownLabels | None = None, limits: Limits = MESSAGE, *, frozen: bool = False
) -> Any:
    """Read a message. Anything malformed, or over the limits, raises WireError. `frozen` arrays cannot be changed."""
    middle, end = _sections(data)
    if end < len(data):
        raise WireError("There are bytes after the end of a message.")
    return _read(data, middle, end, known or KnownLabels(), limits, frozen=frozen)


def _read(
    data: bytes | memoryview, middle: int, end: int, known: KnownLabels, limits: Limits, *, frozen: bool = False
) -> Any:
    limits.check_contents(end - middle)
    head = bytes(data[_START : min(middle, _START + limits.head + 1)])
    limits.check_head(head)
    try:
        tree = _DECODER.decode(head.decode())
    except (ValueError, RecursionError):
        raise WireError("A message's structure is not valid JSON.") from None
    # Without arrays, labels and odd numbers ("$...", as it is or escaped), and not deep, it is the message.
    if middle == end and b"$" not in head and b"\\" not in head and head.count(b"{") + head.count(b"[") <= limits.depth:
        return tree
    reader = _Reader(memoryview(data)[middle:end], known, limits, frozen=frozen)
    message = reader.value(tree)
    reader.close()
    return message


def join(header: Mapping[str, Any], payload: bytes | Packed) -> bytes:
    """Put a payload, byte for byte, behind a header of its own."""
    behind = payload.parts if isinstance(payload, Packed) else [payload]
    return b"".join([*_packed(header, behind=len(payload)).parts, *behind])


def join_words(header: str, payload: Packed) -> bytes:
    """The same for a header that is JSON already, of words and whole numbers alone."""
    return b"".join([_started(header.encode(), 0, behind=len(payload)), *payload.parts])


def cut(data: bytes, limits: Limits = HEADER) -> tuple[dict[str, Any], bytes]:
    """Undo `join`."""
    header, payload = cut_view(data, limits)
    return header, bytes(payload)


def cut_view(data: bytes, limits: Limits = HEADER) -> tuple[dict[str, Any], memoryview]:
    """The same, but that the payload is not copied."""
    middle, end = _sections(data)
    header = _read(data, middle, end, _NO_LABELS, limits)
    if not isinstance(header, dict):
        raise WireError("A message's header is not a table.")
    return header, memoryview(data)[end:]


def _sections(data: bytes | memoryview) -> tuple[int, int]:
    """Where the head and the body of the message at the start of these bytes end."""
    magic = bytes(data[: len(_MAGIC)])
    if magic != _MAGIC and magic[:3] == _MAGIC[:3] and magic[3:].isdigit():
        age = "an earlier" if magic < _MAGIC else "a later"
        raise WireError(f"This message was written by {age} version of Collegium: install the same version everywhere.")
    if len(data) < _START or magic != _MAGIC:
        raise WireError("These bytes are not a Collegium message.")
    head_size, body_size = _SIZES.unpack_from(data, len(_MAGIC))
    end = _START + head_size + body_size
    if len(data) < end:
        raise WireError("A message is cut short.")
    return _START + head_size, end


def _check_depth(depth: int, most: int = MAX_DEPTH) -> None:
    if depth > most:
        raise WireError(f"A message is nested more than {most} levels deep.")


def _short(number: int) -> int:
    if abs(number) >= _TOO_LONG:
        raise WireError(f"A whole number of {MAX_DIGITS} digits or more cannot be sent.")
    return number


class _Writer:
    """Turns a message into what JSON can say, and collects the contents of its arrays."""

    def __init__(self, reference: Labels | None) -> None:
        self._reference = reference
        self._written: dict[int, tuple[list[Any], NDArray[np.uint8]]] = {}
        self.body: list[NDArray[np.uint8]] = []
        self.labels: dict[int, Labels] = {}

    def plain(self, value: Any, depth: int = 0) -> Any:
        if type(value) in _AS_IT_IS or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return _short(int(value))
        if isinstance(value, (float, np.floating)):
            number = float(value)
            return number if math.isfinite(number) else {_FLOAT: repr(number)}
        if type(value) is dict:  # the usual one of those below
            return self._table(value, depth)
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, Labels):
            return {_LABELS: self._labels(value)}
        if isinstance(value, np.ndarray):
            description = raw_arrays.describe(value)
            self.body.append(raw_arrays.contents(value))
            return {_ARRAY: description}
        _check_depth(depth)
        if isinstance(value, (list, tuple)):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return self._table(value, depth)
        raise WireError(
            f"A {type(value).__name__} is not plain data: send numbers, strings, lists, dicts, arrays or Labels."
        )

    def _table(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        _check_depth(depth)
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                what = type(key).__name__
                raise WireError(f"Keys of a message must be strings that do not start with '$', got {what}.")
        return {key: self.plain(item, depth + 1) for key, item in value.items()}

    def _labels(self, labels: Labels) -> list[Any]:
        if id(labels) not in self._written:
            self.labels[id(labels)] = labels
            self._written[id(labels)] = self._described(labels)
        described, content = self._written[id(labels)]
        self.body.append(content)
        return described

    def _described(self, labels: Labels) -> tuple[list[Any], NDArray[np.uint8]]:
        reference = self._reference
        if reference is not None and (len(reference), reference.n_classes) != (len(labels), labels.n_classes):
            reference = None
        codes = None if reference is None else reference.codes
        header, content = label_packing.encode_valid(labels.codes, labels.n_classes, codes)
        named = reference.digest if reference is not None and label_packing.is_difference(header) else None
        _READ[labels.n_classes, named, *header, content.tobytes()] = labels
        described = [labels.n_classes, content.size, header]
        return described if named is None else [*described, named], content


class _Reader:
    """Turns what JSON said back into a message, with the contents of its arrays from the body."""

    def __init__(self, body: memoryview, known: KnownLabels, limits: Limits, *, frozen: bool) -> None:
        self._frozen = frozen
        self._body = body
        self._at = 0
        self._known = known
        self._depth = limits.depth
        self._free = limits.free + known.nbytes

    def close(self) -> None:
        """All contents must have been read."""
        if self._at < self._body.nbytes:
            raise WireError("A message has contents that do not belong to an array.")

    def value(self, value: Any, depth: int = 0) -> Any:
        if not isinstance(value, (list, dict)):
            return value
        _check_depth(depth, self._depth)
        if isinstance(value, list):
            return [self.value(item, depth + 1) for item in value]
        if not any(key.startswith("$") for key in value):
            return {key: self.value(item, depth + 1) for key, item in value.items()}
        if len(value) > 1:
            raise WireError("A message holds something that cannot be read.")
        tag, described = value.popitem()
        if tag == _ARRAY:
            return self._array(described)
        if tag == _LABELS:
            return self._labels(described)
        if tag == _FLOAT and described in ("nan", "inf", "-inf"):
            return float(described)
        raise WireError("A message holds something that cannot be read.")

    def _array(self, described: Any) -> NDArray[Any]:
        dtype, shape, order = raw_arrays.parse(described)
        size = math.prod(shape) * dtype.itemsize
        if not size:
            self._charge(raw_arrays.empty_entries(shape))
        array = raw_arrays.restore(self._take(size), dtype, shape, order, frozen=self._frozen)
        return read_only(array) if self._frozen else array

    def _labels(self, described: Any) -> Labels:
        if not isinstance(described, list) or len(described) not in (3, 4):
            raise WireError("A message's labels are malformed.")
        n_classes, size, header, *names = described
        if not (type(n_classes) is type(size) is int and size >= 0 and all(isinstance(name, str) for name in names)):
            raise WireError("A message's labels are malformed.")
        reference = self._known.get(names[0]) if names else None
        if names and reference is None:
            raise WireError("Labels are a difference from labels that are not known here.")
        content = np.frombuffer(self._take(size), np.uint8)
        self._charge(max(0, label_packing.decoded_bytes(header, n_classes) - 8 * size))
        key = n_classes, names[0] if names else None, *header, content.tobytes()
        labels = _READ.get(key)
        if labels is None:
            codes = label_packing.decode(header, content, n_classes, None if reference is None else reference.codes)
            labels = _READ[key] = Labels(codes, n_classes)
        return labels

    def _take(self, size: int) -> memoryview:
        if size > self._body.nbytes - self._at:
            raise WireError("A message declares an array that it does not hold.")
        self._at += size
        return self._body[self._at - size : self._at]

    def _charge(self, size: int) -> None:
        self._free -= size
        if self._free < 0:
            raise WireError("A message declares labels or empty arrays that take far more bytes than it does.")
