"""All secrets but one: binary trees of secrets of which the receiver learns every leaf except the one it chose.

The sender grows a tree (Goldreich, Goldwasser and Micali): the two nodes of the first level are the two blocks of a
random transfer; below, each node is hashed to its two children. For every further level it sends the XOR of all left
children and that of all right children, each hidden by a block of a transfer. A receiver with path x_1 .. x_d takes,
at each level, the side that its path does NOT take, and so gets every node beside its path, but none on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.protocols.oblivious.hashing import CHILDREN, LEAF, Blocks, Expander, tweaks
from collegium.protocols.received import as_array

Numbers = NDArray[np.uint64]


def grown(zeros: Blocks, ones: Blocks, trees: Numbers) -> tuple[Blocks, Blocks]:
    """At the sender: leaves (2^depth, trees, 2), and the message with the sums of levels.

    `zeros` and `ones` are the transfers' blocks, of shape (trees, depth, 2); `trees` are numbers used once.
    """
    depth = zeros.shape[1]
    nodes: Blocks = np.stack([zeros[:, 0], ones[:, 0]])
    message: Blocks = np.empty((depth - 1, 2, len(trees), 2), np.uint64)
    for level in range(1, depth):
        positions = np.arange(len(nodes), dtype=np.uint64)[:, None]
        children = _children(nodes, _node_numbers(trees, depth, level, positions))
        for side, hiding in enumerate((zeros, ones)):
            message[level - 1, side] = np.bitwise_xor.reduce(children[:, side], axis=0) ^ hiding[:, level]
        nodes = children.reshape(-1, len(trees), 2)
    return nodes, message


def punctured(received: Blocks, paths: NDArray[np.uint8], trees: Numbers, message: Any, peer: str) -> Blocks:
    """At the receiver: all leaves but the one at the end of each tree's path, of shape (2^depth - 1, trees, 2).

    Entry d - 1 is the leaf whose position differs from the path's end by the bits of d. `received` are the blocks of
    the transfers chosen with the complement of `paths`; both have a row per tree and a column per level.
    """
    depth = paths.shape[1]
    message = as_array(peer, message, np.uint64, (depth - 1, 2, len(trees), 2))
    nodes: Blocks = received[None, :, 0]
    taken = paths[:, 0].astype(np.uint64)
    for level in range(1, depth):
        differs = np.arange(1, len(nodes) + 1, dtype=np.uint64)[:, None]
        children = _children(nodes, _node_numbers(trees, depth, level, differs ^ taken))
        right = paths[:, level, None].astype(bool)
        grown_nodes: Blocks = np.empty((2 * len(nodes) + 1, len(trees), 2), np.uint64)
        grown_nodes[1::2] = np.where(right, children[:, 1], children[:, 0])
        grown_nodes[2::2] = np.where(right, children[:, 0], children[:, 1])
        beside = np.where(right, message[level - 1, 0], message[level - 1, 1]) ^ received[:, level]
        grown_nodes[0] = beside ^ np.bitwise_xor.reduce(grown_nodes[2::2], axis=0)
        nodes = grown_nodes
        taken = taken << np.uint64(1) | paths[:, level]
    return nodes


def leaf_tweaks(trees: Numbers, depth: int, positions: Numbers) -> Numbers:
    """The tweaks with which leaves at these positions are expanded."""
    return tweaks(LEAF, trees << np.uint64(depth) | positions)


def _children(nodes: Blocks, tweak: Numbers) -> Blocks:
    """Both children of every node: (nodes, trees, 2) to (nodes, 2, trees, 2)."""
    count, trees = nodes.shape[:2]
    pairs = Expander(count * trees, 2)(nodes.reshape(-1, 2), tweak.reshape(-1))
    return np.ascontiguousarray(pairs.reshape(count, trees, 2, 2).transpose(0, 2, 1, 3))


def _node_numbers(trees: Numbers, depth: int, level: int, positions: Numbers) -> Numbers:
    """Within a tree, nodes are numbered level by level: 1 is the root, 2 and 3 its children, and so on."""
    return tweaks(CHILDREN, trees << np.uint64(depth) | np.uint64(1 << level) | positions)
