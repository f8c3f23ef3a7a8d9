from __future__ import annotations

import numpy as np
from tests.auditing.games import PUBLIC, two_classes

import collegium as cg
from collegium.auditing.stand_ins import with_stand_ins


def test_stand_ins_have_public_rows_and_the_labels_that_the_site_would_give() -> None:
    X, y = two_classes(200)
    site = cg.Site("a", X, y, learner=cg.PrivateVoting(teachers=5))
    (same, *others), labels = with_stand_ins(site, PUBLIC, 3, 0)
    assert same is site
    assert labels is not None
    assert len(labels) == len(PUBLIC)
    assert [other.name for other in others] == ["stand-in 1", "stand-in 2", "stand-in 3"]
    public = {tuple(row) for row in PUBLIC}
    assert all(tuple(row) in public for other in others for row in other.X)
    assert not any(isinstance(other.learner, cg.PrivateVoting) for other in others)


def test_without_public_rows_they_have_some_of_the_sites_own() -> None:
    X, y = two_classes(90)
    (kept, *others), labels = with_stand_ins(cg.Site("a", X, y, learner=None), None, 2, 0)
    assert labels is None
    assert len(kept) == 60
    assert sum(map(len, others)) == 30
    every = np.vstack([kept.X, *(other.X for other in others)])
    assert len({tuple(row) for row in every}) == 90
