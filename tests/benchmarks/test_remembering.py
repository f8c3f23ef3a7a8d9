"""Pipelines that are fitted once say what plain ones say."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from benchmarks.remembering import Remembered, remembering
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks import consensus_cells

CELL = (0, "breast_cancer", "Dir(0.5)", "alike")
RULES = ["familiar, informed, guarded"]


def test_a_cell_is_what_it_is_without_remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = consensus_cells.outcomes(CELL, RULES, 30, 60)
    monkeypatch.setattr(consensus_cells, "remembering", nullcontext)
    monkeypatch.setattr(consensus_cells, "Remembered", Pipeline)
    assert consensus_cells.outcomes(CELL, RULES, 30, 60) == remembered


def test_the_same_rows_are_fitted_once_and_others_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    plain = Pipeline.fit

    def fit(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
        fits.append(len(X))
        return plain(self, X, y, **params)

    monkeypatch.setattr(Pipeline, "fit", fit)
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    weights = {"learner__sample_weight": np.linspace(0, 1, 40)}
    asked = [(X, y, {}), (X, y, {}), (X[:30], y[:30], {}), (X, 1 - y, {}), (X, y, weights), (X, y, weights)]
    with remembering():
        models = [_learner().fit(rows, labels, **params) for rows, labels, params in asked]
        again = models[0].fit(X, 1 - y)  # which must not change what others were given
    assert fits == [40, 30, 40, 40]
    np.testing.assert_array_equal(models[1].predict(X), y)
    np.testing.assert_array_equal(again.predict(X), 1 - y)


def _learner() -> Remembered:
    return Remembered([("scaled", StandardScaler()), ("learner", DecisionTreeClassifier(random_state=0))])
