"""Arrays as their bytes: what describes an array (its type and shape), and the array back from both.

A description is ["<f8", [3, 4]], with a third entry "F" where the bytes are in Fortran order. Only types whose bytes
are their values can be described, so that nothing that is read can hold an object.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collegium.errors import WireError

Description: TypeAlias = list[Any]

# As numpy writes them: with a byte order, and with a width above 0. Floats of 16 bytes differ from machine to machine.
_TYPE: Final = re.compile(
    r"\|[biu]1|[<>][iuf][248]|[<>]c(8|16)|([<>]U|\|S)[1-9][0-9]{0,8}|[<>][mM]8(\[([1-9][0-9]{0,8})?[a-zA-Z]{1,2}\])?"
)
_MAX_DIMENSIONS: Final = 32
_MAX_LENGTH: Final = 1 << 31
_LAST_CHARACTER: Final = 0x10FFFF
ALIGNED: Final = 8
"""Numbers that begin at a multiple of it, in bytes, are read where they lie."""
LARGE: Final = 1 << 16
"""Bytes that are worth more than a copy: an array that is not copied keeps all of its message."""


def describe(array: NDArray[Any]) -> Description:
    """What a reader needs to know beside the bytes."""
    if array.dtype.hasobject:
        raise WireError("An array of Python objects cannot be sent: convert it to numbers or strings.")
    if isinstance(array, np.ma.MaskedArray):
        raise WireError("An array with masked values cannot be sent: fill them in first.")
    if _TYPE.fullmatch(array.dtype.str) is None or array.ndim > _MAX_DIMENSIONS:
        raise WireError(f"An array of {array.dtype} with {array.ndim} dimensions cannot be sent.")
    return [array.dtype.str, list(array.shape), *(["F"] if array.flags.fnc else [])]


def contents(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes, in the order that `describe` tells; not copied where they lie in a row already."""
    return np.asarray(array).ravel(order="A").view(np.uint8)


def parse(description: object) -> tuple[np.dtype[Any], tuple[int, ...], str]:
    """Type, shape and order from an untrusted description; nothing is allocated."""
    if not isinstance(description, list) or len(description) not in (2, 3) or description[2:] not in ([], ["F"]):
        raise WireError("A message has an array with an invalid description.")
    name, shape = description[:2]
    if not isinstance(name, str) or _TYPE.fullmatch(name) is None:
        raise WireError("A message has an array of a type that is not allowed.")
    sizes = shape if isinstance(shape, list) and len(shape) <= _MAX_DIMENSIONS else [None]
    if not all(type(length) is int and 0 <= length <= _MAX_LENGTH for length in sizes):
        raise WireError("A message has an array of an invalid shape.")
    try:
        return np.dtype(name), tuple(shape), "F" if description[2:] else "C"
    except TypeError:  # a unit of time that does not exist, or text too wide
        raise WireError("A message has an array of a type that is not allowed.") from None


def empty_entries(shape: tuple[int, ...]) -> int:
    """The size to count for an array without contents: an array of shape (10**9, 0) has 10**9 rows."""
    return math.prod(max(1, length) for length in shape)


def restore(
    data: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any, *, frozen: bool = False
) -> NDArray[Any]:
    """The array of these bytes, as many as type and shape need: a copy, which may be changed.

    A `frozen` array cannot be changed. If it is large, it is these very bytes.
    """
    try:
        if not data.nbytes:
            return np.empty(shape, dtype, order)
        array = np.frombuffer(data, dtype).reshape(shape, order=order)
    except ValueError:
        raise WireError("A message has an array of an invalid shape.") from None
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise WireError("A message has booleans that are neither true nor false.")
    if dtype.kind == "U" and np.frombuffer(data, dtype.byteorder.replace("=", "<") + "u4").max() > _LAST_CHARACTER:
        raise WireError("A message has text with characters that do not exist.")
    stays = frozen and type(data.obj) is bytes and data.nbytes >= LARGE and array.flags.aligned
    return array if stays else array.copy(order)
