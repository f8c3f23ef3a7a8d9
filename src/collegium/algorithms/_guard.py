"""How much of a consensus helps a site: measured on its own rows, out of fold. The answer stays at the site.

Ours, not in the papers. A site's learner answers for each fold of its rows after it has learned the other folds: alone,
and with the consensus beside them, whose pseudo-labels weigh .3 of a private row, or 1. Classes count as they are
frequent in the consensus, and a little as they are at the site: models are for cases like the public ones. Classes that
the site has no rows of cannot be judged so. Alone, it would be wrong on all of them; with the consensus it is taken to
be as good there as a model of the consensus alone is on the site's own rows.

The shares, the threshold and what classes count were chosen on Adult, digits and Fashion-MNIST.
"""

from __future__ import annotations

import hashlib
from copy import copy, deepcopy
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core import ActiveSite, LabelledData, Mixture
from collegium.core.folds import FOLDS, deal_folds, out_of_fold
from collegium.core.labels import Codes
from collegium.core.samples import PrivateData

SHARES: Final = (0.3, 1.0)
"""How much a pseudo-labeled row may weigh, where a private one has 1, besides nothing."""
_CLEAR: Final = 0.5
"""How many standard errors a gain must have: below that, a site stays alone."""
_BY_CONSENSUS: Final = 0.95
"""How far classes count as they are frequent in the consensus; the rest is by the site's own rows."""
_NONE: Final = 1e-9
"""What rounding leaves of a share of 0."""
_ALONE, _TOGETHER, _FOLDS, _TAKEN = "model alone", "model together", "folds of the guard", "share of the consensus"


def fit_guarded(site: ActiveSite, learned: Mixture, epochs: int | None, steps: int | None) -> None:
    """Train the site's model on its own rows and as much of the pseudo-labels as helps; without any, that is its own.

    A learner that continues from its weights trains two models, one of them alone.
    """
    alone = _train_alone(site, epochs, steps)
    share = _share(site, learned) if len(learned.pseudo) else 0.0
    site.noted["consensus_share"] = share
    if not share:
        with site.watch.time("load"):
            # A model of its own, as after any training: secret votes are given once for each, and whoever gave none
            # would show that it stayed alone.
            site.model = copy(alone)
        return
    site.model = site.state.get(_TOGETHER) or deepcopy(alone)
    site.state[_TOGETHER] = site.fit(learned.weighted(share), epochs, steps)


def _train_alone(site: ActiveSite, epochs: int | None, steps: int | None) -> Any:
    """The model that the site would have without the others."""
    if _ALONE not in site.state or not site.fits_anew(epochs, steps):
        site.model = site.state.get(_ALONE)
        site.state[_ALONE] = site.fit(site.data, epochs, steps)
    return site.state[_ALONE]


def _share(site: ActiveSite, learned: Mixture) -> float:
    """What a pseudo-labeled row is to weigh; measured again only where the labels have changed."""
    weights = b"" if learned.weights is None else learned.weights.tobytes()
    asked = hashlib.sha256(learned.pseudo.codes.tobytes() + weights).hexdigest()  # the same after a restart
    last = site.state.get(_TAKEN)
    if last is None or last[0] != asked:
        last = site.state[_TAKEN] = asked, helpful_share(site, learned)
    share: float = last[1]
    return share


def helpful_share(site: ActiveSite, learned: Mixture) -> float:
    """The weight of pseudo-labels, 0 to 1, with which the site's learner does best on its own rows."""
    private = learned.private
    rows = private.opened() if isinstance(private, PrivateData) else private
    if not len(rows):
        return 1.0  # nothing to measure on, and nothing to lose
    if _FOLDS not in site.state:
        fold_of = deal_folds(rows.codes, FOLDS, site.rng)
        site.state[_FOLDS] = fold_of, out_of_fold(site, rows, fold_of) == rows.codes
    fold_of, right_alone = site.state[_FOLDS]
    importance = _importance(rows.codes, learned.pseudo.codes, site.n_classes)
    unseen = 1 - importance.sum()
    beyond = unseen * _worth(site, rows, learned.pseudo, importance) if unseen > _NONE else 0.0
    best, chosen = 0.0, 0.0
    for share in SHARES:
        right = out_of_fold(site, rows, fold_of, learned.weighted(share)) == rows.codes
        gains = importance * (right.astype(float) - right_alone)
        gain, error = gains.sum() + beyond, np.sqrt(((gains - gains.mean()) ** 2).sum())
        if gain > max(best, _CLEAR * error):
            best, chosen = gain, share
    return chosen


def _importance(own: Codes, consensus: Codes, n_classes: int) -> NDArray[np.float64]:
    """What each row of the site counts. Less than 1 in all: the rest belongs to classes that it has no rows of."""
    counts = np.bincount(own, minlength=n_classes)
    frequent = np.bincount(consensus, minlength=n_classes) / len(consensus)
    of_class = _BY_CONSENSUS * frequent + (1 - _BY_CONSENSUS) * counts / len(own)
    return np.asarray(of_class[own] / counts[own])


def _worth(site: ActiveSite, rows: LabelledData, pseudo: LabelledData, importance: NDArray[np.float64]) -> float:
    """How right a model of the pseudo-labels alone is on the site's rows: 0 to 1."""
    answers = site.train(LabelledData(pseudo.X, pseudo.codes)).predict_codes(rows.X)
    return float(importance @ (answers == rows.codes) / importance.sum())
