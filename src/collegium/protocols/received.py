"""What a peer sent, checked: anything else than the protocol has there is a ProtocolError that names the peer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from collegium.protocols.errors import ProtocolError


def as_array(party: str, array: object, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of that type and shape."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ProtocolError(party, f"sent {found}, expected {np.dtype(dtype)} {shape}.")
    return array


def as_bytes(party: str, array: object, size: int | None = None) -> bytes:
    """The contents of an array of bytes, of that size."""
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise ProtocolError(party, f"sent {type(array).__name__}, expected an array of bytes.")
    if size is not None and array.size != size:
        raise ProtocolError(party, f"sent {array.size} bytes, expected {size}.")
    return array.tobytes()
