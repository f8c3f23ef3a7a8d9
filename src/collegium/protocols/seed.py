"""A secret seed that all sites share, and the sketches that they draw from it.

A leader draws 256 bits and sends them to the others in envelopes (`secure.sketches`). From the seed every site
expands the same random hyperplanes; which side of each hyperplane a point lies on is its sketch. The angle between two
points is then about pi h / bits, h being the Hamming distance of their sketches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from collegium.errors import ConfigError
from collegium.protocols import primitives
from collegium.protocols.primitives import KEY_BYTES, Bytes, bind

CONTEXT = "shared seed"
_ROWS = 256  # hyperplanes at a time; even, so that each part of the stream begins at a block of AES
_STEPS = 2.0**20


def projection(seed: bytes, bits: int, features: int) -> NDArray[np.float64]:
    """The hyperplanes' normals, of shape (bits, features): Gaussian entries from AES in counter mode.

    Entries are rounded to multiples of 2^-20, so that the last digit of a library's inverse normal
    distribution, which may change from version to version, does not matter.
    """
    return np.concatenate(list(_parts(seed, bits, features)))


def sketches(V: NDArray[Any], seed: bytes, bits: int) -> Bytes:
    """One packed sketch of so many bits per row of V: bit l is [Pi_l v >= 0]. `unpack` undoes the packing.

    A row of zeros has no direction. Its sketch is drawn at random, about as far from all others as a right angle.
    """
    points = np.asarray(V)
    if points.ndim != 2 or not points.size or points.dtype.kind not in "fiub":
        raise ConfigError(f"Sketches are drawn of a table of numbers, not of {points.dtype} with shape {points.shape}.")
    points = points.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if bad.size:
        raise ConfigError(
            f"Row {bad[0]} of the features ({bad.size} rows in all) has a value that is NaN or infinite: impute "
            "it, or drop the row."
        )
    points = at_one_scale(points)
    sides = np.concatenate([points @ part.T >= 0 for part in _parts(seed, bits, points.shape[1])], axis=1)
    lost = np.flatnonzero(~points.any(axis=1))
    if lost.size:
        sides[lost] = _random_sides(points, seed, (lost.size, bits))
    return np.packbits(sides, axis=1)


def at_one_scale(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row times the power of two that brings its largest value below 1: no sum or product of them overflows.

    Powers of two are exact: directions stay the same bit for bit. A row of zeros stays one.
    """
    _, exponents = np.frexp(np.abs(points).max(axis=1, keepdims=True))
    scaled: NDArray[np.float64] = np.ldexp(points, -exponents)
    return scaled


def unpack(packed: Bytes, bits: int) -> Bytes:
    """Sketches as 0 and 1, one per column."""
    return np.unpackbits(packed, axis=1, count=bits)


def _parts(seed: bytes, bits: int, features: int) -> Iterator[NDArray[np.float64]]:
    if bits < 1 or features < 1:
        raise ConfigError(f"Sketches need at least one bit and one feature, not {bits} and {features}.")
    if len(seed) != KEY_BYTES:
        raise ConfigError(f"A seed has {KEY_BYTES} bytes, not {len(seed)}.")
    key = primitives.hkdf(seed, bind("collegium hyperplanes v1", bits, features))
    for first in range(0, bits, _ROWS):
        rows = min(_ROWS, bits - first)
        block = (first * features // 2).to_bytes(16, "big")
        words = primitives.stream(key, 8 * rows * features, block).view("<u8")
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        yield np.rint(ndtri(uniform) * _STEPS).reshape(rows, features) / _STEPS


def _random_sides(points: NDArray[np.float64], seed: bytes, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Random bits that also depend on the site's own points: no other site knows them, or draws the same.

    They are drawn from nothing else, so that a run that is repeated has them again.
    """
    own = hashlib.sha256(points.tobytes()).digest()
    key = primitives.hkdf(seed, bind("collegium codes without a direction v1", own, *shape))
    return (primitives.stream(key, shape[0] * shape[1]) & 1).astype(np.bool_).reshape(shape)
