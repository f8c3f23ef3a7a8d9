"""Votes that count differently. The coordinator sees each site's labels, one site at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.consensus.base import Consensus
from collegium.core import ActiveSite, Count, Federation, HardLabels, Labels, Order, Steps, step
from collegium.core.settings import NonNegativeFloat, Probability
from collegium.core.tally import winners
from collegium.errors import ConfigError

Scores = NDArray[np.int64]


@step
def sample_count(site: ActiveSite) -> Count:
    """How many private samples this site has."""
    return Count(len(site.data))


@dataclass(frozen=True)
class WeightedMajority(Consensus):
    """The class with the largest sum of weights wins.

    `weights` is a number per site (a mapping; sites it does not name count 1), ``"samples"`` (each site releases its
    number of private samples, every time it votes), or ``"agreement"`` (a site counts by how well it agrees with the
    plain majority: the log odds of being right, as in boosting; this needs all sites' labels at once).
    """

    asks_for: ClassVar[Steps] = (sample_count,)
    weights: Mapping[str, NonNegativeFloat] | Literal["samples", "agreement"] = "samples"
    quorum: Probability = 0.0

    def unasked(self) -> Steps:
        return () if self.weights == "samples" else (sample_count,)

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        if self.weights == "agreement":
            return self._by_agreement(fed, order, parties)
        weights = whole_weights(self._known_weights(fed, parties), fed.parties)
        scores = _no_votes(fed)
        for party, release in fed.stream(order, parties):
            with fed.timed("consensus"):
                add_votes(scores, release.labels, weights[party])
        return self._decide(fed, scores)

    def _known_weights(self, fed: Federation, parties: Sequence[str] | None) -> Mapping[str, float]:
        if isinstance(self.weights, Mapping):
            unknown = sorted(set(self.weights) - set(fed.parties))
            if unknown:
                raise ConfigError(
                    f"WeightedMajority: there is no site {unknown[0]!r}. Sites: {', '.join(fed.parties)}."
                )
            return self.weights
        counts = {party: float(count.samples) for party, count in fed.ask(sample_count(), parties).items()}
        typical = float(np.median(list(counts.values())))  # for a site that votes but does not say how many it has
        return {party: counts.get(party, typical) for party in fed.parties}

    def _by_agreement(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None) -> Labels:
        votes = {party: reply.labels for party, reply in fed.ask(order, parties).items()}
        with fed.timed("consensus"):
            scores = _no_votes(fed)
            for labels in votes.values():
                add_votes(scores, labels, 1)
            majority = winners(scores, fed.seed)
            odds = {party: log_odds(labels, majority, fed.n_classes) for party, labels in votes.items()}
            weights = whole_weights(odds, tuple(votes))
            scores[:] = 0
            for party, labels in votes.items():
                add_votes(scores, labels, weights[party])
        return self._decide(fed, scores)

    def _decide(self, fed: Federation, scores: Scores) -> Labels:
        with fed.timed("consensus"):
            codes = winners(scores, fed.seed)
            top, cast = scores.max(axis=0), scores.sum(axis=0)
            fed.confidences = top / np.maximum(cast, 1)
            enough = (cast > 0) & (top >= self.quorum * cast * (1 - 1e-9))
            return Labels(np.where(enough, codes, -1), fed.n_classes)


def _no_votes(fed: Federation) -> Scores:
    return np.zeros((fed.n_classes, len(fed.public)), dtype=np.int64)


def whole_weights(weights: Mapping[str, float], parties: Sequence[str]) -> dict[str, int]:
    """Weights as whole numbers, the largest 2^32: their sums do not depend on the order in which sites answer."""
    given = {party: weights.get(party, 1.0) for party in parties}
    largest = max(given.values(), default=0.0)
    return {party: round(weight / largest * 2**32) if largest > 0 else 0 for party, weight in given.items()}


def add_votes(scores: Scores, labels: Labels, weight: int) -> None:
    """Add one site's votes, `weight` each."""
    voted = np.flatnonzero(labels.known)
    scores[labels.codes[voted], voted] += weight


def log_odds(labels: Labels, majority: NDArray[np.signedinteger], n_classes: int) -> float:
    """How much a site counts that agrees with the majority this often: 0 for guessing, never negative."""
    both = labels.known & (majority >= 0)
    n = int(both.sum())
    agreed = (np.count_nonzero(labels.codes[both] == majority[both]) + 1) / (n + n_classes)
    return max(0.0, float(np.log(agreed / (1 - agreed) * (n_classes - 1)))) if agreed < 1 else 0.0
