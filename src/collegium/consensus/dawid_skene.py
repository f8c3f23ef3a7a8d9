"""Dawid and Skene (1979): the true labels and every site's confusion matrix, estimated together by EM.

STAPLE (Warfield et al. 2004), known from segmentations by several readers, is the case of two classes. A site that is
wrong in a regular way is used, not outvoted. An abstention is an answer too: a site that never speaks up for a class it
does not know tells something by speaking up. The coordinator sees each site's labels: that is what the rule needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collegium.consensus.base import Consensus
from collegium.core import Federation, HardLabels, Labels, Order
from collegium.core.settings import NonNegativeFloat, PositiveFloat, PositiveInt, Probability
from collegium.core.tally import winners

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class DawidSkene(Consensus):
    """EM over true labels and site reliabilities; a sample whose best class is below `confidence` gets no label."""

    iterations: PositiveInt = 50
    tolerance: NonNegativeFloat = 1e-5
    smoothing: PositiveFloat = 0.1
    """Imagined votes per cell of each confusion matrix, so that what was never seen is not impossible."""
    confidence: Probability = 0.0

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        replies = fed.ask(order, parties)
        with fed.timed("consensus"):
            votes = np.stack([reply.labels.codes for reply in replies.values()])
            posterior, reliability = self.estimate(votes, fed.n_classes)
            fed.confidences = posterior.max(axis=1)
            codes = np.where(fed.confidences >= self.confidence, winners(posterior.T, fed.seed), -1)
            codes[(votes < 0).all(axis=0)] = -1
        for party, value in zip(replies, reliability, strict=True):
            fed.note("reliability", value, party=party)
        return Labels(codes, fed.n_classes)

    def estimate(self, votes: NDArray[np.signedinteger], n_classes: int) -> tuple[Matrix, NDArray[np.float64]]:
        """Posterior of the true class per sample, and each site's expected accuracy. -1 in `votes` abstains."""
        posterior = _vote_shares(votes, n_classes)
        said = np.where(votes < 0, n_classes, votes)
        for _ in range(self.iterations):
            log_posterior = np.log(posterior.mean(axis=0) + 1e-12)[None, :].repeat(votes.shape[1], axis=0)
            for site in said:
                log_posterior += np.log(self._confusion(posterior, site, n_classes))[:, site].T
            log_posterior -= log_posterior.max(axis=1, keepdims=True)
            new = np.exp(log_posterior)
            new /= new.sum(axis=1, keepdims=True)
            moved = float(np.abs(new - posterior).max(initial=0.0))
            posterior = new
            if moved <= self.tolerance:
                break
        prior = posterior.mean(axis=0)
        right = [np.diag(self._confusion(posterior, site, n_classes)[:, :n_classes]) for site in said]
        return posterior, np.array([float(prior @ diagonal) for diagonal in right])

    def _confusion(self, posterior: Matrix, said: NDArray[np.signedinteger], n_classes: int) -> Matrix:
        """P(site says l | truth is c), row c; the last column is for abstaining, if the site ever does."""
        columns = n_classes + int((said == n_classes).any())
        answers = np.zeros((len(said), columns))
        answers[np.arange(len(said)), said] = 1.0
        counts = posterior.T @ answers + self.smoothing
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _vote_shares(votes: NDArray[np.signedinteger], n_classes: int) -> Matrix:
    shares = np.zeros((votes.shape[1], n_classes))
    for site in votes:
        voted = np.flatnonzero(site >= 0)
        shares[voted, site[voted]] += 1.0
    cast = shares.sum(axis=1, keepdims=True)
    return np.where(cast > 0, shares / np.maximum(cast, 1), 1.0 / n_classes)
