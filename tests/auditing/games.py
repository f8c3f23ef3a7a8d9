"""Small games that are over in a moment, and a learner that claims what it does not do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.privacy.learners.base import PrivateLearner


def two_classes(n: int, seed: int = 0, columns: int = 6) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows of two classes that overlap a little."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    return X, (X[:, 0] + 0.5 * X[:, 1] + 0.4 * rng.normal(size=n) > 0).astype(np.int64)


def sites(learner: Any = None, *, records: int = 300, number: int = 3, **settings: Any) -> list[cg.Site]:
    """Sites of equal size; the first one is attacked."""
    X, y = two_classes(records * number)
    made = []
    for place in range(number):
        rows = slice(place * records, (place + 1) * records)
        one = DecisionTreeClassifier(random_state=place) if learner is None else learner
        made.append(cg.Site(f"site{place}", X[rows], y[rows], learner=one, **(settings if place == 0 else {})))
    return made


PUBLIC = two_classes(120, seed=1)[0]


class Boastful(PrivateLearner, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Says that it is private, and is a decision tree."""

    fits = 1

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def check(self) -> None: ...

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        return Charge((Pure(1, self.epsilon),), relation="add_remove")

    def fit(self, X: Any, y: Any) -> Boastful:
        return self.fit_private(X, y, X, classes=np.unique(y))

    def fit_private(
        self, X: Any, y: Any, public: Any, pseudo: tuple[Any, Any] | None = None, *, classes: Any = None,
        size: int | None = None,
    ) -> Boastful:  # fmt: skip
        self.charge_ = self.charge(len(y), len(public), len(classes))
        self.tree_ = DecisionTreeClassifier(random_state=0).fit(X, y)
        self.classes_ = np.asarray(classes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.tree_.predict(X))

    def public_learner(self) -> DecisionTreeClassifier:
        return DecisionTreeClassifier()
