"""LocalLabelPropagation: every site spreads its own labels over its own points. Nothing leaves.

The baseline of XCLP ("per-client LP" in Scott, Yeo, Lampert, TMLR 2023, Section 4.1): the same label propagation, after
Zhou et al., "Learning with local and global consistency", NeurIPS 2004, with exact similarities of the site's own
points. A site without labels gets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from collegium.core import ActiveSite, Algorithm, Federation, Nothing, Site, Steps, step
from collegium.core.settings import PositiveFloat, PositiveInt
from collegium.graphs import Balance, Nearest, Reach, check_points, directions, influence, label_points
from collegium.secure.sketches import points_of


@step
def propagate(site: ActiveSite, k: int, alpha: float, power: float, balance: str, embed: bool) -> Nothing:
    """Z <- (I - alpha W)^-1 Y over the site's own points."""
    labelled = len(site.data)
    if not labelled or not len(site.unlabeled):
        return Nothing()
    V = directions(points_of(site, embed))
    near = Nearest(len(V), k)
    near.add_own(range(len(V)), V @ V.T)
    Y = np.eye(site.n_classes)[site.data.codes]
    Z = influence(near.graph(power), np.arange(labelled), alpha) @ Y
    total = Z.sum(axis=0) if balance == "influence" else Y.sum(axis=0)
    site.keep_labels(label_points(Z[labelled:], total, balanced=balance != "none"))
    return Nothing()


@dataclass(frozen=True)
class Propagation(Algorithm):
    """Settings of a method that labels the sites' own points by propagation."""

    needs_public: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    needs_learner: ClassVar[bool] = False
    trains_sites: ClassVar[bool] = False
    labels_own_points: ClassVar[bool] = True
    k: PositiveInt = 10
    """Neighbours of each point."""
    alpha: Reach = 0.99
    """How far labels reach."""
    power: PositiveFloat = 32.0
    """Similarities are raised to it."""
    balance: Balance = "influence"
    """What the classes are divided by: influence, count or none."""
    embed: bool = False
    """Use the features of the sites' learner, trained or on a pre-trained backbone, instead of the rows as they are."""

    def check_site(self, site: Site) -> None:
        check_points(site, embed=self.embed)


@dataclass(frozen=True)
class LocalLabelPropagation(Propagation):
    """Each site labels its points by its own labels alone."""

    asks_for: ClassVar[Steps] = (propagate,)

    def coordinate(self, fed: Federation) -> None:
        for _ in fed.rounds(1):
            self.propagate(fed)
            fed.flush()

    def propagate(self, fed: Federation, parties: Sequence[str] | None = None) -> None:
        """Tell these parties to label their points."""
        fed.tell(propagate(self.k, self.alpha, self.power, self.balance, self.embed), parties)
