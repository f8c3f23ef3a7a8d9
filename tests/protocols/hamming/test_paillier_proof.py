"""The proof that a key owner's modulus is sound: right ones pass, and those that betray a partner do not."""

from __future__ import annotations

import secrets
from math import prod
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from collegium.protocols import ProtocolError
from collegium.protocols.hamming import paillier_proof
from collegium.protocols.hamming.paillier import KeyOwner, Partner
from collegium.protocols.hamming.paillier_keys import PrivateKey, PublicKey, to_bytes

pytestmark = pytest.mark.xdist_group("Paillier")
A = np.random.default_rng(0).integers(0, 2, (5, 30), dtype=np.uint8)


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey(512, insecure=True)


def prime(bits: int, remainder: int, multiple: Any = 1) -> mpz:
    """A prime that is `remainder` mod 8, and 1 modulo `multiple`."""
    while True:
        p = multiple * mpz(secrets.randbits(bits)) * 2 + 1
        if p % 8 == remainder and gmpy2.is_prime(p):
            return p


def forged(factors: list[mpz]) -> list[mpz]:
    """The best that somebody who knows the factors can do: roots where there are any, otherwise something."""
    N, order = mpz(prod(factors)), prod(p - 1 for p in factors)
    roots = []
    for kind, number in paillier_proof._challenges(N):
        root = mpz(2)
        if kind == "square":
            for each in paillier_proof._variants(number):
                if len(set(factors)) == len(factors) and all(
                    gmpy2.jacobi(each, p) == 1 and p % 4 == 3 for p in factors
                ):
                    parts = [gmpy2.powmod(each, (p + 1) // 4, p) for p in factors]
                    root = sum(
                        part * (N // p) * gmpy2.invert(N // p, p) for part, p in zip(parts, factors, strict=True)
                    )
        else:
            exponent = N if kind == "N" else paillier_proof._small_orders()
            rest = order
            while (common := gmpy2.gcd(rest, exponent)) > 1:  # a root exists in the part that has none of its factors
                rest //= common
            root = gmpy2.powmod(number, gmpy2.invert(exponent, rest), N)
        roots.append(root % N)
    return roots


def test_a_sound_modulus_passes(key: PrivateKey) -> None:
    paillier_proof.check("a", key.N, paillier_proof.prove(key._p, key._q))
    paillier_proof.check("a", key.N, forged([key._p, key._q]))  # whoever knows the factors of a sound one can


def bad_moduli() -> dict[str, list[mpz]]:
    large = gmpy2.next_prime(mpz(1) << 60)
    p = prime(200, 3, large)
    return {
        "gcd(N, phi(N)) is large: the randomness tells which ciphertexts were multiplied": [p, large],
        "the same with small factors, as in the attack that read 1536 of 1536 bits": [
            prime(200, 3, gmpy2.next_prime(mpz(1 << 13))), gmpy2.next_prime(mpz(1 << 13)),
        ],
        "p - 1 and q - 1 share small factors": [prime(200, 3, mpz(105)), prime(200, 7, mpz(105))],
        "three factors": [prime(150, 3), prime(150, 7), prime(150, 1)],
        "elements of even order": [prime(200, 5), prime(200, 1)],
        "a prime": [prime(400, 5)],
        "a square": [p, p],
    }  # fmt: skip


@pytest.mark.parametrize("kind", list(bad_moduli()))
def test_an_owner_with_a_modulus_that_betrays_its_partner_is_refused(kind: str) -> None:
    factors = bad_moduli()[kind]
    key = PublicKey(int(prod(factors)))
    message = {
        "key": to_bytes([key.N], key.plaintext_bytes)[0],
        "proof": to_bytes(forged(factors), key.plaintext_bytes),
        "sketches": None,
    }
    with pytest.raises(ProtocolError, match="'a' sent a public key without a proof"):
        Partner(A, 5, "a", insecure=True).results(message)


def test_no_root_can_be_left_out_or_changed(key: PrivateKey) -> None:
    message = KeyOwner(A, 256, insecure=True).sketches()
    proof = message["proof"]
    for bad in (None, proof[1:], np.zeros_like(proof)):
        with pytest.raises(ProtocolError, match="'a' sent"):
            Partner(A, 5, "a", insecure=True).results(message | {"proof": bad})
    for row in (0, 7, 88, len(proof) - 1):
        changed = proof.copy()
        changed[row, -1] ^= 1
        with pytest.raises(ProtocolError, match="without a proof"):
            Partner(A, 5, "a", insecure=True).results(message | {"proof": changed})


def test_fresh_zeros_hide_randomness_in_a_group_with_two_generators() -> None:
    """p - 1 and q - 1 share a factor of 257, which the proof allows: powers of one base would reach 257 of 257^2."""
    p, q = prime(60, 3, mpz(257)), prime(60, 7, mpz(257))
    key = PublicKey(int(p * q))
    seen = set()
    for _ in range(2000):
        zero = key.zero()
        seen.add(tuple(int(gmpy2.powmod(zero, (f - 1) // 257, f)) for f in (p, q)))
    assert len(seen) > 1900
