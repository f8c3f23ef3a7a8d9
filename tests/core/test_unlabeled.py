"""A site's own unlabeled rows: how they are declared, checked and read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core.site import ActiveSite
from collegium.errors import SiteError

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
CLASSES = np.array([0, 1])


def test_they_are_kept_as_a_table_and_do_not_count_as_samples() -> None:
    site = cg.Site("a", X, Y, unlabeled=(X + 1).tolist())
    assert site.unlabeled.shape == (6, 2)
    assert len(site) == 6


def test_a_site_may_have_nothing_else() -> None:
    site = cg.Site("a", None, None, unlabeled=X)
    assert len(site) == 0
    assert site.X.shape == (0, 2)
    assert len(ActiveSite(site, np.array(["x", "y"]), None, 0, simulation=True).data) == 0


def test_reading_them_is_noted_like_reading_labelled_rows() -> None:
    active = ActiveSite(cg.Site("a", X, Y, unlabeled=X + 1), CLASSES, None, 0, simulation=True)
    unlabeled = active.unlabeled
    assert not active.exposure.read
    assert np.array_equal(unlabeled.X, X + 1)
    assert active.exposure.read
    counting = ActiveSite(cg.Site("a", X, Y, unlabeled=X + 1), CLASSES, None, 0, simulation=True)
    assert len(counting.unlabeled) == 6
    assert counting.exposure.read  # how many there are is private, too


def test_a_site_without_them_has_none() -> None:
    assert len(ActiveSite(cg.Site("a", X, Y), CLASSES, None, 0, simulation=True).unlabeled) == 0


def test_other_rows_are_another_site() -> None:
    with_one, with_other, without = (
        ActiveSite(cg.Site("a", X, Y, unlabeled=rows), CLASSES, None, 0, simulation=True).fingerprint
        for rows in (X, X + 1, None)
    )
    assert len({with_one, with_other, without}) == 3


@pytest.mark.parametrize("other", [X[:, :1], pd.DataFrame(X)])
def test_other_columns_are_refused(other: Any) -> None:
    with pytest.raises(SiteError, match="unlabeled differ"):
        cg.run(cg.XCLP(), sites=[cg.Site("a", X + 1, Y, unlabeled=other)])


def test_methods_that_need_labels_everywhere_say_so() -> None:
    labelled = cg.Site("a", X, Y, learner=DecisionTreeClassifier())
    unlabeled = cg.Site("b", None, None, unlabeled=X, learner=DecisionTreeClassifier())
    with pytest.raises(SiteError, match=r"'b'.*no samples with labels for FedCT"):
        cg.run(cg.FedCT(rounds=1), sites=[labelled, unlabeled], public=X)


def test_methods_without_use_for_them_leave_them_alone() -> None:
    learner = DecisionTreeClassifier(random_state=0)
    runs = [
        cg.run(cg.Local(), sites=[cg.Site(n, X, Y, learner=learner, unlabeled=rows) for n in "ab"], test=(X, Y))
        for rows in (None, X + 1)
    ]
    assert runs[0].metrics.equals(runs[1].metrics)


def test_a_method_without_training_needs_no_learner_and_others_do() -> None:
    with pytest.raises(SiteError, match="no learner"):
        cg.run(cg.Local(), sites=[cg.Site("a", X, Y)])
