"""Sites whose learners keep what they were fitted on."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

import collegium as cg

LOCK = threading.Lock()
FITTED: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)


class Recorder(ClassifierMixin, BaseEstimator):
    """A decision tree that keeps what it was fitted on, by site."""

    def __init__(self, site: str = "") -> None:
        self.site = site

    def fit(self, X, y):
        with LOCK:
            FITTED[self.site].append((np.array(X), np.array(y)))
        self.tree_ = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X):
        return self.tree_.predict(X)


def recorders(federation: Any) -> list[cg.Site]:
    return [cg.Site(f"site{i}", X, y, learner=Recorder(f"site{i}")) for i, (X, y) in enumerate(federation.split.sites)]
