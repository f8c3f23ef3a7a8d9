"""Sites that say what a test hands them: for testing consensus rules through a real federation."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core import ActiveSite, Federation, HardLabels, Labels, step
from collegium.core.public_set import PublicSet
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink


@step
def say(site: ActiveSite) -> HardLabels:
    """The votes that the test handed to this site as its data; -1 abstains."""
    return HardLabels(Labels(site.data.X[0].astype(int), site.n_classes))


class Meetings:
    """Makes federations whose i-th site says what the i-th row of `votes` says, and has `samples[i]` samples."""

    def __init__(self, links: ExitStack) -> None:
        self._links = links

    def __call__(
        self, votes, samples=None, n_classes: int = 3, seed: int = 0, kind: type[Federation] = Federation
    ) -> Federation:
        votes = np.asarray(votes)
        samples = [1] * len(votes) if samples is None else samples
        sites = [
            cg.Site(f"s{i}", np.tile(row, (n, 1)), [0] * n, learner=DecisionTreeClassifier())
            for i, (row, n) in enumerate(zip(votes, samples, strict=True))
        ]
        public = PublicSet(np.arange(votes.shape[1])[:, None])
        link = LocalLink(Hosting(tuple(sites), np.arange(n_classes), public, None, seed))
        self._links.callback(link.close)
        return kind(link, run="r", n_classes=n_classes, seed=seed, public=public)
