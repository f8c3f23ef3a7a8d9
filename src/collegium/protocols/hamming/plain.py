"""Hamming distances in the clear: for simulations and as the truth in tests. Never use it over a network."""

from __future__ import annotations

import numpy as np

from collegium.protocols.hamming.distances import Bits, Distances, checked_bits

LEARNS = {"server": "all sketches", "sites": "nothing"}


def distances(a: Bits, b: Bits) -> Distances:
    """All distances between the rows of two tables of sketches."""
    ones_a, ones_b = checked_bits(a).astype(np.float64), checked_bits(b).astype(np.float64)
    both = ones_a @ ones_b.T
    exact: Distances = np.rint(ones_a.sum(axis=1)[:, None] + ones_b.sum(axis=1) - 2 * both).astype(np.int64)
    return exact
