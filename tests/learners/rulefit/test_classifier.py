"""RuleFit: rules for two classes and for more, the same for the same seed, and nobody else's generator disturbed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine

from collegium.errors import MissingExtra
from collegium.learners.rulefit.classifier import RuleFit

pytest.importorskip("imodels")
pytestmark = pytest.mark.filterwarnings("ignore:.*penalty")  # imodels still passes it

SMALL = {"n_estimators": 10, "max_rules": 12}


@pytest.fixture(scope="module")
def tumours() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return X[:100, :6], y[:100]


@pytest.fixture(scope="module")
def two(tumours) -> RuleFit:
    return RuleFit(**SMALL, random_state=0).fit(*tumours)


def test_the_papers_settings_are_the_default() -> None:
    model = RuleFit()
    assert (model.tree_size, model.max_rules) == (4, 200)


def test_two_classes(two: RuleFit, tumours) -> None:
    X, y = tumours
    assert two.classes_.tolist() == [0, 1]
    assert two.score(X, y) > 0.85
    chances = two.predict_proba(X)
    assert chances.shape == (100, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_array_equal(two.predict(X), chances.argmax(axis=1))
    assert 0 < len(two.model_.rules_) <= 12


@pytest.mark.parametrize("limit", [3, 8, 30])
def test_rules_and_linear_terms_together_keep_to_the_limit(limit: int, tumours) -> None:
    model = RuleFit(n_estimators=20, max_rules=limit, random_state=0).fit(*tumours).model_
    assert np.count_nonzero(model.coef) <= limit
    assert len(model.rules_) == np.count_nonzero(model.coef[6:])
    assert all(rule.args[0] != 0 and 0 < rule.support < 1 for rule in model.rules_without_feature_names_)


def test_it_is_as_right_as_imodels_own_search() -> None:
    from imodels import RuleFitClassifier

    X, y = load_breast_cancer(return_X_y=True)
    ours, theirs = [], []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[:60], order[60:]
        settings = {"tree_size": 4, "max_rules": 60, "n_estimators": 20, "cv": False, "random_state": seed}
        ours.append(RuleFit(**settings).fit(X[train], y[train]).score(X[test], y[test]))
        own = RuleFitClassifier(**settings).fit(X[train], y[train])
        theirs.append(((own._predict_continuous_output(X[test]) > 0) == y[test]).mean())
    assert np.mean(ours) > np.mean(theirs) - 0.02


def test_the_penalty_can_be_chosen_by_cross_validation(two: RuleFit, tumours) -> None:
    X, y = tumours
    chosen = RuleFit(**SMALL, cv=True, random_state=0).fit(X, y)
    assert chosen.score(X, y) > 0.85
    assert chosen.model_.cv
    assert not two.model_.cv


def test_words_for_labels_change_the_answers_names_only(two: RuleFit, tumours) -> None:
    X, y = tumours
    named = RuleFit(**SMALL, random_state=0).fit(X, np.array(["bad", "good"])[y])
    assert named.classes_.tolist() == ["bad", "good"]
    np.testing.assert_array_equal(named.predict(X), np.array(["bad", "good"])[two.predict(X)])
    np.testing.assert_array_equal(named.predict_proba(X), two.predict_proba(X))


def test_three_classes_with_names_in_any_order() -> None:
    X, y = load_wine(return_X_y=True)
    names = np.array(["zinfandel", "merlot", "arneis"])[y]
    model = RuleFit(**SMALL, random_state=0).fit(X[::3], names[::3])
    assert model.classes_.tolist() == ["arneis", "merlot", "zinfandel"]
    assert model.score(X, names) > 0.85
    chances = model.predict_proba(X)
    assert chances.shape == (178, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert len(model.model_.estimators_) == 3
    even = model.model_.estimators_[0]
    second = even.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(second > 0.5, even._predict_continuous_output(X) > 0)


def test_the_same_seed_gives_the_same_rules_even_when_several_threads_fit(two: RuleFit, tumours) -> None:
    X, y = tumours
    jobs = [0, 1, 0, 1]
    with ThreadPoolExecutor(4) as pool:
        fitted = list(pool.map(lambda seed: RuleFit(**SMALL, random_state=seed).fit(X, y), jobs))
    for model in (fitted[0], fitted[2]):
        np.testing.assert_array_equal(model.predict_proba(X), two.predict_proba(X))
        assert [str(rule) for rule in model.model_.rules_] == [str(rule) for rule in two.model_.rules_]
    np.testing.assert_array_equal(fitted[1].predict_proba(X), fitted[3].predict_proba(X))
    assert not np.array_equal(fitted[0].predict_proba(X), fitted[1].predict_proba(X))


def test_numpys_own_generator_is_left_as_it_was(tumours) -> None:
    X, y = tumours
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    model = RuleFit(**SMALL, random_state=0).fit(X[:60], y[:60])
    model.predict(X)
    np.testing.assert_array_equal(np.random.random(3), expected)


def test_it_is_put_back_when_a_fit_fails(tumours) -> None:
    X, y = tumours
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    with pytest.raises(ValueError):
        RuleFit(n_estimators=3, max_rules=None, random_state=0).fit(X, y)
    np.testing.assert_array_equal(np.random.random(3), expected)


def test_it_can_be_cloned_with_its_settings(two: RuleFit) -> None:
    copy = clone(two)
    assert copy.get_params() == two.get_params()
    assert copy.get_params().items() >= (SMALL | {"random_state": 0}).items()
    assert not hasattr(copy, "model_")


def test_without_imodels_the_error_names_the_extra(monkeypatch, tumours) -> None:
    monkeypatch.setitem(sys.modules, "imodels", None)
    with pytest.raises(MissingExtra, match=r"collegium\[rulefit\]"):
        RuleFit().fit(*tumours)
