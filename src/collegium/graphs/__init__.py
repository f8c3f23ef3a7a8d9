"""Label propagation: points, their nearest neighbours as a graph, and how labels spread over it."""

from collegium.graphs import joint
from collegium.graphs.neighbours import Nearest, nearest
from collegium.graphs.points import as_points, check_points, directions
from collegium.graphs.propagation import Balance, Labelled, Reach, influence, label_points

__all__ = [
    "Balance",
    "Labelled",
    "Nearest",
    "Reach",
    "as_points",
    "check_points",
    "directions",
    "influence",
    "joint",
    "label_points",
    "nearest",
]
