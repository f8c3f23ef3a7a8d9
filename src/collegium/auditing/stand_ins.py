"""Made-up neighbours for a site that audits itself: the rows of the real ones are not here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from collegium.core.site import Site
from collegium.learners.prepare import with_preparation
from collegium.runs.runner import public_part
from collegium.wire import tables

_TREES: Final = 50
_MOST_ROWS: Final = 2000


def with_stand_ins(site: Site, public: Any, number: int, seed: int) -> tuple[list[Site], NDArray[Any] | None]:
    """The site and so many others, and labels of the public rows as the site would give them.

    The others have the site's learner (what follows a private fit, where that is private), and public rows with labels
    by a forest of the site's records. Without public rows they have a third of the site's own.
    """
    rng = np.random.default_rng([seed, 5])
    learner = public_part(site.learner)
    if public is None:
        order = rng.permutation(len(site))
        parts = np.array_split(order[: len(site) // 3], max(1, number)) if number else []
        own = np.sort(order[len(site) // 3 :]) if number else np.arange(len(site))
        kept = replace(site, X=tables.take(site.X, own), y=site.y[own])
        others = [
            _other(site, place, tables.take(site.X, rows), site.y[rows], learner) for place, rows in enumerate(parts)
        ]
        return [kept, *others], None
    forest = with_preparation(RandomForestClassifier(_TREES, random_state=seed), site.X)
    labels: NDArray[Any] = forest.fit(site.X, site.y).predict(public)
    rows = min(len(site), tables.n_rows(public), _MOST_ROWS)
    drawn = [rng.choice(tables.n_rows(public), rows, replace=False) for _ in range(number)]
    others = [_other(site, place, tables.take(public, each), labels[each], learner) for place, each in enumerate(drawn)]
    return [site, *others], labels


def _other(site: Site, place: int, X: Any, y: NDArray[Any], learner: Any) -> Site:
    unlabeled = None if site.unlabeled is None else tables.take(X, np.arange(tables.n_rows(X) // 2))
    return Site(f"stand-in {place + 1}", X, y, learner=learner, unlabeled=unlabeled)
