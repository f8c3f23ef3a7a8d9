"""Very many oblivious transfers from 128 (Ishai, Kilian, Nissim and Petrank 2003), with a check of the receiver.

Transfers come in batches, each with its own number; a batch's number is used once. Random transfers: the sender
gets two random blocks per transfer, the receiver the one that it chose.

A receiver that encodes other choices in some of the 128 columns than in the rest could learn the sender's secret from
later answers. So it also sends hashes, linear over bits, of its choices and its columns, and the sender compares them
with those of its own columns: the check of Roy, "SoftSpokenOT", CRYPTO 2022, which also shows why an earlier one
(Keller, Orsini, Scholl 2015) has no proof. The hash is determined by the request. A receiver that tries to learn j
bits of the secret is found with probability 1 - 2^-j. 128 random choices more hide the others from the hash.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from numpy.typing import NDArray

from collegium.protocols import primitives
from collegium.protocols.errors import ProtocolError
from collegium.protocols.keys import Once
from collegium.protocols.oblivious.base import TRANSFERS, BaseReceiver, BaseSender
from collegium.protocols.oblivious.hashing import BLOCK_BYTES, TRANSFER, Blocks, hashed, tweaks
from collegium.protocols.primitives import Bytes
from collegium.protocols.received import as_array

Bits = NDArray[np.uint8]


class ExtensionReceiver:
    """Has choice bits; is the sender of the base transfers."""

    def __init__(self, pair: str, peer: str) -> None:
        self._base = BaseSender(pair, peer)
        self._secrets: list[tuple[bytes, bytes]] = []
        self._batches = Once("batch")
        self._peer = peer

    def offer(self) -> Bytes:
        """First message, to the sender."""
        return self._base.offer()

    def prepare(self, answer: Bytes) -> None:
        """Take the sender's answer to the offer."""
        self._secrets = self._base.secrets(answer)

    def request(self, batch: int, first: int, choices: Bits) -> tuple[Bytes, Blocks]:
        """Ask for a batch of transfers, the first of which has number `first`: the message, and the blocks chosen."""
        self._batches.use("this site", str(batch))
        size = _columns(choices.size)
        chosen = np.frombuffer(secrets.token_bytes(size), np.uint8).copy()
        packed = np.packbits(choices, bitorder="little")
        chosen[: packed.size] = packed
        start = batch.to_bytes(8, "big") + bytes(8)
        zeros = np.stack([primitives.stream(zero, size, start) for zero, _ in self._secrets])
        message = np.stack([primitives.stream(one, size, start) for _, one in self._secrets])
        message ^= zeros
        message ^= chosen
        hashes = _linear_hashes(message, np.vstack([chosen, zeros]))
        request = np.concatenate([message.reshape(-1), hashes.reshape(-1)])
        return request, hashed(transposed(zeros)[: choices.size], _numbers(first, choices.size))


class ExtensionSender:
    """Gets both blocks of every transfer; is the receiver of the base transfers."""

    def __init__(self, pair: str, peer: str) -> None:
        self._base = BaseReceiver(pair, peer)
        self._secrets: list[bytes] = []
        self._batches = Once("batch")
        self._peer = peer

    def answer(self, offer: Bytes) -> Bytes:
        """Answer the receiver's offer."""
        message, self._secrets = self._base.answer(offer)
        return message

    def transfers(self, batch: int, first: int, count: int, request: Bytes) -> tuple[Blocks, Blocks]:
        """Both blocks of each of the transfers that the receiver asks for."""
        size = _columns(count)
        request = as_array(self._peer, request, np.uint8, (TRANSFERS * size + (TRANSFERS + 1) * BLOCK_BYTES,))
        asked, hashes = request[: TRANSFERS * size].reshape(TRANSFERS, size), request[TRANSFERS * size :]
        self._batches.use(self._peer, str(batch))
        start = batch.to_bytes(8, "big") + bytes(8)
        columns = np.stack([primitives.stream(secret, size, start) for secret in self._secrets])
        columns ^= asked * self._base.choices[:, None]
        of_choices, *of_columns = hashes.reshape(-1, BLOCK_BYTES)
        if not np.array_equal(_linear_hashes(asked, columns), of_columns ^ of_choices * self._base.choices[:, None]):
            raise ProtocolError(self._peer, "asks for other transfers in some columns than in others.")
        rows = transposed(columns)[:count]
        offset = np.packbits(self._base.choices, bitorder="little").view(np.uint64)
        numbers = _numbers(first, count)
        return hashed(rows, numbers), hashed(rows ^ offset, numbers)


def transposed(columns: Bytes) -> Blocks:
    """Bits of shape (128, m), packed along m with the lowest first, to m blocks of 128 bits."""
    width = columns.shape[1]
    # Eight rows by eight bits at a time: bytes of eight rows side by side make a word, whose bits are transposed.
    tiles = np.ascontiguousarray(columns.reshape(16, 8, width).transpose(2, 0, 1)).view(np.uint64)[..., 0]
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
        swap = (tiles ^ (tiles >> np.uint64(shift))) & np.uint64(mask)
        tiles ^= swap ^ (swap << np.uint64(shift))
    by_transfer = tiles.view(np.uint8).reshape(width, 16, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(by_transfer).view(np.uint64).reshape(8 * width, 2)


def _linear_hashes(request: Bytes, columns: Bytes) -> Bytes:
    """GHASH of each column, under a key that the request determines: polynomials in it, so sums hash to sums."""
    with primitives.crypto_extra("Oblivious transfer"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    cipher = AESGCM(hashlib.sha256(b"collegium ot check v1" + request.tobytes()).digest())
    # A tag of data that is not encrypted is its GHASH plus a constant, which is the tag of zeros.
    tags = [cipher.encrypt(bytes(12), b"", column.tobytes()) for column in (*columns, np.zeros_like(columns[0]))]
    blocks: Bytes = np.frombuffer(b"".join(tags), np.uint8).reshape(-1, BLOCK_BYTES)
    return np.asarray(blocks[:-1] ^ blocks[-1])


def _columns(transfers: int) -> int:
    """Bytes of a column: whole blocks, and one more of random choices."""
    return (-(-transfers // (8 * BLOCK_BYTES)) + 1) * BLOCK_BYTES


def _numbers(first: int, count: int) -> NDArray[np.uint64]:
    return tweaks(TRANSFER, np.arange(first, first + count, dtype=np.uint64))
