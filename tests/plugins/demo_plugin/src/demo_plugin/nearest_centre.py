"""A learner: any scikit-learn classifier will do. This file needs nothing of Collegium."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data


class NearestCentre(ClassifierMixin, BaseEstimator):
    """The class whose centre is nearest, with features in units of their spread."""

    def __init__(self, shrink: float = 0.0) -> None:
        self.shrink = shrink
        """0 leaves the centres where they are, 1 moves them all to the middle of the data."""

    def fit(self, X: Any, y: Any) -> NearestCentre:
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self.spread_ = X.std(axis=0) + 1e-9
        centres = np.stack([X[y == value].mean(axis=0) for value in self.classes_])
        self.centres_ = centres + self.shrink * (X.mean(axis=0) - centres)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        distances = [np.linalg.norm((X - centre) / self.spread_, axis=1) for centre in self.centres_]
        return self.classes_[np.argmin(distances, axis=0)]
