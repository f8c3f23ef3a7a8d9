"""imodels' RuleFit with a quick search for the penalty. Needs the extra `rulefit`: imported when a model is fitted."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from imodels import RuleFitClassifier
from imodels.util.rule import Rule
from numpy.typing import NDArray
from scipy.special import expit

from collegium.learners.rulefit.sparse_logistic import least_penalised

# imodels seeds and uses numpy's process-wide generator for the trees: one at a time, restoring the caller's state.
_GLOBAL_RANDOMNESS = threading.Lock()


class QuickRuleFit(RuleFitClassifier):  # type: ignore[misc]
    """imodels tries up to 100 penalties one after the other, with liblinear, and takes the least that leaves at most
    `max_rules` terms. This looks for that one by bisection, and its penalty is an elastic net.

    A given or cross-validated penalty is left to imodels.
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The logistic function of the weighted sum; imodels says 1/2 for even odds, which favors the first class."""
        second = expit(self._predict_continuous_output(np.asarray(X, dtype=float)))
        return np.column_stack([1 - second, second])

    def _extract_rules(self, X: Any, y: Any) -> Any:
        with _GLOBAL_RANDOMNESS:
            state = np.random.get_state()
            try:
                return super()._extract_rules(X, y)
            finally:
                np.random.set_state(state)

    def _score_rules(self, X: Any, y: Any, rules: list[str]) -> tuple[list[Rule], list[float], float]:
        if self.cv or self.alpha is not None or self.max_rules is None:
            scored: tuple[list[Rule], list[float], float] = super()._score_rules(X, y, rules)
            return scored
        self.winsorizer.train(X)
        self.friedscale.train(X)
        trimmed = self.winsorizer.trim(X)
        self.stddev, self.mean = trimmed.std(axis=0), trimmed.mean(axis=0)
        hits = self.transform(X, rules)
        found = least_penalised(np.hstack([self.friedscale.scale(X), hits]), np.asarray(y, dtype=float), self.max_rules)
        linear, of_rules = np.split(found.weights, [X.shape[1]])
        kept = np.flatnonzero(of_rules)
        chosen = [Rule(rules[i], args=[of_rules[i]], support=hits[:, i].mean()) for i in kept]
        return chosen, [*linear, *of_rules[kept]], found.intercept
