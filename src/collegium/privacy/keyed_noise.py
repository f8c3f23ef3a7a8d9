"""Noise that only the holder of a secret key can repeat: what a coordinator needs to resume a run after a crash."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.noise import Noise


class KeyedNoise(Noise):
    """A stream of SHAKE-256 under a secret key: the same words from the same key, and unpredictable without it."""

    seeded = False

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._drawn = 0

    def words(self, n: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(b"collegium noise v1" + self._key + self._drawn.to_bytes(8))
        self._drawn += 1
        return np.frombuffer(stream.digest(8 * n), dtype=np.uint64)
