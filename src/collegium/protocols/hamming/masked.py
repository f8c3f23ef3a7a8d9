"""Hamming distances with the help of the server: the fastest, for sites that trust each other not to side with it.

All sites share a key that the server does not have; random tables A_j (as large as the sketches of site j) and R_jk are
drawn from it. With sketches as X = +1 and -1, modulo 2^16: every site sends U_j = X_j + A_j once. For each pair, j
sends X_j A_k' + R_jk and k sends A_j U_k' - R_jk. The server subtracts both from U_j U_k' and gets X_j X_k' = L - 2 h.

All that the server has could be made up from the distances and random numbers. But the server together with ANY ONE
site can read all sketches of all sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols import primitives
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import check_length
from collegium.protocols.hamming.distances import Bits, Distances, checked_bits
from collegium.protocols.keys import Once
from collegium.protocols.primitives import KEY_BYTES, bind
from collegium.protocols.received import as_array

LEARNS = {
    "server": "the distance of every pair of points of different sites, and nothing else",
    "site": "nothing but the numbers of the others' points",
    "server and one site": "ALL sketches of ALL sites: they share the key that hides them",
}
_WORD: Final = np.dtype("<u2")
Words = NDArray[np.uint16]


class Site:
    """A site that shares `key` with all others. One circle, one set of sketches: begin another to send others."""

    def __init__(self, bits: Bits, party: str, key: bytes, circle: str, points: Mapping[str, int]) -> None:
        self._bits = checked_bits(bits)
        check_length(f"Site {party!r}", "masked", self._bits.shape[1])
        if len(key) != KEY_BYTES or points.get(party) != len(bits):
            raise ConfigError(
                f"Site {party!r} needs a key of {KEY_BYTES} bytes and the right number of its own points."
            )
        self._party, self._points = party, dict(points)
        self._key = primitives.hkdf(key, bind("collegium masked hamming v1", circle))
        self._used = Once("a message to")

    def sketches(self) -> Words:
        """To the server, once for all pairs: the masked sketches."""
        self._used.use(self._party, "the server")
        return self._masked()

    def share(self, partner: str) -> Words:
        """To the server, for the pair with that partner: a row per point of the one whose name comes first."""
        if partner not in self._points or partner == self._party:
            raise ConfigError(f"Site {self._party!r} has no partner {partner!r}.")
        self._used.use(self._party, partner)
        low, high = sorted([self._party, partner])
        hiding = self._table("pair", low, high, shape=(self._points[low], self._points[high]))
        mask = self._mask(partner)
        if self._party == low:
            # Bytes of the mask apart: the sums stay below 2^24, where single precision is exact, and twice as fast.
            signs = 1 - 2 * self._bits.astype(np.float32)
            lowest = _words(signs @ (mask & 255).astype(np.float32).T)
            return lowest + (_words(signs @ (mask >> 8).astype(np.float32).T) << np.uint16(8)) + hiding
        return _words(mask.astype(np.float64) @ self._masked().astype(np.float64).T) - hiding

    def _masked(self) -> Words:
        signs = (1 - 2 * self._bits.astype(np.int16)).view(np.uint16)
        return signs + self._mask(self._party)

    def _mask(self, party: str) -> Words:
        return self._table("codes", party, shape=(self._points[party], self._bits.shape[1]))

    def _table(self, *name: str, shape: tuple[int, int]) -> Words:
        key = primitives.hkdf(self._key, bind(*name, *shape))
        return primitives.stream(key, _WORD.itemsize * shape[0] * shape[1]).view(_WORD).reshape(shape)


class Server:
    """Takes the masks off, pair by pair."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._sketches: dict[str, Words] = {}

    def add(self, party: str, points: int, sketches: object) -> None:
        """Take one site's masked sketches."""
        if party in self._sketches:
            raise ProtocolError(party, "sends its sketches twice.")
        self._sketches[party] = as_array(party, sketches, _WORD, (points, self._length))

    def distances(self, a: str, of_a: object, b: str, of_b: object) -> Distances:
        """From both sites' shares: distances of shape (points of a, points of b)."""
        if a > b:
            return self.distances(b, of_b, a, of_a).T
        one, other = self._sketches[a], self._sketches[b]
        shape = (len(one), len(other))
        product = _words(one.astype(np.float64) @ other.astype(np.float64).T)
        product -= as_array(a, of_a, _WORD, shape)
        product -= as_array(b, of_b, _WORD, shape)
        twice = self._length - product.view(np.int16).astype(np.int64)
        if (twice & 1).any() or int(twice.min()) < 0 or int(twice.max()) > 2 * self._length:
            raise ProtocolError((a, b), "sent shares that do not add up to distances: one of them is wrong.")
        return twice >> 1


def _words(exact: NDArray[Any]) -> Words:
    """Whole numbers held as floating point, modulo 2^16."""
    return exact.astype(np.int64).astype(np.uint16)
