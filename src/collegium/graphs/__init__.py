"""Label propagation: points, their nearest neighbours as a graph, and how labels spread over it."""

from collegium.graphs import joint
from collegium.graphs.neighbours import Nearest, nearest
from collegium.graphs.points import as_points, check_points, directions
from collegium.graphs.propagation import BALANCES, Labelled, check_propagation, influence, label_points

__all__ = [
    "BALANCES",
    "Labelled",
    "Nearest",
    "as_points",
    "check_points",
    "check_propagation",
    "directions",
    "influence",
    "joint",
    "label_points",
    "nearest",
]
