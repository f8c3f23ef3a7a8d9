"""Noise that only the holder of a secret key can repeat: what a coordinator needs to resume a run after a crash."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.noise import Noise


class KeyedNoise(Noise):
    """A stream of SHAKE-256 under a secret key: the same words from the same key, and unpredictable without it.

    The difference of two results with the same noise is that of what was hidden. So the key takes in what the noise is
    for: a run that is resumed with other answers has other noise.
    """

    seeded = False

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._drawn = 0

    def depend_on(self, *data: bytes) -> None:
        taken_in = hashlib.sha256()
        for part in data:
            taken_in.update(part)
        self._key = hashlib.sha256(self._key + taken_in.digest()).digest()

    def words(self, n: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(b"collegium noise v1" + self._key + self._drawn.to_bytes(8))
        self._drawn += 1
        return np.frombuffer(stream.digest(8 * n), dtype=np.uint64)
