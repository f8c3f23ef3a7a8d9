"""Hamming distances under lattice encryption (BFV): between `ot` and `paillier` in traffic and in work.

Site a, the key owner, encrypts its sketches once, for all partners: coefficient 512 i + u of a polynomial is bit i (of
8) of row u (of 512). Site b multiplies with sum_i s_i X^(-512 i), s = 1 - 2 y, and adds over all bits: the first 512
coefficients are f = sum_l x_l (1 - 2 y_l), and h = f + |y|. It adds a fresh encryption of 0, a mask that is uniform in
every coefficient, and noise that drowns that of the computation, from which the key owner could otherwise tell which
ciphertexts were multiplied. The key owner decrypts T = f + r for the server; b sends R = r - |y|.

The key owner is trusted to encrypt as agreed: noise of its own making, larger than SEAL's, would not be drowned.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.hamming.distances import ONLY_DISTANCES, Bits, Distances, checked_bits, in_range, word
from collegium.protocols.hamming.lattice import DEGREE, lattice, polynomial, saved, seal
from collegium.protocols.keys import Once
from collegium.protocols.primitives import Bytes
from collegium.protocols.received import as_array

LEARNS = ONLY_DISTANCES
_BITS: Final = 8
_ROWS: Final = DEGREE // _BITS
_POINTS_AT_A_TIME: Final = 512  # each sum under way takes 128 KiB


class KeyOwner:
    """Site a: encrypts once for all partners, and decrypts what each sends back."""

    def __init__(self, bits: Bits) -> None:
        bits = checked_bits(bits)
        self._rows, self._length = bits.shape
        params, api = lattice(self._length), seal()
        keys, public = api.KeyGenerator(params.context), api.PublicKey()
        keys.create_public_key(public)
        self._public, self._secret = saved(public), saved(keys.secret_key())
        encryptor = api.Encryptor(params.context, public, keys.secret_key())
        padded = np.zeros((_groups(self._rows) * _ROWS, _tiles(self._length) * _BITS), np.uint8)
        padded[: self._rows, : self._length] = bits
        tiles = padded.reshape(-1, _ROWS, _tiles(self._length), _BITS).transpose(0, 2, 3, 1).reshape(-1, DEGREE)
        # Encryption with the secret key: half of the ciphertext is a seed.
        self._sketches = [saved(encryptor.encrypt_symmetric(polynomial(tile))) for tile in tiles]
        self._partners = Once("the ciphertexts as partner")

    def sketches(self) -> dict[str, Any]:
        """To every partner: the public key and the encrypted sketches."""
        return {"key": self._public, "sketches": self._sketches}

    def share(self, partner: str, points: int, masked: object) -> NDArray[Any]:
        """To the server: a partner's masked results, decrypted. One answer to each partner."""
        params, api = lattice(self._length), seal()
        results = _list(partner, masked, _groups(self._rows) * points)
        loaded = [params.loaded(partner, "Ciphertext", result) for result in results]
        self._partners.use(partner)
        decryptor = api.Decryptor(params.context, params.load(api.SecretKey(), self._secret.tobytes()))
        values = np.zeros((_groups(self._rows), points, _ROWS), word(self._length))
        plain = api.Plaintext()
        for i, result in enumerate(loaded):
            decryptor.decrypt(result, plain)
            count = min(_ROWS, plain.coeff_count())
            values[divmod(i, points)][:count] = [plain[u] for u in range(count)]
        return np.ascontiguousarray(values.transpose(0, 2, 1).reshape(-1, points)[: self._rows])


class Partner:
    """Site b: computes on the key owner's ciphertexts."""

    def __init__(self, bits: Bits, points_of_owner: int, owner: str) -> None:
        self._bits, self._rows, self._owner = checked_bits(bits), points_of_owner, owner
        self._share: NDArray[Any] | None = None

    def results(self, message: dict[str, Any]) -> list[Bytes]:
        """To the key owner: masked results, re-randomized and with hiding noise."""
        if self._share is not None:
            raise Reused(self._owner, "sends its sketches a second time.")
        points, length = self._bits.shape
        params, api, tiles = lattice(length), seal(), _tiles(length)
        sketches = _list(self._owner, message.get("sketches"), _groups(self._rows) * tiles)
        key = message.get("key")
        if not isinstance(key, np.ndarray):
            raise ProtocolError(self._owner, "sent no public key.")
        encryptor = api.Encryptor(params.context, params.loaded(self._owner, "PublicKey", key))
        evaluator = api.Evaluator(params.context)
        share = np.empty((_groups(self._rows), _ROWS, points), word(length))
        weights = self._bits.sum(axis=1, dtype=np.int64)
        out = []
        for group in range(_groups(self._rows)):
            encrypted = [params.loaded(self._owner, "Ciphertext", each) for each in sketches[group * tiles :][:tiles]]
            for point, total in enumerate(self._signed_sums(evaluator, encrypted)):
                zero = api.Ciphertext()
                encryptor.encrypt_zero(zero)
                mask = np.frombuffer(secrets.token_bytes(8 * DEGREE), np.uint64) & np.uint64(params.plain_modulus - 1)
                evaluator.add_inplace(total, zero)
                evaluator.add_inplace(total, params.hiding(mask))
                evaluator.mod_switch_to_next_inplace(total)  # the modulus' other half was room for the noise
                out.append(saved(total))
                hidden = mask[:_ROWS].astype(np.int64) - weights[point]
                share[group, :, point] = hidden & (params.plain_modulus - 1)
        self._share = share.reshape(-1, points)[: self._rows]
        return out

    def _signed_sums(self, evaluator: Any, encrypted: list[Any]) -> Iterator[Any]:
        """For every sketch, the sum over its bits of the owner's bits, signed."""
        api, params = seal(), lattice(self._bits.shape[1])
        patterns = [_signs(pattern, params.plain_modulus) for pattern in range(1 << _BITS)]
        for pattern in patterns:
            evaluator.transform_to_ntt_inplace(pattern, params.top)
        for tile in encrypted:
            evaluator.transform_to_ntt_inplace(tile)
        products = [api.Ciphertext() for _ in patterns]
        packed = np.packbits(self._bits, axis=1, bitorder="little")
        for start in range(0, len(packed), _POINTS_AT_A_TIME):
            columns = packed[start : start + _POINTS_AT_A_TIME].T.tolist()
            totals = [api.Ciphertext() for _ in columns[0]]
            for total, first in zip(totals, columns[0], strict=True):
                evaluator.multiply_plain(encrypted[0], patterns[first], total)
            for column, tile in zip(columns[1:], encrypted[1:], strict=True):
                for used in set(column):
                    evaluator.multiply_plain(tile, patterns[used], products[used])
                for total, chosen in zip(totals, column, strict=True):
                    evaluator.add_inplace(total, products[chosen])
            for total in totals:
                evaluator.transform_from_ntt_inplace(total)
            yield from totals

    def share(self) -> NDArray[Any]:
        """To the server: the masks, less this site's own part of the distances."""
        if self._share is None:
            raise ProtocolError(self._owner, "has not sent its sketches.")
        return self._share


class Server:
    """Takes the masks off."""

    def __init__(self, rows: int, points: int, length: int) -> None:
        self._shape, self._length = (rows, points), length

    def distances(self, owner: str, of_owner: object, partner: str, of_partner: object) -> Distances:
        """The distances, of shape (points of the key owner, points of the partner)."""
        plain = as_array(owner, of_owner, word(self._length), self._shape)
        masks = as_array(partner, of_partner, word(self._length), self._shape)
        difference = (plain - masks) & ((1 << self._length.bit_length()) - 1)
        return in_range(difference, self._length, owner, partner)


def _signs(pattern: int, plain_modulus: int) -> Any:
    """sum_i s_i X^(-512 i): X^4096 is -1, so that X^(-k) is -X^(4096 - k)."""
    coefficients = np.zeros(DEGREE, np.int64)
    for i in range(_BITS):
        sign = -1 if pattern >> i & 1 else 1
        coefficients[-i * _ROWS % DEGREE] = sign if i == 0 else -sign
    return polynomial(coefficients % plain_modulus)


def _groups(rows: int) -> int:
    return -(-rows // _ROWS)


def _tiles(length: int) -> int:
    return -(-length // _BITS)


def _list(party: str, items: object, count: int) -> list[Any]:
    if not isinstance(items, list) or len(items) != count:
        raise ProtocolError(party, f"sent something other than a list of {count} ciphertexts.")
    return items
