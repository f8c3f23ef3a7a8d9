"""A site that answers twice in a round has one line of metrics for it."""

from __future__ import annotations

import numpy as np
from sklearn.tree import DecisionTreeClassifier

import collegium as cg

X = np.random.default_rng(0).normal(size=(90, 3))
Y = (X[:, 0] > 0).astype(int)


def test_a_site_that_answers_twice_in_a_round_is_tested_once() -> None:
    run = cg.run(
        cg.FedCT(2, consensus=cg.Informed()),
        sites=[cg.Site(f"s{i}", X[i::2], Y[i::2], learner=DecisionTreeClassifier()) for i in range(2)],
        public=X[:30],
        test=(X, Y),
        metrics=["balanced_accuracy"],
    )
    assert not run.metrics.duplicated(["round", "party", "split", "metric"]).any()
