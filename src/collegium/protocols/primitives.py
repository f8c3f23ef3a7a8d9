"""The few cryptographic functions that everything else is made of, on top of the package `cryptography`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from collegium.errors import MissingExtra

KEY_BYTES = 32
Bytes = NDArray[np.uint8]


@contextmanager
def crypto_extra(what: str) -> Iterator[None]:
    """Say which extra is missing where an import inside fails."""
    try:
        yield
    except ImportError:
        raise MissingExtra("crypto", what) from None


def bind(*parts: str | bytes | int) -> bytes:
    """Join parts so that no two different lists of parts give the same bytes."""
    joined = b""
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        joined += len(raw).to_bytes(4, "big") + raw
    return joined


def x25519(secret: bytes, public: bytes) -> bytes:
    """The shared secret of RFC 7748; ValueError for a public key that would make it constant."""
    with crypto_extra("Agreeing on keys between sites"):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))


def x25519_public(secret: bytes) -> bytes:
    """The public key that belongs to a secret one."""
    with crypto_extra("Agreeing on keys between sites"):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def ed25519_public(secret: bytes) -> bytes:
    """The public key with which signatures are checked."""
    with crypto_extra("A site's identity key"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sign(secret: bytes, message: bytes) -> bytes:
    """An Ed25519 signature."""
    with crypto_extra("A site's identity key"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is right."""
    with crypto_extra("A site's identity key"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def hkdf(secret: bytes, info: bytes, size: int = KEY_BYTES, salt: bytes | None = None) -> bytes:
    """HKDF with SHA-256 (RFC 5869)."""
    with crypto_extra("Deriving keys"):
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    return HKDF(hashes.SHA256(), size, salt, info).derive(secret)


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, bound: bytes) -> bytes:
    """ChaCha20-Poly1305 (RFC 8439): the ciphertext and its tag; `bound` must be the same when it is opened."""
    with crypto_extra("Encrypting what sites say to each other"):
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    return ChaCha20Poly1305(key).encrypt(nonce, plaintext, bound)


def decrypt(key: bytes, nonce: bytes, ciphertext: bytes, bound: bytes) -> bytes | None:
    """Undo `encrypt`; None where key, nonce, ciphertext or what it is bound to is not the one it was made with."""
    with crypto_extra("Encrypting what sites say to each other"):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, bound)
    except InvalidTag:
        return None


def stream(key: bytes, size: int, start: bytes = bytes(16)) -> Bytes:
    """Pseudo-random bytes: AES in counter mode, the counter beginning at `start`."""
    with crypto_extra("Random streams that two sites share"):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    encryptor = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    out = np.empty(size + 15, np.uint8)  # update_into asks for a block less one of room
    encryptor.update_into(bytes(size), out.data)
    return out[:size]
