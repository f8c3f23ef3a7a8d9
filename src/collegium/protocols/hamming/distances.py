"""What the ways to compute Hamming distances share: checked sketches, words for distances, the server's end."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols.errors import ProtocolError

Bits = NDArray[np.uint8]
Distances = NDArray[np.int64]
ONLY_DISTANCES: Final = {
    "server": "the distance of every pair of points of the two sites, and nothing else",
    "site": "nothing but the number of the other site's points",
    "server and one site": "what the other site's distances to known sketches reveal: its points' directions, closely",
}
"""Who learns what, where no key is shared by all sites."""


def checked_bits(bits: NDArray[Any]) -> Bits:
    """Sketches as 0 and 1, one row per point; anything else is refused."""
    array = np.asarray(bits)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "biuf":
        raise ConfigError(f"Sketches are a table of bits, points by bits, not {array.dtype} of shape {array.shape}.")
    if not ((array == 0) | (array == 1)).all():
        raise ConfigError("Sketches consist of 0 and 1: unpack them first (collegium.protocols.seed.unpack).")
    return np.ascontiguousarray(array, np.uint8)


def word(length: int) -> np.dtype[Any]:
    """The narrowest words in which all distances 0 .. length differ; arithmetic is modulo their size."""
    if length >= 1 << 32:
        raise ConfigError(f"Sketches of {length} bits are too long: at most 2^32 - 1.")
    return np.min_scalar_type(length).newbyteorder("<")


def in_range(distances: NDArray[Any], length: int, *parties: str) -> Distances:
    """Distances between sketches of that length, or the parties whose shares do not fit are named."""
    if int(distances.max()) > length:
        raise ProtocolError(parties, f"sent shares that give a distance above {length}: one of them is wrong.")
    return distances.astype(np.int64)
