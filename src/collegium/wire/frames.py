"""The wire format: JSON for structure, npz for arrays. Nothing is ever pickled or unpickled.

A message is a tree of plain data: None, bool, int, float, str, lists, dicts with string keys, numpy
arrays without objects, and `Labels`. Labels are packed to log2(C) bits each and written as a difference
from labels that both ends already know, where that is smaller (see `labelcode`).
"""

from __future__ import annotations

import io
import json
import math
import struct
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Labels
from collegium.errors import WireError
from collegium.wire import label_packing as labelcode

MAX_BYTES: Final = 1 << 31
_MAGIC: Final = b"CLG1"
_SIZES: Final = struct.Struct(">II")
_PARSER: Final = threading.Lock()
_ARRAY, _LABELS, _FLOAT = "$array", "$labels", "$float"


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


@dataclass(frozen=True)
class Packed:
    """A message as bytes, and how many of them are array contents (the rest is structure)."""

    data: bytes
    content_bytes: int


def pack(message: Any, reference: Labels | None = None) -> Packed:
    """Write a message; labels in it are written against `reference` where that is smaller."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = _to_json(message, arrays, reference)
    head = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    body = _to_npz(arrays)
    data = _MAGIC + _SIZES.pack(len(head), len(body)) + head + body
    return Packed(data, sum(array.nbytes for array in arrays.values()))


def unpack(data: bytes, known: KnownLabels | None = None, limit: int = MAX_BYTES) -> Any:
    """Read a message. Anything malformed, or larger than `limit`, raises WireError."""
    if len(data) > limit:
        raise WireError(f"A message of {len(data)} bytes is over the limit of {limit}.")
    head, body, rest = _sections(data)
    if rest:
        raise WireError("There are bytes after the end of the message.")
    try:
        tree = json.loads(head)
    except (ValueError, RecursionError):
        raise WireError("A message's structure is not valid JSON.") from None
    return _from_json(tree, _from_npz(body, limit), known or KnownLabels())


def join(header: Mapping[str, Any], payload: bytes) -> bytes:
    """Put a payload, byte for byte, behind a header of its own."""
    return pack(dict(header)).data + payload


def cut(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Undo `join`."""
    payload = _sections(data)[2]
    header = unpack(data[: len(data) - len(payload)])
    if not isinstance(header, dict):
        raise WireError("A message's header is not a table.")
    return header, payload


def _sections(data: bytes) -> tuple[bytes, bytes, bytes]:
    start = len(_MAGIC) + _SIZES.size
    if len(data) < start or data[: len(_MAGIC)] != _MAGIC:
        raise WireError("These bytes are not a Collegium message.")
    head_size, body_size = _SIZES.unpack_from(data, len(_MAGIC))
    if len(data) < start + head_size + body_size:
        raise WireError("A message is cut short.")
    middle = start + head_size
    return data[start:middle], data[middle : middle + body_size], data[middle + body_size :]


def _to_json(value: Any, arrays: dict[str, NDArray[Any]], reference: Labels | None) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else {_FLOAT: repr(number)}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Labels):
        return {_LABELS: _labels_to_json(value, arrays, reference)}
    if isinstance(value, np.ndarray):
        return {_ARRAY: _store(value, arrays)}
    if isinstance(value, list | tuple):
        return [_to_json(item, arrays, reference) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise WireError(f"Keys of a message are strings that do not start with '$', not {type(key).__name__}.")
        return {key: _to_json(item, arrays, reference) for key, item in value.items()}
    raise WireError(
        f"A {type(value).__name__} is not plain data: send numbers, strings, lists, dicts, arrays or Labels."
    )


def _labels_to_json(labels: Labels, arrays: dict[str, NDArray[Any]], reference: Labels | None) -> dict[str, Any]:
    usable = reference is not None and (len(reference), reference.n_classes) == (len(labels), labels.n_classes)
    codes = reference.codes if usable and reference is not None else None
    header, content = labelcode.encode(labels.codes, labels.n_classes, codes)
    plain: dict[str, Any] = {"classes": labels.n_classes, "code": header, "array": _store(content, arrays)}
    if usable and reference is not None:
        plain["from"] = reference.digest
    return plain


def _store(array: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> str:
    if array.dtype.hasobject:
        raise WireError("An array of Python objects cannot be sent: convert it to numbers or strings.")
    name = f"a{len(arrays)}"
    arrays[name] = array
    return name


def _to_npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    if not arrays:
        return b""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _read_arrays(body: bytes) -> dict[str, NDArray[Any]]:
    # numpy reads an array's header by Python's parser, which in CPython 3.11 stumbles where threads parse at once.
    with _PARSER, np.load(io.BytesIO(body), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _from_npz(body: bytes, limit: int) -> dict[str, NDArray[Any]]:
    if not body:
        return {}
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise WireError("Arrays on the wire are stored, not compressed.")
            if sum(member.file_size for member in members) > limit:
                raise WireError(f"A message's arrays are over the limit of {limit} bytes.")
        return _read_arrays(body)
    except WireError:
        raise
    except Exception:  # zipfile, zlib, struct and numpy each raise their own kinds on hostile bytes
        raise WireError("A message's arrays cannot be read.") from None


def _from_json(value: Any, arrays: dict[str, NDArray[Any]], known: KnownLabels) -> Any:
    if isinstance(value, list):
        return [_from_json(item, arrays, known) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return _fetch(value[_ARRAY], arrays)
    if _LABELS in value:
        return _labels_from_json(value[_LABELS], arrays, known)
    if _FLOAT in value:
        if value[_FLOAT] not in ("nan", "inf", "-inf"):
            raise WireError("A message holds a number that is none.")
        return float(value[_FLOAT])
    return {key: _from_json(item, arrays, known) for key, item in value.items()}


def _labels_from_json(plain: Any, arrays: dict[str, NDArray[Any]], known: KnownLabels) -> Labels:
    try:
        n_classes, header, content = int(plain["classes"]), dict(plain["code"]), _fetch(plain["array"], arrays)
        name = plain.get("from")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise WireError("A message's labels are malformed.") from None
    reference = known.get(name)
    if name is not None and reference is None:
        raise WireError("Labels are written against labels that are not known here.")
    codes = labelcode.decode(header, content, n_classes, None if reference is None else reference.codes)
    return Labels(codes, n_classes)


def _fetch(name: Any, arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    if not isinstance(name, str) or name not in arrays:
        raise WireError("A message names an array that it does not hold.")
    return arrays[name]
