"""Paillier's cryptosystem with fast encryption, on gmpy2.

A ciphertext of m is (1 + m N) rho mod N^2, rho a random N-th power. Raising to the power N each time would take most
of the protocol's time. Instead, powers of fixed random bases are multiplied from tables. That draws rho uniformly from
the group of N-th powers of squares if the bases generate it. For the key owner itself, one random square does: the
primes are made such that (p - 1) / 2 and (q - 1) / 2 have two large prime factors each and no common one. Partners
must not rely on that: by the owner's proof (`paillier_proof`) the group has two generators and no elements of an order
below 257, and of such a group 20 random squares, with exponents that are longer than the order together, draw all
elements alike up to 2^-64. Nothing is assumed beyond Paillier's own assumption.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collegium.errors import ConfigError
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import paillier_proof
from collegium.protocols.primitives import Bytes, crypto_extra
from collegium.protocols.received import as_array

if TYPE_CHECKING:
    from gmpy2 import mpz

KEY_BITS: Final = 3072
FEWEST_KEY_BITS: Final = 3072
_WINDOW: Final = 8
_BASES: Final = 20
_SLACK_BITS: Final = 128  # exponents longer than the group's order by this much are uniform but for 2^-128
_FACTOR_BITS: Final = 256
_TRIAL_PRIMES: Final = 2000


class FixedBase:
    """Products of random powers of bases, from tables of their powers; all exponents together are so long."""

    def __init__(self, bases: Sequence[mpz], modulus: mpz, exponent_bits: int) -> None:
        self._modulus = modulus
        each = -(-(exponent_bits + _SLACK_BITS) // (_WINDOW * len(bases)))
        self._bytes = each * len(bases)
        self._tables: list[list[mpz]] = []
        for base in bases:
            for _ in range(each):
                row = [base**0]
                for _ in range((1 << _WINDOW) - 1):
                    row.append(row[-1] * base % modulus)
                self._tables.append(row)
                base = row[-1] * base % modulus

    def random_power(self) -> mpz:
        """A random product."""
        modulus, exponent = self._modulus, secrets.token_bytes(self._bytes)
        power = self._tables[0][exponent[0]]
        for i in range(1, self._bytes):
            power = power * self._tables[i][exponent[i]] % modulus
        return power


class PublicKey:
    """The modulus N: encrypts and re-randomizes."""

    def __init__(self, N: int) -> None:
        self.N = _mpz(N)
        self.N2 = self.N * self.N
        self.bits = int(self.N.bit_length())

    def __getstate__(self) -> dict[str, object]:
        # Tables of powers are large, and quickly made again.
        return {name: value for name, value in vars(self).items() if not name.startswith("_zeros")}

    @cached_property
    def _zeros(self) -> FixedBase:
        squares = [_mpz(_unit(int(self.N))) ** 2 % self.N for _ in range(_BASES)]
        return FixedBase([_powmod(square, self.N, self.N2) for square in squares], self.N2, self.bits + _SLACK_BITS)

    def zero(self) -> mpz:
        """A fresh encryption of 0."""
        return self._zeros.random_power()

    @property
    def ciphertext_bytes(self) -> int:
        """The size of a ciphertext."""
        return -(-2 * self.bits // 8)

    @property
    def plaintext_bytes(self) -> int:
        """The size of a plaintext."""
        return -(-self.bits // 8)


class PrivateKey(PublicKey):
    """The factors of N: encrypts several times as fast, and decrypts."""

    def __init__(self, bits: int = KEY_BITS, *, insecure: bool = False) -> None:
        if bits < FEWEST_KEY_BITS and not insecure:
            raise ConfigError(f"A Paillier key of {bits} bits is too short to be safe: use at least {FEWEST_KEY_BITS}.")
        self._p, self._q = _primes(bits // 2)
        super().__init__(int(self._p * self._q))
        self._p2, self._q2 = self._p**2, self._q**2
        self._p2_inverse = _powmod(self._p2, -1, self._q2)
        self._p_inverse = _powmod(self._p, -1, self._q)
        # What decryption mod p has to be divided by: L((1 + N)^(p-1) mod p^2), and the same for q.
        self._hp = _powmod(-self._q % self._p, -1, self._p)
        self._hq = _powmod(-self._p % self._q, -1, self._q)

    @cached_property
    def _zeros_by_factor(self) -> tuple[FixedBase, FixedBase]:
        square_p, square_q = (_mpz(_unit(int(prime))) ** 2 for prime in (self._p, self._q))
        return (
            FixedBase([_powmod(square_p, self._p, self._p2)], self._p2, self._p.bit_length()),
            FixedBase([_powmod(square_q, self._q, self._q2)], self._q2, self._q.bit_length()),
        )

    def zero(self) -> mpz:
        """A fresh encryption of 0: random powers modulo p^2 and q^2, put together."""
        powers_p, powers_q = self._zeros_by_factor
        a, b = powers_p.random_power(), powers_q.random_power()
        return a + self._p2 * ((b - a) * self._p2_inverse % self._q2)

    def encrypt(self, plaintext: mpz) -> mpz:
        """A fresh encryption."""
        return (1 + plaintext * self.N) * self.zero() % self.N2

    def decrypt(self, ciphertext: mpz) -> mpz:
        """The plaintext, by way of its remainders modulo p and q."""
        a = (_powmod(ciphertext, self._p - 1, self._p2) - 1) // self._p * self._hp % self._p
        b = (_powmod(ciphertext, self._q - 1, self._q2) - 1) // self._q * self._hq % self._q
        return a + self._p * ((b - a) * self._p_inverse % self._q)

    def proof(self) -> Bytes:
        """That N is sound, for partners."""
        return to_bytes(paillier_proof.prove(self._p, self._q), self.plaintext_bytes)

    @property
    def public(self) -> PublicKey:
        """The half for others."""
        return PublicKey(int(self.N))


def to_bytes(numbers: Sequence[mpz], size: int) -> Bytes:
    """Numbers as rows of bytes."""
    joined = b"".join(int(number).to_bytes(size, "big") for number in numbers)
    return np.frombuffer(joined, np.uint8).reshape(len(numbers), size)


def from_bytes(party: str, rows: object, count: int, size: int, below: mpz) -> list[mpz]:
    """Numbers that a peer sent: so many, each below a limit."""
    numbers = [_mpz(int.from_bytes(row.tobytes(), "big")) for row in as_array(party, rows, np.uint8, (count, size))]
    if any(number >= below for number in numbers):
        raise ProtocolError(party, "sent a number out of range.")
    return numbers


def ciphertexts(party: str, key: PublicKey, rows: object, count: int) -> list[mpz]:
    """Ciphertexts that a peer sent: numbers without a factor in common with N."""
    numbers = from_bytes(party, rows, count, key.ciphertext_bytes, key.N2)
    product = _mpz(1)
    for number in numbers:
        product = product * number % key.N
    if math.gcd(int(product), int(key.N)) != 1:
        raise ProtocolError(party, "sent a number that is not a ciphertext under its key.")
    return numbers


def gmp() -> Any:
    """The arithmetic of large numbers."""
    with crypto_extra("Paillier encryption"):
        import gmpy2
    return gmpy2


def _mpz(value: int) -> mpz:
    return gmp().mpz(value)


def _powmod(base: mpz, exponent: mpz | int, modulus: mpz) -> mpz:
    return gmp().powmod(base, exponent, modulus)


def _unit(N: int) -> int:
    while math.gcd(value := secrets.randbelow(N), N) != 1:
        pass
    return value


def _primes(bits: int) -> tuple[mpz, mpz]:
    """Two primes 2 a b + 1 of that many bits, all factors large; p q has 2 `bits` bits, p is 3 and q is 7 mod 8."""
    p = _structured_prime(bits, 3)
    q = p
    while q == p or math.gcd(int(p - 1), int(q - 1)) != 2:
        q = _structured_prime(bits, 7)
    return p, q


def _structured_prime(bits: int, remainder: int) -> mpz:
    next_prime = gmp().next_prime
    small = gmp().primorial(_TRIAL_PRIMES)
    factor_bits = min(_FACTOR_BITS, bits // 4)
    # The highest two bits are set in p, so that the product of two such primes has its full length.
    low, high = _mpz(3 << (bits - 2)), _mpz(1 << bits)
    large = next_prime(_mpz(secrets.randbits(bits - factor_bits) | 1 << (bits - factor_bits - 1)))
    while True:
        lowest, highest = low // (2 * large) + 1, high // (2 * large)
        factor = next_prime(lowest + secrets.randbelow(int(highest - lowest)))
        p = 2 * large * factor + 1
        if p % 8 == remainder and p < high and math.gcd(int(p), int(small)) == 1 and gmp().is_prime(p, 40):
            return p
