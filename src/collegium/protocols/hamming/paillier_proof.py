"""A proof that a Paillier modulus is sound, since a key owner could make one that betrays its partners.

From the randomness of the results, the owner of a bad modulus reads which ciphertexts a partner multiplied. The proof
consists of roots of numbers that a hash of N determines (Goldberg, Reyzin, Sagga, Baldimtsi: "Efficient Noninteractive
Certification of RSA Moduli and Beyond", ASIACRYPT 2019). But for a probability of 2^-128 it shows:

- N-th roots, and no prime factor below 2^19: gcd(N, phi(N)) = 1, so that every number is an encryption of one
  plaintext, with randomness that fresh encryptions of 0 hide.
- Square roots of the numbers, their doubles, or the negatives of either; N = 5 mod 8, and N not prime: N = p q with
  p = 3 and q = 7 mod 8, so that the group of squares has no elements of even order.
- E-th roots, E the product of the odd primes below 257: nor has it elements of such an order. So a few random squares
  generate all of it, as `PublicKey.zero` assumes.

It is a statement about N alone: who sends it, and how often, does not matter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from collegium.protocols.errors import ProtocolError
from collegium.protocols.primitives import bind, crypto_extra

if TYPE_CHECKING:
    from gmpy2 import mpz

SMALLEST_ORDER: Final = 257
_SMALLEST_FACTOR: Final = 1 << 19
_COUNTS: Final = {"N": 7, "E": 81, "square": 128}
"""Each root of a kind is there by chance with a probability of at most 2^-19, 1/3 and 1/2."""
ROOTS: Final = sum(_COUNTS.values())


def prove(p: mpz, q: mpz) -> list[mpz]:
    """The roots, by those who know the factors p = 3 and q = 7 mod 8."""
    N, order = p * q, (p - 1) * (q - 1)
    by_exponent = {"N": _gmp().invert(N, order), "E": _gmp().invert(_small_orders(), order)}
    roots = []
    for kind, number in _challenges(N):
        if kind == "square":
            number = next(each for each in _variants(number) if all(_gmp().jacobi(each, f) == 1 for f in (p, q)))
            exponents = (p + 1) // 4, (q + 1) // 4
        else:
            exponents = by_exponent[kind] % (p - 1), by_exponent[kind] % (q - 1)
        a, b = (_gmp().powmod(number, exponent, f) for exponent, f in zip(exponents, (p, q), strict=True))
        roots.append(a + p * ((b - a) * _gmp().invert(p, q) % q))
    return roots


def check(owner: str, N: mpz, roots: list[mpz]) -> None:
    """A ProtocolError that names the owner unless these are such roots."""
    gmp = _gmp()
    fits = N % 8 == 5 and gmp.gcd(N, gmp.primorial(_SMALLEST_FACTOR)) == 1 and not gmp.is_prime(N)
    exponents = {"N": N, "E": _small_orders(), "square": 2}
    for (kind, number), root in zip(_challenges(N), roots, strict=True):
        fits = fits and gmp.gcd(root, N) == 1
        power = gmp.powmod(root, exponents[kind], N) if fits else None
        fits = fits and power in ([each % N for each in _variants(number)] if kind == "square" else [number])
    if not fits:
        raise ProtocolError(owner, "sent a public key without a proof that it is sound.")


def _challenges(N: mpz) -> list[tuple[str, mpz]]:
    size = -(-N.bit_length() // 8) + 16
    numbers = []
    for kind, count in _COUNTS.items():
        for i in range(count):
            drawn = hashlib.shake_256(bind("collegium paillier modulus v1", int(N), kind, i)).digest(size)
            numbers.append((kind, _gmp().mpz(int.from_bytes(drawn, "big")) % N))
    return numbers


def _variants(number: mpz) -> tuple[mpz, ...]:
    return number, -number, 2 * number, -2 * number


def _small_orders() -> mpz:
    return _gmp().primorial(SMALLEST_ORDER - 1) // 2


def _gmp() -> Any:
    with crypto_extra("Paillier encryption"):
        import gmpy2
    return gmpy2
