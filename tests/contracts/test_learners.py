"""What every registered learner must do, as it is, in a federation."""

from __future__ import annotations

import importlib.util
from typing import Any

import cloudpickle
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import registry

# Only to make them quick and quiet: all else is their default.
SETTINGS: dict[str, dict[str, Any]] = {
    "random_forest": {"n_estimators": 10},
    "extra_trees": {"n_estimators": 10},
    "gradient_boosting": {"max_iter": 10, "min_samples_leaf": 3},
    "mlp": {"max_iter": 30},
    "xgboost": {"n_estimators": 10},
    "lightgbm": {"n_estimators": 10, "min_child_samples": 3, "verbose": -1},
    "rulefit": {"n_estimators": 3, "max_rules": 6},
    "torch": {"epochs": 3},
    "private_voting": {"teachers": 3, "epsilon": 500.0},  # twenty records are no secret here
}
NEEDS = {"rulefit": "imodels", "torch": "torch", "xgboost": "xgboost", "lightgbm": "lightgbm"}
LACKED = "grignolino"

pytestmark = pytest.mark.filterwarnings("ignore:.*penalty")  # imodels still passes it


def make(name: str) -> Any:
    if importlib.util.find_spec(NEEDS.get(name, "sklearn")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    return registry.lookup("learner", name)(**SETTINGS.get(name, {}))


@pytest.fixture(scope="module")
def wine() -> cg.Split:
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", LACKED, "barbera"])[y]
    return cg.split((X - X.mean(axis=0)) / X.std(axis=0), names, sites=3, public=60, test=40, seed=0)


def federate(wine: cg.Split, learner: Any) -> cg.Run:
    parts = [(X[y != LACKED], y[y != LACKED]) if i == 0 else (X, y) for i, (X, y) in enumerate(wine.sites)]
    sites = [cg.Site(f"site{i}", *part, learner=learner) for i, part in enumerate(parts)]
    return cg.run(
        cg.FedCT(rounds=2),
        sites=sites,
        public=wine.public,
        test=wine.test,
        global_learner=DecisionTreeClassifier(),
    )


@pytest.fixture(scope="module")
def runs(wine: cg.Split) -> Any:
    """The first run of each learner, made when it is first wanted."""
    done: dict[str, cg.Run] = {}

    def run(name: str) -> cg.Run:
        if name not in done:
            done[name] = federate(wine, make(name))
        return done[name]

    return run


every_learner = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.xdist_group(f"contracts of {name}")) for name in registry.names("learner")],
)


@every_learner
def test_it_learns_with_string_labels_at_sites_that_lack_a_class(name: str, runs: Any, wine: cg.Split) -> None:
    run = runs(name)
    assert run.refusals.empty
    assert list(run.models) == ["site0", "site1", "site2"]
    for model in run.models.values():
        answers = model.predict(wine.test[0])
        assert answers.dtype.kind == "U"
        assert set(answers) <= {"barolo", LACKED, "barbera"}
        np.testing.assert_array_equal(model.classes_, ["barbera", "barolo", LACKED])
        np.testing.assert_array_equal(model.classes_[model.predict_codes(wine.test[0])], answers)
    assert run.accuracy.to_numpy().mean() > 0.4  # better than one class for all


@every_learner
def test_the_same_seed_gives_the_same_result_bit_for_bit(name: str, runs: Any, wine: cg.Split) -> None:
    first, again = runs(name), federate(wine, make(name))
    assert first.metrics.equals(again.metrics)
    assert list(first.releases["sha256"]) == list(again.releases["sha256"])
    for party, model in first.models.items():
        np.testing.assert_array_equal(model.predict(wine.public), again.models[party].predict(wine.public))
        if hasattr(model.estimator, "predict_proba"):
            np.testing.assert_array_equal(
                model.predict_proba(wine.public), again.models[party].predict_proba(wine.public)
            )


@every_learner
def test_its_models_can_be_stored(name: str, runs: Any, wine: cg.Split) -> None:
    model = runs(name).models["site0"]
    loaded = cloudpickle.loads(cloudpickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(wine.test[0]), model.predict(wine.test[0]))
    cloudpickle.loads(cloudpickle.dumps(make(name)))


@every_learner
def test_it_has_settings_that_a_clone_keeps(name: str) -> None:
    learner = make(name)
    settings = learner.get_params()
    assert SETTINGS.get(name, {}).items() <= settings.items()
    assert repr(clone(learner).get_params()) == repr(settings)
    if "random_state" in settings:
        assert clone(learner.set_params(random_state=3)).random_state == 3
