"""What backend `bfv` needs of Microsoft SEAL (through tenseal): parameters, messages as bytes, and hiding noise.

Ring dimension 4096 and a modulus of 89 bits (109 with SEAL's special prime): 128-bit security by the table of the
Homomorphic Encryption Standard. Plaintexts are modulo a power of two just above the length of the sketches.
"""

from __future__ import annotations

import math
import os
import secrets
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import MissingExtra
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import check_length
from collegium.protocols.primitives import Bytes
from collegium.protocols.received import as_bytes

DEGREE: Final = 4096
_PRIME_BITS: Final = [45, 44, 20]
_HEADER: Final = 16
_LARGEST_OBJECT: Final = 1 << 20
_DESCRIPTORS: Final = Path("/proc/self/fd")


def seal() -> Any:
    """SEAL's own functions."""
    try:
        from tenseal import sealapi
    except ImportError:
        raise MissingExtra("bfv", "Hamming distances by backend 'bfv'") from None
    return sealapi


class Lattice:
    """The parameters for sketches of one length."""

    def __init__(self, length: int) -> None:
        check_length("Lattice", "bfv", length)
        self.plain_modulus = 1 << length.bit_length()
        api = seal()
        parameters = api.EncryptionParameters(api.SCHEME_TYPE.BFV)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(api.CoeffModulus.Create(DEGREE, _PRIME_BITS))
        parameters.set_plain_modulus(api.Modulus(self.plain_modulus))
        self.context = api.SEALContext(parameters, True, api.SEC_LEVEL_TYPE.TC128)
        self.primes = [prime.value() for prime in parameters.coeff_modulus()][:-1]
        self.top = self.context.first_parms_id()
        modulus = math.prod(self.primes)
        self._scale = modulus // self.plain_modulus
        # A quarter of the room for noise: what is computed has noise below 2^21, and needs next to nothing of it.
        self._noise_bits = int(self._scale // 4).bit_length() - 1

    @property
    def hiding_bits(self) -> int:
        """Which ciphertexts of an honest owner were multiplied is hidden in a result up to 2 to the minus this.

        What depends on it, in each coefficient: the sum of their noises (SEAL's: standard deviation 3.2, here up to 12
        of them), and what is left over where numbers exceed the plaintext's range.
        """
        differs = 2 * 12 * 3.2 * math.sqrt(self.plain_modulus) + 3 * self.plain_modulus
        return math.floor(self._noise_bits + 1 - math.log2(differs * DEGREE))

    def hiding(self, mask: NDArray[np.uint64]) -> Any:
        """A ciphertext without key that adds a mask to the plaintext, and uniform noise that drowns all other noise."""
        polynomials = np.zeros((2, len(self.primes), DEGREE), np.uint64)
        chunks = -(-(self._noise_bits + 1) // 16)
        random = np.frombuffer(secrets.token_bytes(2 * chunks * DEGREE), np.uint16).reshape(chunks, DEGREE).copy()
        random[0] &= (1 << (self._noise_bits + 1 - 16 * (chunks - 1))) - 1
        for i, prime in enumerate(self.primes):
            noise = np.zeros(DEGREE, np.uint64)
            for chunk in random:
                noise = ((noise << np.uint64(16)) | chunk) % np.uint64(prime)
            centre = np.uint64(prime - (1 << self._noise_bits) % prime)
            scaled = mask * np.uint64(self._scale % prime) % np.uint64(prime)
            polynomials[0, i] = (noise + centre + scaled) % np.uint64(prime)
        return self.load(seal().Ciphertext(), self._uncompressed(polynomials))

    def _uncompressed(self, polynomials: NDArray[np.uint64]) -> bytes:
        """A ciphertext in SEAL's file format, which SEAL itself writes compressed only."""
        size, primes, degree = polynomials.shape
        array = struct.pack("<Q", polynomials.size) + polynomials.tobytes()
        array = _framed(len(array)) + array
        fields = struct.pack("<4Q?QQQdQ", *self.top, False, size, degree, primes, 1.0, 1)
        return _framed(len(fields + array)) + fields + array

    def load(self, empty: Any, raw: bytes) -> Any:
        """Read one of SEAL's objects; SEAL checks that it fits the parameters."""
        with _private_file() as path:
            path.write_bytes(raw)
            empty.load(self.context, str(path))
        return empty

    def loaded(self, party: str, kind: str, raw: Bytes) -> Any:
        """An object that a peer sent."""
        content = as_bytes(party, raw)
        try:
            if len(content) > _LARGEST_OBJECT:
                raise ValueError("too large")
            read = self.load(getattr(seal(), kind)(), content)
        except (RuntimeError, ValueError, IndexError):
            raise ProtocolError(party, f"sent bytes that are not a {kind} under these parameters.") from None
        if kind == "Ciphertext" and (read.size() != 2 or read.is_ntt_form()):
            raise ProtocolError(party, "sent a ciphertext of another form than the protocol uses.")
        return read


@cache
def lattice(length: int) -> Lattice:
    """The parameters for sketches of that length."""
    return Lattice(length)


def saved(thing: Any) -> Bytes:
    """One of SEAL's objects as bytes."""
    with _private_file() as path:
        thing.save(str(path))
        return np.frombuffer(path.read_bytes(), np.uint8)


@contextmanager
def _private_file() -> Iterator[Path]:
    """Where SEAL writes and reads, since it knows files only, and secret keys are among what it writes.

    In memory where the system has such files; elsewhere on the disk, for this user only, and overwritten afterwards.
    """
    if _in_memory():
        descriptor = os.memfd_create("collegium", os.MFD_CLOEXEC)
        try:
            yield _DESCRIPTORS / str(descriptor)
        finally:
            os.close(descriptor)
        return
    descriptor, name = tempfile.mkstemp()  # mode 0600
    os.close(descriptor)
    path = Path(name)
    try:
        yield path
    finally:
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _in_memory() -> bool:
    return hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir()


def polynomial(coefficients: NDArray[np.integer[Any]]) -> Any:
    """A plaintext with these coefficients, the constant first."""
    terms = [f"{coefficients[i]:X}x^{i}" for i in np.flatnonzero(coefficients[1:])[::-1] + 1]
    return seal().Plaintext(" + ".join([*terms, f"{coefficients[0]:X}"]))


@cache
def _version() -> bytes:
    """The bytes of a file's header that give the format's version."""
    return bytes(saved(seal().Plaintext("1"))[3:5])


def _framed(size: int) -> bytes:
    """The header of an uncompressed object of that size."""
    return struct.pack("<HB2sBHQ", 0xA15E, _HEADER, _version(), 0, 0, _HEADER + size)
