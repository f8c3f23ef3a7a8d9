"""Very many oblivious transfers from 128 (Ishai, Kilian, Nissim and Petrank 2003).

Transfers come in batches, each with its own number; a batch's number is used once. Random transfers: the sender
gets two random blocks per transfer, the receiver the one that it chose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collegium.protocols import primitives
from collegium.protocols.keys import Once
from collegium.protocols.oblivious.base import TRANSFERS, BaseReceiver, BaseSender
from collegium.protocols.oblivious.hashing import TRANSFER, Blocks, hashed, tweaks
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
        chosen = np.zeros(size, np.uint8)
        packed = np.packbits(choices, bitorder="little")
        chosen[: packed.size] = packed
        start = batch.to_bytes(8, "big") + bytes(8)
        zeros = np.stack([primitives.stream(zero, size, start) for zero, _ in self._secrets])
        message = np.stack([primitives.stream(one, size, start) for _, one in self._secrets])
        message ^= zeros
        message ^= chosen
        return message.reshape(-1), hashed(transposed(zeros)[: choices.size], _numbers(first, choices.size))


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
        request = as_array(self._peer, request, np.uint8, (TRANSFERS * size,))
        self._batches.use(self._peer, str(batch))
        start = batch.to_bytes(8, "big") + bytes(8)
        columns = np.stack([primitives.stream(secret, size, start) for secret in self._secrets])
        columns ^= request.reshape(TRANSFERS, size) * self._base.choices[:, None]
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


def _columns(transfers: int) -> int:
    return -(-transfers // 8)


def _numbers(first: int, count: int) -> NDArray[np.uint64]:
    return tweaks(TRANSFER, np.arange(first, first + count, dtype=np.uint64))
