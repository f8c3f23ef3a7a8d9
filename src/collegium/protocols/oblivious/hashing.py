"""A hash made of one fixed-key block cipher, for very many short inputs at once.

H(x, i) = P(P(x) ^ i) ^ P(x), P being AES under a public key: the tweakable, circular correlation robust hash of
Guo, Katz, Wang and Yu (2020). A tweak i is two words: a number that is unique among all inputs of a kind, with the
kind in its highest byte, and the number of the output block. So no tweak comes twice for a pair of sites.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from collegium.protocols.primitives import crypto_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

Blocks = NDArray[np.uint64]
"""128-bit values as pairs of words, in the last axis."""
BLOCK_BYTES: Final = 16
TRANSFER, CHILDREN, LEAF = 1, 2, 3
"""Kinds of input: rows of an extension, nodes of a tree, and leaves that are expanded."""
_PUBLIC_KEY: Final = b"collegium ot v1."


_OWN: Final = threading.local()


def _cipher() -> CipherContext:
    """One per thread: sites of a simulation work side by side, and a cipher serves one at a time."""
    if not hasattr(_OWN, "cipher"):
        with crypto_extra("Oblivious transfer"):
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        _OWN.cipher = Cipher(algorithms.AES(_PUBLIC_KEY), modes.ECB()).encryptor()  # noqa: S305 - not encryption
    cipher: CipherContext = _OWN.cipher
    return cipher


def tweaks(kind: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The first words of tweaks: unique numbers below 2^56, marked with their kind."""
    return numbers | np.uint64(kind << 56)


class Expander:
    """Hashes up to `capacity` inputs to `blocks` blocks each, in memory that is used again by the next call."""

    def __init__(self, capacity: int, blocks: int) -> None:
        self._input: Blocks = np.empty((capacity, blocks, 2), np.uint64)
        self._output = np.empty(self._input.nbytes + BLOCK_BYTES - 1, np.uint8)  # the cipher asks for this much room
        self._counter = np.arange(blocks, dtype=np.uint64)

    def __call__(self, seeds: Blocks, tweak: NDArray[np.uint64]) -> Blocks:
        """Blocks of shape (inputs, blocks, 2), valid until the next call."""
        first = permuted(seeds)
        low, high = first[:, 0, None], first[:, 1, None]
        inputs = self._input[: len(seeds)]
        np.copyto(inputs[:, :, 0], low ^ tweak[:, None])
        np.bitwise_xor(high, self._counter, out=inputs[:, :, 1])
        _cipher().update_into(inputs.reshape(-1).view(np.uint8).data, self._output.data)
        out = self._output[: inputs.nbytes].view(np.uint64).reshape(inputs.shape)
        # Two passes with a long inner loop each: one pass over pairs of words takes several times as long.
        np.bitwise_xor(out[:, :, 0], low, out=out[:, :, 0])
        np.bitwise_xor(out[:, :, 1], high, out=out[:, :, 1])
        return out


def permuted(blocks: Blocks) -> Blocks:
    """P of every block."""
    flat = np.ascontiguousarray(blocks).reshape(-1)
    out = np.empty(flat.nbytes + BLOCK_BYTES - 1, np.uint8)
    _cipher().update_into(flat.view(np.uint8).data, out.data)
    return out[: flat.nbytes].view(np.uint64).reshape(blocks.shape)


def hashed(blocks: Blocks, tweak: NDArray[np.uint64]) -> Blocks:
    """One output block for every input block."""
    first = permuted(blocks)
    inputs = first.copy()
    inputs[..., 0] ^= tweak
    inputs = permuted(inputs)
    inputs ^= first
    return inputs
