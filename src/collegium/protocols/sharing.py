"""Shamir's secret sharing: a key dealt out so that a given number of shares give it back, and fewer say nothing of it.

A. Shamir: "How to share a secret", 1979. The key is the value at 0 of a random polynomial over a prime field, a share
is its value at another point; `needed` points fix the polynomial, and any `needed` - 1 fit every key alike.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from collegium.errors import ConfigError
from collegium.protocols.primitives import KEY_BYTES

PRIME: Final = 2**521 - 1
SHARE_BYTES: Final = 66


def deal(key: bytes, needed: int, shares: int) -> list[bytes]:
    """Shares number 1, 2 ... of a key, of which any `needed` give it back."""
    if len(key) != KEY_BYTES or not 1 <= needed <= shares:
        raise ConfigError(f"{shares} shares of which {needed} are needed, of {len(key)} bytes, cannot be dealt.")
    polynomial = [int.from_bytes(key, "big"), *(secrets.randbelow(PRIME) for _ in range(needed - 1))]
    return [_at(polynomial, point).to_bytes(SHARE_BYTES, "big") for point in range(1, shares + 1)]


def joined(shares: Mapping[int, bytes]) -> bytes | None:
    """The key of these shares, by their numbers, if they are as many as were needed; None where they fit no key."""
    points = tuple(sorted(shares))
    key = sum(int.from_bytes(shares[i], "big") * weight for i, weight in zip(points, _weights(points), strict=True))
    key %= PRIME
    return key.to_bytes(KEY_BYTES, "big") if key < 1 << 8 * KEY_BYTES else None


@lru_cache(maxsize=8)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """By which the values at these points add up to the value at 0 (Lagrange). All keys of a round share them."""
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def _at(polynomial: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value
