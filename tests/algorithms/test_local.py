"""Local: every site alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import ConfigError


def test_each_model_is_the_learner_fitted_on_its_sites_data(cancer) -> None:
    run = cancer.run(cg.Local(), DecisionTreeClassifier(max_features=3, random_state=0))
    X = cancer.split.test[0]
    for name, part in zip(cancer.split.names, cancer.split.sites, strict=True):
        by_hand = DecisionTreeClassifier(max_features=3, random_state=0).fit(*part)
        np.testing.assert_array_equal(run.models[name].predict(X), by_hand.predict(X))
        assert run.accuracy.loc[0, name] == by_hand.score(*cancer.split.test)


def test_nothing_leaves_and_there_is_no_consensus(cancer) -> None:
    run = cancer.run(cg.Local(rounds=2))
    assert run.releases.empty
    assert run.labels is None
    assert run.global_model is None
    assert set(run.metrics["metric"]) == {"accuracy"}


def test_it_needs_no_public_set_and_makes_no_use_of_one(cancer) -> None:
    learner = DecisionTreeClassifier(max_features=3)
    without = cg.run(cg.Local(), sites=cancer.sites(learner), test=cancer.split.test)
    assert without.metrics.equals(cancer.run(cg.Local(), learner).metrics)


def test_rounds_are_noted_and_let_iterative_learners_go_on(cancer) -> None:
    learner = MLPClassifier((5,), solver="sgd", max_iter=2, warm_start=True)
    run = cancer.run(cg.Local(rounds=3), learner)
    assert list(run.accuracy.index) == [0, 1, 2]
    assert {model.estimator.t_ for model in run.models.values()} == {3 * 2 * 17}  # rows seen in all


def test_epochs_set_the_size_of_an_update(cancer) -> None:
    run = cancer.run(cg.Local(rounds=2, epochs=3), SGDClassifier())
    assert {model.estimator.t_ for model in run.models.values()} == {2 * 3 * 17 + 1}


@pytest.mark.parametrize("name", ["rounds", "epochs", "steps"])
def test_counts_start_at_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Local: {name}"):
        cg.Local(**{name: 0})
