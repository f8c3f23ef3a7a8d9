"""The joint graph of all sites' points, one site after the other, from what the coordinator was told of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.graphs.neighbours import Nearest
from collegium.protocols.hamming import plain

if TYPE_CHECKING:
    from collegium.secure.messages import Neighbourhood, OpenPoints


def numbered(sizes: Mapping[str, int]) -> dict[str, range]:
    """The rows of each site's points in the joint graph."""
    ends = np.cumsum(list(sizes.values())).tolist()
    return {party: range(end - size, end) for (party, size), end in zip(sizes.items(), ends, strict=True)}


def cosines(H: NDArray[Any], bits: int) -> NDArray[np.float64]:
    """A <- cos(pi H / L): similarities, estimated from the distances of sketches."""
    similar: NDArray[np.float64] = np.cos(np.pi / bits * H)
    return similar


def from_distances(
    told: Mapping[str, Neighbourhood], H: Mapping[tuple[str, str], NDArray[Any]], bits: int, k: int
) -> Nearest:
    """Within sites as they told it, between sites as it was computed."""
    rows = numbered({party: len(own) for party, own in told.items()})
    near = Nearest(sum(map(len, rows.values())), k)
    for party, own in told.items():
        near.add(rows[party], own.columns + rows[party].start, cosines(own.distances, bits))
    for (one, other), table in H.items():
        near.add_block(rows[one], rows[other], cosines(table, bits))
    return near


def from_points(told: Mapping[str, OpenPoints], bits: int | None, k: int) -> Nearest:
    """The same in a simulation, from sketches in the clear; without bits, from the points themselves."""
    widths = {party: own.points.shape[1] for party, own in told.items()}
    if len(set(widths.values())) > 1:
        numbers = ", ".join(f"{party}: {width}" for party, width in widths.items())
        raise ConfigError(f"Points must have the same features at every site, but their numbers differ ({numbers}).")
    rows = numbered({party: len(own) for party, own in told.items()})
    near = Nearest(sum(map(len, rows.values())), k)
    for one, other in combinations_with_replacement(told, 2):
        V, U = told[one].points, told[other].points
        A = V @ U.T if bits is None else cosines(plain.distances(V, U), bits)
        if one == other:
            near.add_own(rows[one], A)
        else:
            near.add_block(rows[one], rows[other], A)
    return near
