"""Hamming distances under Paillier encryption: the least traffic, and the most work.

Site a, the key owner, encrypts its sketches once, for all partners: the rows' bits at one position are the digits of
one number in base L + 1, as many rows as fit. Site b multiplies ciphertexts: for its sketch y,
f = sum_{y_l = 0} x_l - sum_{y_l = 1} x_l in every digit, and h = f + |y|. To hide f from the key owner, b adds r,
uniform over all of Z_N, and a fresh encryption of 0: without that the key owner could find from the ciphertext's
randomness which ciphertexts were multiplied. That hides them under a sound modulus only, so the key owner proves that
its own is (`paillier_proof`). The key owner decrypts T = f + r for the server, b sends R = r - |y|, and
the digits of T - R mod N are the distances.

Products come from tables of all 256 products of 8 neighbouring ciphertexts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.hamming import paillier_proof
from collegium.protocols.hamming.distances import ONLY_DISTANCES, Bits, Distances, checked_bits, in_range
from collegium.protocols.hamming.paillier_keys import (
    FEWEST_KEY_BITS,
    KEY_BITS,
    PrivateKey,
    PublicKey,
    ciphertexts,
    from_bytes,
    gmp,
    to_bytes,
)
from collegium.protocols.keys import Once
from collegium.protocols.primitives import Bytes
from collegium.protocols.received import as_bytes

if TYPE_CHECKING:
    from gmpy2 import mpz

LEARNS = ONLY_DISTANCES
_TABLE_BITS = 8


class Packing:
    """Rows as digits of numbers below N: how many rows in each number."""

    def __init__(self, rows: int, length: int, key_bits: int) -> None:
        self.base = length + 1
        most = 0
        while self.base ** (most + 1) < 1 << (key_bits - 1):
            most += 1
        self.numbers = -(-rows // most) if most else 0
        if not self.numbers:
            raise ProtocolError("key owner", f"has a key of {key_bits} bits: too short for sketches of {length} bits.")
        even = -(-rows // self.numbers)
        self.slices = [slice(start, min(start + even, rows)) for start in range(0, rows, even)]
        self.numbers = len(self.slices)

    def ones(self, number: int) -> int:
        """The number that has a 1 for each of its rows."""
        part = self.slices[number]
        return sum(self.base**u for u in range(part.stop - part.start))

    def packed(self, bits: Bits) -> Iterator[int]:
        """The plaintexts: for every number of rows, one per position."""
        for part in self.slices:
            digits = [self.base**u for u in range(part.stop - part.start)]
            for column in bits[part].T:
                yield sum(digits[u] for u in np.flatnonzero(column).tolist())

    def unpacked(self, number: int, value: mpz) -> list[int]:
        """The digits, one per row; the last may be too large if a site did not follow the protocol."""
        part = self.slices[number]
        digits = []
        for _ in range(part.stop - part.start - 1):
            value, digit = divmod(value, self.base)
            digits.append(int(digit))
        return [*digits, min(int(value), self.base)]


class KeyOwner:
    """Site a: encrypts once for all partners, and decrypts what each sends back."""

    def __init__(self, bits: Bits, key_bits: int = KEY_BITS, *, insecure: bool = False) -> None:
        bits = checked_bits(bits)
        self._key = PrivateKey(key_bits, insecure=insecure)
        self._proof = self._key.proof()
        self._packing = Packing(len(bits), bits.shape[1], self._key.bits)
        plaintexts = self._packing.packed(bits)
        self._encrypted = to_bytes([self._key.encrypt(each) for each in plaintexts], self._key.ciphertext_bytes)
        self._partners = Once("the ciphertexts as partner")

    def sketches(self) -> dict[str, Bytes]:
        """To every partner: the public key with its proof, and the encrypted sketches."""
        key = to_bytes([self._key.N], self._key.plaintext_bytes)[0]
        return {"key": key, "proof": self._proof, "sketches": self._encrypted}

    def share(self, partner: str, points: int, masked: object) -> dict[str, Bytes]:
        """To the server: a partner's masked results, decrypted. One answer to each partner."""
        count = self._packing.numbers * points
        results = ciphertexts(partner, self._key, masked, count)
        self._partners.use(partner)
        decrypted = to_bytes([self._key.decrypt(result) for result in results], self._key.plaintext_bytes)
        return {"key": to_bytes([self._key.N], self._key.plaintext_bytes)[0], "numbers": decrypted}


class Partner:
    """Site b: computes on the key owner's ciphertexts."""

    def __init__(self, bits: Bits, points_of_owner: int, owner: str, *, insecure: bool = False) -> None:
        self._bits = checked_bits(bits)
        self._rows, self._owner, self._insecure = points_of_owner, owner, insecure
        self._masks: Bytes | None = None

    def results(self, sketches: dict[str, Any]) -> Bytes:
        """To the key owner: masked results, re-randomized."""
        if self._masks is not None:
            raise Reused(self._owner, "sends its sketches a second time.")
        key = PublicKey(_modulus(self._owner, sketches.get("key"), self._insecure))
        roots = from_bytes(self._owner, sketches.get("proof"), paillier_proof.ROOTS, key.plaintext_bytes, key.N)
        paillier_proof.check(self._owner, key.N, roots)
        length = self._bits.shape[1]
        packing = Packing(self._rows, length, key.bits)
        encrypted = ciphertexts(self._owner, key, sketches.get("sketches"), packing.numbers * length)
        weights = self._bits.sum(axis=1).tolist()
        results, masks = [], []
        for number in range(packing.numbers):
            ones = packing.ones(number)
            products = _signed_products(key, encrypted[number * length : (number + 1) * length], self._bits)
            for product, weight in zip(products, weights, strict=True):
                r = secrets.randbelow(int(key.N))
                results.append(product * (1 + r * key.N) % key.N2 * key.zero() % key.N2)
                masks.append((r - weight * ones) % key.N)
        self._masks = to_bytes(masks, key.plaintext_bytes)
        return to_bytes(results, key.ciphertext_bytes)

    def share(self) -> Bytes:
        """To the server: the masks, less this site's own part of the distances."""
        if self._masks is None:
            raise ProtocolError(self._owner, "has not sent its sketches.")
        return self._masks


class Server:
    """Takes the masks off."""

    def __init__(self, rows: int, points: int, length: int, *, insecure: bool = False) -> None:
        self._rows, self._points, self._length, self._insecure = rows, points, length, insecure

    def distances(self, owner: str, of_owner: dict[str, Any], partner: str, of_partner: object) -> Distances:
        """The distances, of shape (points of the key owner, points of the partner)."""
        key = PublicKey(_modulus(owner, of_owner.get("key"), self._insecure))
        packing = Packing(self._rows, self._length, key.bits)
        count = packing.numbers * self._points
        decrypted = from_bytes(owner, of_owner.get("numbers"), count, key.plaintext_bytes, key.N)
        masks = from_bytes(partner, of_partner, count, key.plaintext_bytes, key.N)
        distances = np.empty((self._rows, self._points), np.int64)
        for i, (T, R) in enumerate(zip(decrypted, masks, strict=True)):
            number, point = divmod(i, self._points)
            distances[packing.slices[number], point] = packing.unpacked(number, (T - R) % key.N)
        return in_range(distances, self._length, owner, partner)


def _modulus(owner: str, raw: object, insecure: bool) -> int:
    N = int.from_bytes(as_bytes(owner, raw), "big")
    if N % 2 == 0 or (N.bit_length() < FEWEST_KEY_BITS and not insecure):
        raise ProtocolError(owner, f"sent a public key that is even, or shorter than {FEWEST_KEY_BITS} bits.")
    return N


def _signed_products(key: PublicKey, encrypted: list[mpz], bits: Bits) -> Iterator[mpz]:
    """For every sketch: the product of the ciphertexts where it is 0, divided by that where it is 1."""
    N2, invert = key.N2, gmp().invert
    tables = [_subset_products(encrypted[i : i + _TABLE_BITS], N2) for i in range(0, len(encrypted), _TABLE_BITS)]
    everything = tables[0][-1]
    for table in tables[1:]:
        everything = everything * table[-1] % N2
    for indices in np.packbits(bits, axis=1, bitorder="little").tolist():
        product = tables[0][indices[0]]
        for i in range(1, len(tables)):
            product = product * tables[i][indices[i]] % N2
        yield everything * invert(product * product % N2, N2) % N2


def _subset_products(factors: list[mpz], modulus: mpz) -> list[mpz]:
    """Entry s is the product of the factors whose bit is set in s."""
    products = [factors[0] ** 0]
    for factor in factors:
        products += [product * factor % modulus for product in products]
    return products
