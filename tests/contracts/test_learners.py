"""What every registered learner must do, as it is, in a federation."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import cloudpickle
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from tests.learners.language.tiny_models import tiny_bert
from tests.learners.vision.tiny_backbones import tiny_backbone

import collegium as cg
from collegium import registry
from collegium.learners.prepare import flatten

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
    "text": {"max_length": 32, "epochs": 5, "lr": 3e-3},
    "vision": {"epochs": 20, "lr": 0.1},
    "private_voting": {"teachers": 3, "epsilon": 500.0},  # twenty records are no secret here
}
NEEDS = {
    "rulefit": "imodels", "torch": "torch", "xgboost": "xgboost", "lightgbm": "lightgbm", "text": "transformers",
    "vision": "safetensors",
}  # fmt: skip
LACKED = "grignolino"

pytestmark = pytest.mark.filterwarnings("ignore:.*penalty")  # imodels still passes it


def make(name: str) -> Any:
    if importlib.util.find_spec(NEEDS.get(name, "sklearn")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    return registry.lookup("learner", name)(**SETTINGS.get(name, {}) | extra(name))


def extra(name: str) -> dict[str, Any]:
    """Settings that must be made first."""
    models = {"text": _model, "vision": tiny_backbone}
    return {"model": models[name]()} if name in models else {}


@cache
def _model() -> str:
    return str(tiny_bert(Path(mkdtemp()) / "bert", words=WINE_WORDS))


WINE_WORDS = [f"{size}{place}" for place in range(13) for size in ("low", "mid", "high")]


# What a learner takes, if not numbers.
TAKES = {"text": "texts", "vision": "images"}
GLOBAL = {
    "texts": make_pipeline(CountVectorizer(), DecisionTreeClassifier()),
    "images": make_pipeline(FunctionTransformer(flatten), DecisionTreeClassifier()),
}


@pytest.fixture(scope="module")
def wines() -> dict[str, cg.Split]:
    """The same wines as numbers, as texts ("low0 mid1 high2"...), and as images of 4x4 pixels, some of them black."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    names = np.array(["barolo", LACKED, "barbera"])[y]
    texts = [" ".join(WINE_WORDS[3 * at + (v > -0.5) + (v > 0.5)] for at, v in enumerate(row)) for row in X]
    images = np.pad(np.clip(X / 6 + 0.5, 0, 1), ((0, 0), (0, 3))).reshape(-1, 1, 4, 4)
    forms = {"numbers": X, "texts": texts, "images": images}
    return {form: cg.split(rows, names, sites=3, public=60, test=40, seed=0) for form, rows in forms.items()}


@pytest.fixture
def wine(name: str, wines: dict[str, cg.Split]) -> cg.Split:
    return wines[TAKES.get(name, "numbers")]


def federate(wine: cg.Split, name: str) -> cg.Run:
    learner = make(name)
    parts = [(X[y != LACKED], y[y != LACKED]) if i == 0 else (X, y) for i, (X, y) in enumerate(wine.sites)]
    sites = [cg.Site(f"site{i}", *part, learner=learner) for i, part in enumerate(parts)]
    return cg.run(
        cg.FedCT(rounds=2),
        sites=sites,
        public=wine.public,
        test=wine.test,
        global_learner=GLOBAL.get(TAKES.get(name, "numbers"), DecisionTreeClassifier()),
    )


@pytest.fixture(scope="module")
def runs(wines: dict[str, cg.Split]) -> Any:
    """The first run of each learner, made when it is first wanted."""
    done: dict[str, cg.Run] = {}

    def run(name: str) -> cg.Run:
        if name not in done:
            done[name] = federate(wines[TAKES.get(name, "numbers")], name)
        return done[name]

    return run


# Language models come with packages that take long to import: one process does for all tests of them.
GROUPS = {"text": "language models"}
every_learner = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xdist_group(GROUPS.get(name, f"contracts of {name}")))
        for name in registry.names("learner")
    ],
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
    first, again = runs(name), federate(wine, name)
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
