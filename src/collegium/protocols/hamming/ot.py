"""Hamming distances by oblivious transfer: the default between two sites that trust nobody with their sketches.

For sketches x (of site a, the receiver) and y (of site b, the sender), h = sum_l y_l + sum_l x_l (1 - 2 y_l). Each
product is split into a share of a and a share of b, random by itself, modulo 256, 2^16 or 2^32 (above the length of
the sketches, so that no two distances look alike); shares are added over l and sent to the server, which adds the two.

The products: at bit l, three rows of a (its bits are a path in a tree of secrets, `oblivious.punctured`) meet all
points of b. With secrets r_z expanded to a number per point, b sends c = (1 - 2y) - sum_z r_z once for the three rows
and keeps sum_z z_i r_z for each; a, who lacks just the r_z at z = x, has sum_z (x_i - z_i) r_z + x_i c = x_i (1 - 2y)
less what b keeps. One number on the wire per three products, instead of one each as in SHADE and the paper: the
trick is that of SoftSpokenOT (Roy 2022).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.hamming.distances import ONLY_DISTANCES, Bits, Distances, checked_bits, in_range, word
from collegium.protocols.oblivious.extension import ExtensionReceiver, ExtensionSender
from collegium.protocols.oblivious.hashing import BLOCK_BYTES, Blocks, Expander
from collegium.protocols.oblivious.punctured import grown, leaf_tweaks, punctured
from collegium.protocols.primitives import Bytes
from collegium.protocols.received import as_array

LEARNS = ONLY_DISTANCES
DEPTH: Final = 3
"""Rows per tree. More rows send less and hash more: 2^DEPTH / DEPTH secrets per product."""
_CACHE_BYTES: Final = 1 << 19  # what is expanded at a time stays in a core's own cache
_MESSAGE_BYTES: Final = 1 << 26


class TransferPlan:
    """How rows of the receiver are cut into groups of one tree per bit, and groups into messages."""

    def __init__(self, rows: int, points: int, length: int) -> None:
        self.rows, self.points, self.length, self.dtype = rows, points, length, word(length)
        self.groups = -(-rows // DEPTH)
        self.groups_per_block = max(1, _MESSAGE_BYTES // (length * points * self.dtype.itemsize))
        self.blocks = -(-self.groups // self.groups_per_block)
        self.hash_blocks = -(-points * self.dtype.itemsize // BLOCK_BYTES)
        self.bits_at_a_time = max(1, min(length, _CACHE_BYTES // (BLOCK_BYTES * self.hash_blocks << DEPTH)))

    def groups_in(self, block: int) -> range:
        """The groups of rows of one block."""
        first = block * self.groups_per_block
        return range(first, min(first + self.groups_per_block, self.groups))

    def trees_in(self, groups: range) -> NDArray[np.uint64]:
        """The numbers of the trees of some groups, each used once."""
        return np.arange(groups.start * self.length, groups.stop * self.length, dtype=np.uint64)


class _Site:
    """One of the two sites: how far it is, and its share for the server."""

    def __init__(self, plan: TransferPlan, peer: str) -> None:
        self._plan, self._peer = plan, peer
        self._done: set[int] = set()
        self._share: NDArray[Any] = np.zeros((plan.groups * DEPTH, plan.points), plan.dtype)

    def share(self) -> NDArray[Any]:
        """To the server, when all requests are answered."""
        if len(self._done) != self._plan.blocks:
            raise ProtocolError(self._peer, f"has done {len(self._done)} of {self._plan.blocks} requests.")
        return self._share[: self._plan.rows]


class Receiver(_Site):
    """Site a: its bits are the choices. `blocks` requests, each answered, then a share for the server."""

    def __init__(self, bits: Bits, points_of_peer: int, pair: str, peer: str) -> None:
        bits = checked_bits(bits)
        super().__init__(TransferPlan(len(bits), points_of_peer, bits.shape[1]), peer)
        paths = np.zeros((self._plan.groups * DEPTH, self._plan.length), np.uint8)
        paths[: len(bits)] = bits
        self._paths = paths.reshape(self._plan.groups, DEPTH, -1)
        self._transfers = ExtensionReceiver(pair, peer)
        self._open: dict[int, Blocks] = {}

    @property
    def blocks(self) -> int:
        """How many requests there are to make."""
        return self._plan.blocks

    def offer(self) -> Bytes:
        """First message, to the sender."""
        return self._transfers.offer()

    def prepare(self, answer: Bytes) -> None:
        """Take the sender's answer to the offer."""
        self._transfers.prepare(answer)

    def request(self, block: int) -> Bytes:
        """To the sender: the choices for one block of rows, hidden."""
        groups = self._plan.groups_in(block)
        paths = self._paths[groups.start : groups.stop].transpose(0, 2, 1).reshape(-1, DEPTH)
        first = groups.start * self._plan.length * DEPTH
        message, self._open[block] = self._transfers.request(block, first, 1 - paths.reshape(-1))
        return message

    def receive(self, block: int, answer: dict[str, Any]) -> None:
        """Take the sender's answer to the request of that block."""
        if block not in self._open:
            raise Reused(self._peer, f"answers request {block}, which is not open.")
        plan, groups = self._plan, self._plan.groups_in(block)
        shape = len(groups), plan.length, plan.points
        corrections = as_array(self._peer, answer.get("corrections"), plan.dtype, shape)
        paths = self._paths[groups.start : groups.stop]
        trees = plan.trees_in(groups)
        by_tree = paths.transpose(0, 2, 1).reshape(-1, DEPTH)
        received = self._open[block].reshape(-1, DEPTH, 2)
        leaves = punctured(received, by_tree, trees, answer.get("levels"), self._peer)
        del self._open[block]
        ends = (by_tree << np.arange(DEPTH - 1, -1, -1, dtype=np.uint8)).sum(axis=1, dtype=np.uint64)
        differs = np.arange(1, 1 << DEPTH, dtype=np.uint64)[:, None]
        numbers = leaf_tweaks(trees, DEPTH, differs ^ ends)
        expander = Expander(plan.bits_at_a_time * ((1 << DEPTH) - 1), plan.hash_blocks)
        for i, group in enumerate(groups):
            part = slice(i * plan.length, (i + 1) * plan.length)
            share = self._group_share(expander, leaves[:, part], numbers[:, part], paths[i], corrections[i])
            self._share[group * DEPTH : (group + 1) * DEPTH] = share
        self._done.add(block)

    def _group_share(
        self,
        expander: Expander,
        leaves: Blocks,
        numbers: NDArray[np.uint64],
        paths: Bits,
        corrections: NDArray[Any],
    ) -> NDArray[Any]:
        plan = self._plan
        total = np.zeros((DEPTH, plan.points), plan.dtype)
        signs = (2 * paths.astype(np.int64) - 1).astype(plan.dtype)
        for start in range(0, plan.length, plan.bits_at_a_time):
            part = slice(start, start + plan.bits_at_a_time)
            secrets = _expanded(plan, expander, leaves[:, part], numbers[:, part])
            for i in range(DEPTH):
                # Entry d - 1 is the secret that differs from the missing one by d; here d's highest bit is i's.
                half = (len(secrets) + 1) // 2
                beside = np.add.reduce(secrets[half - 1 :], axis=0, dtype=plan.dtype)
                beside *= signs[i, part, None]
                total[i] += np.add.reduce(beside, axis=0, dtype=plan.dtype)[: plan.points]
                chosen = corrections[part][paths[i, part].astype(bool)]
                total[i] += np.add.reduce(chosen, axis=0, dtype=plan.dtype)
                secrets = np.add(secrets[: half - 1], secrets[half:], out=secrets[: half - 1])
        return total


class Sender(_Site):
    """Site b: answers requests, then has a share for the server."""

    def __init__(self, bits: Bits, points_of_peer: int, pair: str, peer: str) -> None:
        bits = checked_bits(bits)
        super().__init__(TransferPlan(points_of_peer, *bits.shape), peer)
        self._signs = np.ascontiguousarray((1 - 2 * bits.astype(np.int64)).astype(self._plan.dtype).T)
        self._weights = bits.sum(axis=1, dtype=self._plan.dtype)
        self._transfers = ExtensionSender(pair, peer)

    def answer(self, offer: Bytes) -> Bytes:
        """Answer the receiver's offer."""
        return self._transfers.answer(offer)

    def serve(self, block: int, request: Bytes) -> dict[str, Any]:
        """Answer the request of one block of rows."""
        plan = self._plan
        if block not in range(plan.blocks):
            raise ProtocolError(self._peer, f"requests block {block} of {plan.blocks}.")
        groups = plan.groups_in(block)
        trees = plan.trees_in(groups)
        zeros, ones = self._transfers.transfers(block, groups.start * plan.length * DEPTH, len(trees) * DEPTH, request)
        leaves, levels = grown(zeros.reshape(-1, DEPTH, 2), ones.reshape(-1, DEPTH, 2), trees)
        numbers = leaf_tweaks(trees, DEPTH, np.arange(1 << DEPTH, dtype=np.uint64)[:, None])
        corrections = np.empty((len(groups), plan.length, plan.points), plan.dtype)
        expander = Expander(plan.bits_at_a_time << DEPTH, plan.hash_blocks)
        for i, group in enumerate(groups):
            part = slice(i * plan.length, (i + 1) * plan.length)
            share = self._group_share(expander, leaves[:, part], numbers[:, part], corrections[i])
            self._share[group * DEPTH : (group + 1) * DEPTH] = share
        self._done.add(block)
        return {"levels": levels, "corrections": corrections}

    def _group_share(
        self, expander: Expander, leaves: Blocks, numbers: NDArray[np.uint64], corrections: NDArray[Any]
    ) -> NDArray[Any]:
        plan = self._plan
        total = np.tile(self._weights, (DEPTH, 1))
        for start in range(0, plan.length, plan.bits_at_a_time):
            part = slice(start, start + plan.bits_at_a_time)
            secrets = _expanded(plan, expander, leaves[:, part], numbers[:, part])
            for i in range(DEPTH):
                half = len(secrets) // 2
                taken = secrets[half:].reshape(-1, secrets.shape[2])
                total[i] += np.add.reduce(taken, axis=0, dtype=plan.dtype)[: plan.points]
                secrets = np.add(secrets[:half], secrets[half:], out=secrets[:half])
            np.subtract(self._signs[part], secrets[0, :, : plan.points], out=corrections[part])
        return total


class Server:
    """Adds the two shares."""

    def __init__(self, rows: int, points: int, length: int) -> None:
        self._shape, self._length = (rows, points), length

    def distances(self, receiver: str, of_receiver: object, sender: str, of_sender: object) -> Distances:
        """The distances, of shape (points of the receiver, points of the sender)."""
        one = as_array(receiver, of_receiver, word(self._length), self._shape)
        other = as_array(sender, of_sender, word(self._length), self._shape)
        return in_range(one + other, self._length, receiver, sender)


def _expanded(plan: TransferPlan, expander: Expander, leaves: Blocks, numbers: NDArray[np.uint64]) -> NDArray[Any]:
    """Secrets as numbers, of shape (leaves, bits, points and a few more)."""
    count, bits = leaves.shape[:2]
    return expander(leaves.reshape(-1, 2), numbers.reshape(-1)).view(plan.dtype).reshape(count, bits, -1)
