"""The search for the least penalty: the limit holds, little more would break it, and no point nearby is better."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from collegium.learners.rulefit.sparse_logistic import (
    CLOSE_ENOUGH,
    L1_SHARE,
    LEAST_PENALTY,
    SparseLogistic,
    fit_sparse,
    least_penalised,
)


@pytest.fixture(scope="module")
def tumours() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y.astype(float)


@pytest.fixture(scope="module")
def noisy() -> tuple[np.ndarray, np.ndarray]:
    """No plane divides these classes, so that only the limit ends the search."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30))
    return X, (rng.random(400) < expit(X[:, :10] @ np.linspace(1, 0.1, 10))).astype(float)


def nothing(X: np.ndarray) -> SparseLogistic:
    return SparseLogistic(np.zeros(X.shape[1]), 0.0, 1.0)


def cost(X: np.ndarray, y: np.ndarray, fit: SparseLogistic) -> float:
    logits = X @ fit.weights + fit.intercept
    net = L1_SHARE * np.abs(fit.weights).sum() + (1 - L1_SHARE) / 2 * (fit.weights**2).sum()
    return float(np.logaddexp(0, logits).sum() - y @ logits + fit.penalty * net)


def by_saga(X: np.ndarray, y: np.ndarray, penalty: float) -> SparseLogistic:
    saga = LogisticRegression(C=1 / penalty, l1_ratio=L1_SHARE, solver="saga", max_iter=5000, tol=1e-6, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if saga.get_params()["penalty"] != "deprecated":  # older versions want it named
            saga.set_params(penalty="elasticnet")
        saga.fit(X, y)
    return SparseLogistic(saga.coef_.ravel(), float(saga.intercept_[0]), penalty)


@pytest.mark.parametrize("penalty", [100.0, 3.0, 0.03])
def test_it_is_scikit_learns_own_elastic_net(tumours, penalty: float) -> None:
    X, y = tumours
    ours, theirs = fit_sparse(X, y, penalty, nothing(X)), by_saga(X, y, penalty)
    assert cost(X, y, ours) <= cost(X, y, theirs) * 1.002
    same = (X @ ours.weights > -ours.intercept) == (X @ theirs.weights > -theirs.intercept)
    assert same.mean() > 0.99


def test_a_row_far_on_the_wrong_side_does_not_stop_the_descent() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(float)
    X[0], y[0] = [10.0, 0.0, 0.0], 0.0
    ours, theirs = fit_sparse(X, y, 0.01, nothing(X)), by_saga(X, y, 0.01)
    assert cost(X, y, ours) <= cost(X, y, theirs) * 1.002


@pytest.mark.parametrize("limit", [0, 1, 5, 12, 20])
def test_the_limit_holds_and_a_little_less_penalty_breaks_it(noisy, limit: int) -> None:
    X, y = noisy
    found = least_penalised(X, y, limit)
    assert limit - 3 <= found.terms <= limit
    l1_share = L1_SHARE if limit >= 10 else 1.0
    assert fit_sparse(X, y, found.penalty / CLOSE_ENOUGH**2, found, l1_share).terms > limit


def test_where_few_may_stay_those_that_matter_do(noisy) -> None:
    X, y = noisy
    copies = np.hstack([X, *[X[:, :1] + 0.1 * np.random.default_rng(i).normal(size=(400, 1)) for i in range(20)]])
    found = least_penalised(copies, y, 6)
    assert 0 < found.terms <= 6
    assert ((copies @ found.weights + found.intercept > 0) == y).mean() > 0.65


def test_a_limit_that_never_binds_ends_at_the_least_penalty(noisy) -> None:
    X, y = noisy
    found = least_penalised(X, y, 30)
    assert found.penalty == LEAST_PENALTY
    assert found.terms == 30


def test_the_weights_of_classes_that_a_plane_divides_do_not_grow_for_ever() -> None:
    X = np.repeat([[-1.0], [1.0]], 25, axis=0)
    found = least_penalised(X, np.repeat([0.0, 1.0], 25), 5)
    assert found.terms == 1
    assert found.penalty > LEAST_PENALTY
    assert 5 < found.weights[0] < 20


def test_columns_that_say_the_same_share_the_weight(noisy) -> None:
    X, y = noisy
    found = fit_sparse(np.hstack([X[:, :1]] * 3), y, 1.0, SparseLogistic(np.zeros(3), 0.0, 1.0))
    np.testing.assert_allclose(found.weights, found.weights.mean(), rtol=0.2)


def test_one_class_is_refused(tumours) -> None:
    X, _ = tumours
    with pytest.raises(ValueError, match="two classes"):
        least_penalised(X, np.ones(len(X)), 5)


def test_nothing_is_said_and_nobody_elses_generator_is_used(noisy) -> None:
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        least_penalised(*noisy, 10)
    np.testing.assert_array_equal(np.random.random(3), expected)
