"""A secret seed that all sites share, and the codes that they draw from it.

A leader draws 256 bits and sends them to the others in envelopes. From the seed every site expands the same
random hyperplanes; which side of each hyperplane a point lies on is its code. The angle between two points is then
about pi h / bits, h being the Hamming distance of their codes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from collegium.errors import ConfigError
from collegium.protocols import primitives
from collegium.protocols.keys import Session, as_bytes
from collegium.protocols.primitives import KEY_BYTES, Bytes, bind

LEARNS = {
    "sites": "the seed, and with it the hyperplanes",
    "coordinator": "nothing: without the seed, distances say nothing about directions in the data's own space",
}
CONTEXT = "shared seed"
_ROWS = 256  # hyperplanes at a time; even, so that each part of the stream begins at a block of AES
_STEPS = 2.0**20


def share(session: Session) -> tuple[bytes, dict[str, Bytes]]:
    """At the leader: draw a seed; an envelope with it for every other site."""
    seed = secrets.token_bytes(KEY_BYTES)
    content = np.frombuffer(seed, np.uint8)
    return seed, {party: session.seal(party, content, CONTEXT) for party in session.others}


def receive(session: Session, leader: str, envelope: Bytes) -> bytes:
    """At every other site: the seed that the leader drew."""
    return as_bytes(leader, session.open(leader, envelope, CONTEXT), KEY_BYTES)


def projection(seed: bytes, bits: int, features: int) -> NDArray[np.float64]:
    """The hyperplanes' normals, of shape (bits, features): Gaussian entries from AES in counter mode.

    Entries are rounded to multiples of 2^-20, so that the last digit of a library's inverse normal
    distribution, which may change from version to version, does not matter.
    """
    return np.concatenate(list(_parts(seed, bits, features)))


def codes(V: NDArray[Any], seed: bytes, bits: int) -> Bytes:
    """One packed code of so many bits per row of V: bit l is [Pi_l v >= 0]. `unpack` undoes the packing."""
    points = np.asarray(V)
    if points.ndim != 2 or not points.size or points.dtype.kind not in "fiub":
        raise ConfigError(f"Codes are drawn of a table of numbers, not of {points.dtype} with shape {points.shape}.")
    points = points.astype(np.float64)
    _refuse(
        np.flatnonzero(~np.isfinite(points).all(axis=1)),
        "has a value that is missing or infinite: impute it, or leave it out",
    )
    _refuse(
        np.flatnonzero(~points.any(axis=1)),
        "is zero in all features and has no direction: leave it out, or shift the features",
    )
    sides = [points @ part.T >= 0 for part in _parts(seed, bits, points.shape[1])]
    return np.packbits(np.concatenate(sides, axis=1), axis=1)


def unpack(packed: Bytes, bits: int) -> Bytes:
    """Codes as 0 and 1, one per column."""
    return np.unpackbits(packed, axis=1, count=bits)


def _parts(seed: bytes, bits: int, features: int) -> Iterator[NDArray[np.float64]]:
    if bits < 1 or features < 1:
        raise ConfigError(f"Codes need at least one bit and one feature, not {bits} and {features}.")
    if len(seed) != KEY_BYTES:
        raise ConfigError(f"A seed has {KEY_BYTES} bytes, not {len(seed)}.")
    key = primitives.hkdf(seed, bind("collegium hyperplanes v1", bits, features))
    for first in range(0, bits, _ROWS):
        rows = min(_ROWS, bits - first)
        block = (first * features // 2).to_bytes(16, "big")
        words = primitives.stream(key, 8 * rows * features, block).view("<u8")
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        yield np.rint(ndtri(uniform) * _STEPS).reshape(rows, features) / _STEPS


def _refuse(bad: NDArray[np.intp], why: str) -> None:
    if bad.size:
        raise ConfigError(f"Row {bad[0]} of the features ({bad.size} rows in all) {why}.")
