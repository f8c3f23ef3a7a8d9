"""Familiar: a site votes only where a public sample looks like its own data.

Ours, not in the papers. Under pathological label skew a site that knows two classes votes for them everywhere, and the
majority is wrong. Here each site tells its own rows from public rows with a logistic regression and, in the first
communication, votes only where that regression finds a sample familiar. Only labels and abstentions leave the site.
Afterwards every site has learned all classes from the consensus, and all vote.

The regression is trained on private data: where a privacy claim is made, it is one more private fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.linear_model import LogisticRegression

from collegium.consensus.base import Voters
from collegium.core import ActiveSite, HardLabels, Labels, Order, step, tables
from collegium.errors import ConfigError


@step
def vote_where_familiar(site: ActiveSite, threshold: float) -> HardLabels:
    """L_i <- h_i(U) where U looks like D_i, else an abstention."""
    votes = site.predict(site.public).codes.copy()
    votes[familiarity(site.data.X, site.public.X, site.rng) <= threshold] = -1
    return HardLabels(Labels(votes, site.n_classes))


@dataclass(frozen=True)
class Familiar(Voters):
    """Vote where the log odds that a sample is one's own, not a public one, are above `threshold`."""

    threshold: float = 1.0
    communications: int = 1
    """In how many communications sites may abstain; afterwards all vote."""

    def __post_init__(self) -> None:
        if not np.isfinite(self.threshold) or self.communications < 1:
            raise ConfigError("Familiar: threshold is a finite number and communications at least 1.")

    def order(self, communication: int) -> Order[HardLabels] | None:
        return vote_where_familiar(self.threshold) if communication < self.communications else None


def familiarity(X: Any, U: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """For each public row: the log odds that it is one of the site's own rows rather than a public one."""
    own, public = numeric_features(X, U)
    negatives = public[rng.permutation(len(public))[:2000]]
    rows = np.concatenate([own, negatives])
    mine = np.concatenate([np.ones(len(own)), np.zeros(len(negatives))])
    head = LogisticRegression(C=1.0, max_iter=200, class_weight="balanced").fit(rows, mine)
    return np.asarray(head.decision_function(public))


def numeric_features(X: Any, U: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both tables as a few numbers per row, learned from the public rows only."""
    if sparse.issparse(U):
        reducer: Any = TruncatedSVD(min(60, U.shape[1] - 1, U.shape[0] - 1), random_state=0)
    else:
        X, U = (np.asarray(table, dtype=float).reshape(tables.n_rows(table), -1) for table in (X, U))
        reducer = PCA(min(60, *U.shape), random_state=0)
    public = reducer.fit_transform(U)
    scale = 5.0 / np.linalg.norm(public, axis=1).mean()
    return reducer.transform(X) * scale, public * scale
