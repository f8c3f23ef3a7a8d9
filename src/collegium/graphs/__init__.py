"""Label propagation: points, their nearest neighbours as a graph, and how labels spread over it."""

from collegium.graphs.neighbours import Nearest
from collegium.graphs.points import check_points, directions
from collegium.graphs.propagation import Balance, Labelled, Reach, influence, label_points

__all__ = ["Balance", "Labelled", "Nearest", "Reach", "check_points", "directions", "influence", "label_points"]
