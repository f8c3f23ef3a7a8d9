"""RuleFit (Friedman and Popescu 2008) from imodels, with the settings of the FedCT paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.multiclass import OneVsRestClassifier

from collegium.core.settings import PositiveInt, TwoOrMore, check_parameters
from collegium.errors import MissingExtra


@dataclass(eq=False, repr=False)
class RuleFit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A sparse linear model over rules read from small trees: trees of size 4 and at most 200 rules, as in the paper.

    imodels' own classifier supports two classes only; with more, one model per class is fitted against the rest. Unlike
    in imodels, the penalty is an elastic net, half L1, and the intercept is not penalized (see `sparse_logistic`).
    `cv` chooses the penalty by imodels' cross-validation, which takes minutes, instead of keeping as many rules as
    `max_rules` allows, which takes seconds.
    `model_` is the fitted imodels classifier (or the `OneVsRestClassifier` around several).
    """

    tree_size: TwoOrMore = 4
    max_rules: PositiveInt = 200
    n_estimators: PositiveInt = 100
    cv: bool = False
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> RuleFit:
        """Fit on numeric features."""
        check_parameters(self)
        try:
            import imodels  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtra("rulefit", "RuleFit") from None
        from collegium.learners.rulefit.quick_rules import QuickRuleFit

        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        rules = QuickRuleFit(**self.get_params(deep=False))
        self.model_ = rules if len(self.classes_) <= 2 else OneVsRestClassifier(rules)
        self.model_.fit(np.asarray(X, dtype=float), codes)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities in the order of `classes_`."""
        return np.asarray(self.model_.predict_proba(np.asarray(X, dtype=float)), dtype=float)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
