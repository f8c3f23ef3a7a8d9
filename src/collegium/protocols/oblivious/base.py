"""The first 128 oblivious transfers, by public-key cryptography (Chou and Orlandi 2015, on Ed25519's group).

The sender gives A = aG. For choice c the receiver answers B = bG + cA. Both hash: the receiver bA, the sender aB
(its secret for c = 0) and aB - aA (for c = 1).
"""

from __future__ import annotations

import hashlib
import secrets
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collegium.protocols.errors import ProtocolError
from collegium.protocols.primitives import Bytes, bind, crypto_extra
from collegium.protocols.received import as_bytes

TRANSFERS = 128
SECRET_BYTES = 16
POINT_BYTES = 32


class BaseSender:
    """Ends up with two secrets per transfer."""

    def __init__(self, pair: str, peer: str) -> None:
        self._pair, self._peer = pair, peer
        self._a = _scalar()
        self._A = _group().crypto_scalarmult_ed25519_base_noclamp(self._a)

    def offer(self) -> Bytes:
        """To the receiver."""
        return np.frombuffer(self._A, np.uint8)

    def secrets(self, answer: Bytes) -> list[tuple[bytes, bytes]]:
        """From the receiver's answer: both secrets of each transfer."""
        group = _group()
        raw = as_bytes(self._peer, answer, TRANSFERS * POINT_BYTES)
        aA = group.crypto_scalarmult_ed25519_noclamp(self._a, self._A)
        pairs = []
        for i in range(TRANSFERS):
            B = _point(self._peer, raw[i * POINT_BYTES : (i + 1) * POINT_BYTES])
            aB = group.crypto_scalarmult_ed25519_noclamp(self._a, B)
            other = group.crypto_core_ed25519_sub(aB, aA)
            pairs.append((_secret(self._pair, i, self._A, B, aB), _secret(self._pair, i, self._A, B, other)))
        return pairs


class BaseReceiver:
    """Ends up with one of the two secrets per transfer, by its random choices."""

    def __init__(self, pair: str, peer: str) -> None:
        self._pair, self._peer = pair, peer
        self.choices: NDArray[np.uint8] = np.frombuffer(secrets.token_bytes(TRANSFERS), np.uint8) & np.uint8(1)

    def answer(self, offer: Bytes) -> tuple[Bytes, list[bytes]]:
        """From the sender's offer: the answer to send back, and the secrets chosen."""
        group = _group()
        A = _point(self._peer, as_bytes(self._peer, offer, POINT_BYTES))
        points, chosen = b"", []
        for i, choice in enumerate(self.choices.tolist()):
            b = _scalar()
            B = group.crypto_scalarmult_ed25519_base_noclamp(b)
            # Both sums are made whatever the choice is, so that it does not show in the time taken.
            B = (B, group.crypto_core_ed25519_add(A, B))[choice]
            points += B
            chosen.append(_secret(self._pair, i, A, B, group.crypto_scalarmult_ed25519_noclamp(b, A)))
        return np.frombuffer(points, np.uint8), chosen


def _group() -> ModuleType:
    with crypto_extra("Oblivious transfer"):
        from nacl import bindings
    return bindings


def _scalar() -> bytes:
    scalar: bytes = _group().crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
    return scalar


def _point(peer: str, raw: bytes) -> bytes:
    if not _group().crypto_core_ed25519_is_valid_point(raw):
        raise ProtocolError(peer, "sent a point that is not in the group of the curve.")
    return raw


def _secret(pair: str, number: int, A: bytes, B: bytes, shared: bytes) -> bytes:
    return hashlib.sha256(bind("collegium base ot v1", pair, number, A, B, shared)).digest()[:SECRET_BYTES]
