"""Majority votes. They need the sum of the votes only: no site's own labels are seen or kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collegium.consensus.base import Consensus
from collegium.core import Federation, HardLabels, Labels, Order
from collegium.core.settings import Share


@dataclass(frozen=True)
class Majority(Consensus):
    """The class with most votes wins.

    Ties are broken at random, uniformly among the tied classes, by the study's seed and the sample's number: no class
    is favored over the whole set, and a sample that stays tied keeps its label from round to round. A sample on which
    everybody abstains gets no label. Of approvals (noisy bits, any number of classes per sample) the class that most
    sites approve wins.
    """

    takes: ClassVar[tuple[str, ...]] = ("HardLabels", "ApprovalBits")
    counts_only: ClassVar[bool] = True

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        return count_votes(fed, order, parties, quorum=0.0)


@dataclass(frozen=True)
class QualifiedMajority(Consensus):
    """The winner needs at least a share `quorum` of the votes cast; otherwise the sample gets no label this round.

    Of approvals (noisy bits, any number of classes per sample) it needs the approval of that share of the sites.
    """

    takes: ClassVar[tuple[str, ...]] = ("HardLabels", "ApprovalBits")
    counts_only: ClassVar[bool] = True
    quorum: Share = 0.9

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        return count_votes(fed, order, parties, self.quorum)


def count_votes(fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None, quorum: float) -> Labels:
    """The winners by total votes."""
    votes = fed.total(order, parties)
    with fed.timed("consensus"):
        fed.confidences = votes.tally.winning_shares()
        return Labels(votes.tally.winners(fed.seed, quorum), fed.n_classes)
