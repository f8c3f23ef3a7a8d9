"""Learners whose constructors copy their settings, as CatBoost's does with `cat_features`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import collegium as cg


class WithCategories(DecisionTreeClassifier):
    """A tree of named categories; it keeps a copy of their names, which scikit-learn's `clone` refuses."""

    def __init__(self, cat_features=(), max_depth=None, random_state=None):
        super().__init__(max_depth=max_depth, random_state=random_state)
        self.cat_features = list(cat_features)

    def _encoded(self, X):
        return self.encoder_.transform(X)

    def fit(self, X, y, sample_weight=None):
        encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        self.encoder_ = make_column_transformer((encode, self.cat_features), remainder="passthrough").fit(X)
        return super().fit(self._encoded(X), y, sample_weight)

    def predict(self, X):
        return super().predict(self._encoded(X))

    def predict_proba(self, X):
        return super().predict_proba(self._encoded(X))


def catboost():
    package = pytest.importorskip("catboost")
    settings = {"iterations": 20, "depth": 3, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    return package.CatBoostClassifier(cat_features=["ward", "sex"], **settings)


def patients(rng, rows):
    X = pd.DataFrame(
        {"age": rng.normal(60, 9, rows), "ward": rng.choice(["icu", "er"], rows), "sex": rng.choice(["f", "m"], rows)}
    )
    return X, np.where(X["age"] + 10 * (X["ward"] == "icu") > 65, "ill", "well")


@pytest.mark.parametrize("make", [lambda: WithCategories(["ward", "sex"], 4), catboost], ids=["a tree", "CatBoost"])
@pytest.mark.parametrize("method", [cg.FedCT(rounds=2, consensus=cg.Informed()), cg.FedKT()], ids=["FedCT", "FedKT"])
def test_it_takes_part(make, method, tmp_path):
    learner, rng = make(), np.random.default_rng(0)
    with pytest.raises(RuntimeError, match="cat_features"):
        clone(learner)
    sites = [cg.Site(name, *patients(rng, 120), learner=learner) for name in "ab"]
    public, test = patients(rng, 100)[0], patients(rng, 100)
    run = cg.run(method, sites=sites, public=public, test=test, metrics=["roc_auc"], out=tmp_path / "run")
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.7
    assert list(cg.load(tmp_path / "run").models["a"].predict(public)) == list(run.models["a"].predict(public))
    assert getattr(learner, "classes_", None) is None  # the user's learner is never fitted
