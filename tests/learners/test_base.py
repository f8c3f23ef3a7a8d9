"""Trainer and SiteModel: any learner as it is, with the study's classes, seeds and warm starts around it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import collegium as cg
from collegium.core.samples import LabelledData
from collegium.core.terms import LocalTerms
from collegium.errors import ConfigError
from collegium.learners.base import (
    LocalUpdate,
    SiteModel,
    Trainer,
    goes_on,
    is_iterative,
    learner_name,
    seeded_clone,
    wants_codes,
)
from collegium.learners.torch.classifier import TorchClassifier
from collegium.links.hosting import threads_per_site

WORDS = np.array(["apple", "fig", "pear"])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads_per_site():
        yield


def blobs(codes: Any, seed: int = 0) -> np.ndarray:
    """Rows whose class is easy to tell: feature c is large in class c."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(codes), 4)) + 8 * np.eye(4)[np.asarray(codes)]


def train(
    learner: Any,
    codes: Any,
    classes: np.ndarray = WORDS,
    X: Any = None,
    pseudo: Any = (),
    previous: SiteModel | None = None,
    seed: int = 0,
    **update: int,
) -> SiteModel:
    codes, pseudo = np.asarray(codes, dtype=np.int8), np.asarray(pseudo, dtype=np.int8)
    X = blobs(codes) if X is None else X
    public = LabelledData(blobs(pseudo, seed=1) if len(pseudo) else X[:0], pseudo)
    rng = np.random.default_rng(seed)
    return Trainer(learner, classes).fit(LabelledData(X, codes) + public, previous, rng, LocalUpdate(**update))


LEARNERS = [
    DecisionTreeClassifier(),
    LogisticRegression(),
    MLPClassifier((32,), max_iter=300),
    SVC(),
    XGBClassifier(n_jobs=1, n_estimators=5),
    LGBMClassifier(n_jobs=1, n_estimators=5, min_child_samples=1, verbose=-1),
    TorchClassifier("linear", lr=0.1, epochs=30),
]
NAMES = [learner_name(learner) for learner in LEARNERS]
ALL = np.arange(60) % 3
LACKING = np.where(np.arange(60) % 2, 0, 2)  # class 1, in the middle, is missing
TEST = np.array([0, 2, 2, 0, 2])


# Labels of the user's own type


@pytest.mark.parametrize("learner", LEARNERS, ids=NAMES)
@pytest.mark.parametrize(
    "classes",
    [WORDS, np.array([-5, 10, 1000]), np.array([1.0, 2.0, 4.0]), np.array([1, 2, 3], dtype=np.uint8)],
    ids=["strings", "ints", "floats", "uint8"],
)
def test_answers_come_in_the_users_own_labels(learner: Any, classes: np.ndarray) -> None:
    model = train(learner, ALL, classes)
    answers = model.predict(blobs(TEST))
    assert answers.dtype == classes.dtype
    np.testing.assert_array_equal(answers, classes[TEST])
    np.testing.assert_array_equal(model.predict_codes(blobs(TEST)), TEST)
    np.testing.assert_array_equal(model.classes_, classes)


@pytest.mark.parametrize("learner", LEARNERS, ids=NAMES)
def test_truth_values_are_labels_too(learner: Any) -> None:
    model = train(learner, np.arange(40) % 2, np.array([False, True]))
    answers = model.predict(blobs([1, 0, 1]))
    assert answers.dtype == bool
    assert answers.tolist() == [True, False, True]


@pytest.mark.parametrize("learner", LEARNERS, ids=NAMES)
def test_a_site_that_lacks_a_class_speaks_the_studys_classes(learner: Any) -> None:
    model = train(learner, LACKING)
    np.testing.assert_array_equal(model.predict(blobs(TEST)), WORDS[TEST])
    np.testing.assert_array_equal(model.predict_codes(blobs(TEST)), TEST)


@pytest.mark.parametrize(
    "learner", [each for each in LEARNERS if hasattr(each, "predict_proba") and not hasattr(each, "update")]
)
def test_probabilities_have_a_column_for_each_class_and_zero_for_one_never_seen(learner: Any) -> None:
    aligned = train(learner, LACKING).predict_proba(blobs(TEST))
    assert aligned.shape == (5, 3)
    assert (aligned[:, 1] == 0).all()
    np.testing.assert_allclose(aligned.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(aligned.argmax(axis=1), TEST)


def test_a_net_has_an_output_for_a_class_it_never_saw() -> None:
    model = train(TorchClassifier("linear", lr=0.1, epochs=30), LACKING)
    np.testing.assert_array_equal(model.estimator.classes_, WORDS)
    assert model.predict_proba(blobs(TEST)).shape == (5, 3)


@pytest.mark.parametrize(
    "learner",
    [
        make_pipeline(StandardScaler(), XGBClassifier(n_jobs=1, n_estimators=5)),
        make_pipeline(StandardScaler(), LGBMClassifier(n_jobs=1, n_estimators=5, min_child_samples=1, verbose=-1)),
        VotingClassifier([("x", XGBClassifier(n_jobs=1, n_estimators=5)), ("t", DecisionTreeClassifier())]),
        BaggingClassifier(XGBClassifier(n_jobs=1, n_estimators=2), n_estimators=2),
    ],
    ids=["xgboost in a pipeline", "lightgbm in a pipeline", "xgboost in a vote", "xgboost in a bag"],
)
def test_boosters_inside_other_estimators_take_string_labels_and_lacking_classes(learner: Any) -> None:
    np.testing.assert_array_equal(train(learner, LACKING).predict(blobs(TEST)), WORDS[TEST])
    taught = train(learner, LACKING, pseudo=[1] * 30)
    np.testing.assert_array_equal(taught.predict(blobs([1, 0, 2])), WORDS[[1, 0, 2]])


@pytest.mark.parametrize("learner", LEARNERS, ids=NAMES)
def test_pseudo_labels_bring_the_class_a_site_lacks(learner: Any) -> None:
    model = train(learner, LACKING, pseudo=[1] * 40)
    np.testing.assert_array_equal(model.predict(blobs([1, 1, 0, 2])), WORDS[[1, 1, 0, 2]])


def test_many_classes_have_codes_that_fit() -> None:
    classes = np.array([f"class {i:03}" for i in range(300)])
    X = np.arange(900.0)[:, None]
    data = LabelledData(X, np.repeat(np.arange(300, dtype=np.int16), 3))
    model = Trainer(DecisionTreeClassifier(), classes).fit(
        data + LabelledData(X[:0], data.codes[:0]), None, np.random.default_rng(0), LocalUpdate()
    )
    np.testing.assert_array_equal(model.predict(X), np.repeat(classes, 3))


# Sites with one class, or with nothing


TABLES = {
    "array": np.ones((6, 4)),
    "frame": pd.DataFrame({"a": ["x"] * 6, "b": [None] * 6}),
    "sparse": sparse.csr_array(np.ones((6, 4))),
    "images": np.ones((6, 1, 2, 2)),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("learner", [LogisticRegression(), XGBClassifier(), SGDClassifier()], ids=learner_name)
def test_a_site_with_one_class_can_say_only_that(kind: str, learner: Any) -> None:
    model = train(learner, [1] * 6, X=TABLES[kind])
    assert model.predict(TABLES[kind]).tolist() == ["fig"] * 6
    assert model.predict_proba(TABLES[kind]).tolist() == [[0, 1, 0]] * 6
    assert model.predict_codes(TABLES[kind]).tolist() == [1] * 6


def test_a_constant_model_gives_way_once_there_are_two_classes() -> None:
    constant = train(LogisticRegression(warm_start=True), [1] * 6)
    taught = train(LogisticRegression(warm_start=True), [1] * 6, pseudo=[0, 2] * 10, previous=constant)
    np.testing.assert_array_equal(taught.predict(blobs([0, 1, 2])), WORDS)
    stepped = train(SGDClassifier(), [1] * 6, pseudo=[0, 2] * 10, previous=constant, epochs=20)
    np.testing.assert_array_equal(stepped.predict(blobs([0, 1, 2])), WORDS)


def test_nothing_to_train_on_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nothing to train on"):
        train(DecisionTreeClassifier(), [], X=np.zeros((0, 4)))


def test_a_learner_without_update_takes_no_local_terms() -> None:
    rows = LabelledData(np.eye(2), np.array([0, 1], dtype=np.uint8))
    with pytest.raises(ConfigError, match="GaussianNB takes no local terms"):
        Trainer(GaussianNB(), np.array([0, 1])).fit(
            rows + rows, None, np.random.default_rng(0), LocalUpdate(terms=LocalTerms())
        )


# Going on, or anew


def test_an_mlp_with_warm_start_goes_on_from_its_weights() -> None:
    learner = MLPClassifier((4,), solver="sgd", max_iter=3, warm_start=True)
    first = train(learner, ALL)
    seen = first.estimator.t_
    second = train(learner, ALL, previous=first, seed=1)
    assert second.estimator is first.estimator
    assert second.estimator.t_ == 2 * seen


def test_without_warm_start_it_is_fitted_anew() -> None:
    learner = MLPClassifier((4,), solver="sgd", max_iter=3)
    first = train(learner, ALL)
    second = train(learner, ALL, previous=first, seed=1)
    assert second.estimator is not first.estimator
    assert second.estimator.t_ == first.estimator.t_
    assert second.estimator.random_state != first.estimator.random_state


def test_a_forest_with_warm_start_is_fitted_anew_since_old_trees_never_change() -> None:
    learner = RandomForestClassifier(5, warm_start=True)
    first = train(learner, LACKING)
    moved = np.where(LACKING == 0, 2, 0)  # the same rows, with the other labels
    second = train(learner, moved, X=blobs(LACKING), previous=first)
    assert second.estimator is not first.estimator
    assert len(second.estimator.estimators_) == 5
    np.testing.assert_array_equal(second.predict_codes(blobs([0, 2])), [2, 0])


@pytest.mark.parametrize(
    "learner",
    [
        MLPClassifier((32,), max_iter=300, warm_start=True),
        LogisticRegression(warm_start=True),
        SGDClassifier(warm_start=True),
    ],
    ids=learner_name,
)
def test_when_the_classes_change_a_warm_start_begins_anew(learner: Any) -> None:
    first = train(learner, LACKING)
    second = train(learner, LACKING, pseudo=[1] * 40, previous=first)
    assert second.estimator is not first.estimator
    np.testing.assert_array_equal(second.predict(blobs([0, 1, 2])), WORDS)
    third = train(learner, LACKING, pseudo=[1] * 40, previous=second)
    assert third.estimator is second.estimator


def test_the_size_of_an_update_makes_an_iterative_learner_go_on_with_all_classes() -> None:
    learner = SGDClassifier()
    first = train(learner, LACKING, epochs=2)
    assert first.estimator.t_ == 2 * 60 + 1
    np.testing.assert_array_equal(first.estimator.classes_, WORDS)
    second = train(learner, LACKING, pseudo=[1] * 40, previous=first, epochs=1)
    assert second.estimator is first.estimator
    assert second.estimator.t_ == 2 * 60 + 100 + 1
    third = train(learner, LACKING, previous=second, steps=3)
    assert third.estimator.t_ == 2 * 60 + 100 + 3 * 60 + 1  # a batch is at most 128 rows, here all 60


def test_steps_count_before_epochs_where_both_are_given() -> None:
    assert train(SGDClassifier(), ALL, epochs=5, steps=2).estimator.t_ == 2 * 60 + 1


def test_what_is_not_trained_by_iteration_is_fitted_anew_whatever_the_size() -> None:
    first = train(GaussianNB(), ALL, epochs=1)
    second = train(GaussianNB(), ALL, previous=first, epochs=1)
    assert second.estimator is not first.estimator
    assert second.estimator.class_count_.sum() == 60


def test_a_learner_with_update_goes_on_and_is_told_private_and_public_rows_apart() -> None:
    learner = TorchClassifier("linear", lr=0.1)
    first = train(learner, LACKING, steps=20)
    weights = first.estimator.get_weights()
    second = train(learner, LACKING, pseudo=[1] * 40, previous=first, steps=40)
    assert second.estimator is first.estimator
    assert any(not np.array_equal(weights[name], value) for name, value in second.estimator.get_weights().items())
    np.testing.assert_array_equal(second.predict(blobs([0, 1, 2])), WORDS)


def test_a_net_that_goes_on_asks_for_no_generator() -> None:
    """To make one takes a while, which every site would spend in every round."""
    codes, asked = np.array([0, 1, 2] * 5, dtype=np.int8), []

    def draws() -> np.random.Generator:
        asked.append(1)
        return np.random.default_rng(0)

    rows = LabelledData(blobs(codes).astype(np.float32), codes)
    mixture = rows + LabelledData(rows.X[:0], codes[:0])
    for learner, counts in ((TorchClassifier("linear", steps=1), [1, 1]), (DecisionTreeClassifier(), [1, 2])):
        trainer = Trainer(learner, WORDS)
        asked.clear()
        model = trainer.fit(mixture, None, draws)
        assert len(asked) == counts[0]
        trainer.fit(mixture, model, draws)
        assert len(asked) == counts[1]


@pytest.mark.parametrize(
    ("learner", "can_go_on", "iterative"),
    [
        (MLPClassifier(warm_start=True), True, True),
        (MLPClassifier(), False, True),
        (MLPClassifier(solver="lbfgs"), False, False),
        (SGDClassifier(), False, True),
        (LogisticRegression(warm_start=True), True, False),
        (RandomForestClassifier(warm_start=True), False, False),
        (GaussianNB(), False, False),
        (make_pipeline(StandardScaler(), SGDClassifier()), False, False),
    ],
)
def test_who_goes_on(learner: Any, can_go_on: bool, iterative: bool) -> None:
    assert goes_on(learner) is can_go_on
    assert is_iterative(learner) is iterative


# The user's object stays as it is


def state(learner: Any) -> dict[str, Any]:
    return {name: repr(value) for name, value in vars(learner).items()}


@pytest.mark.parametrize(
    "learner",
    [
        DecisionTreeClassifier(),
        make_pipeline(StandardScaler(), MLPClassifier((3,), max_iter=2, warm_start=True)),
        MLPClassifier((3,), max_iter=2, warm_start=True),
        SGDClassifier(),
        TorchClassifier("linear", epochs=1),
        XGBClassifier(n_jobs=1, n_estimators=2),
        BaggingClassifier(DecisionTreeClassifier(), n_estimators=2),
    ],
    ids=learner_name,
)
@pytest.mark.parametrize("epochs", [None, 1])
def test_the_users_learner_is_never_changed(cancer, learner: Any, epochs: int | None) -> None:
    before = state(learner)
    steps = learner.steps if isinstance(learner, Pipeline) else []
    parts = [state(step) for _, step in steps]
    run = cancer.run(cg.FedCT(rounds=2, epochs=epochs), learner)
    assert state(learner) == before
    assert [state(step) for _, step in steps] == parts
    with pytest.raises(Exception, match=r"fit|train"):  # not fitted
        learner.predict(cancer.split.public)
    assert len({id(model.estimator) for model in run.models.values()} | {id(learner)}) == 6


class Plain:
    """No scikit-learn estimator at all: the nearest class mean."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means = np.stack([X[y == label].mean(axis=0) for label in self.classes_])

    def predict(self, X):
        return self.classes_[((X[:, None] - self.means) ** 2).sum(-1).argmin(axis=1)]


def test_an_object_with_fit_predict_and_classes_will_do() -> None:
    learner = Plain()
    model = train(learner, LACKING)
    np.testing.assert_array_equal(model.predict(blobs(TEST)), WORDS[TEST])
    assert vars(learner) == {}
    assert learner_name(learner) == "Plain"


# Seeds


def seeds(learner: Any) -> dict[str, Any]:
    return {name: value for name, value in learner.get_params().items() if name.endswith("random_state")}


def test_open_seeds_are_drawn_at_every_depth_and_given_ones_kept() -> None:
    learner = make_pipeline(PCA(2), BaggingClassifier(DecisionTreeClassifier(random_state=7)))
    first, again = (seeds(seeded_clone(learner, np.random.default_rng(0))) for _ in range(2))
    assert first == again
    assert first["baggingclassifier__estimator__random_state"] == 7
    drawn = [first["pca__random_state"], first["baggingclassifier__random_state"]]
    assert all(isinstance(seed, int) for seed in drawn)
    assert drawn[0] != drawn[1]
    assert seeds(seeded_clone(learner, np.random.default_rng(1))) != first
    assert set(seeds(learner).values()) == {None, 7}


def test_the_same_generator_gives_the_same_model_and_each_fit_another_seed() -> None:
    learner = DecisionTreeClassifier(splitter="random")
    models = [train(learner, ALL, seed=seed) for seed in (0, 0, 1)]
    assert models[0].estimator.random_state == models[1].estimator.random_state != models[2].estimator.random_state
    rng = np.random.default_rng(0)
    assert len({seeded_clone(learner, rng).random_state for _ in range(5)}) == 5


# Class weights and names


@pytest.mark.parametrize(
    "kind", [LogisticRegression, DecisionTreeClassifier, RandomForestClassifier, SVC, SGDClassifier]
)
def test_class_weights_are_given_in_the_users_labels(kind: Any) -> None:
    codes = np.repeat([0, 2], 30)  # no figs here, and the two others cannot be told apart
    X = np.zeros((60, 4))
    for favoured in ("apple", "pear"):
        weights = {"apple": 1, "fig": 1, "pear": 1} | {favoured: 50}
        model = train(kind(class_weight=weights), codes, X=X)
        assert set(model.predict(X)) == {favoured}


def test_learners_are_named_by_their_class_and_pipelines_by_their_last_step() -> None:
    assert learner_name(SVC()) == "SVC"
    assert learner_name(make_pipeline(StandardScaler(), SVC())) == "SVC"
    assert learner_name(BaggingClassifier(SVC())) == "BaggingClassifier"


@pytest.mark.parametrize(
    ("learner", "codes"),
    [
        (XGBClassifier(), True),
        (make_pipeline(StandardScaler(), XGBClassifier()), True),
        (LGBMClassifier(), False),
        (SVC(), False),
        (Plain(), False),
    ],
)
def test_who_takes_only_codes(learner: Any, codes: bool) -> None:
    assert wants_codes(learner) is codes


def test_a_model_can_be_scored_cloned_and_stored() -> None:
    model = train(DecisionTreeClassifier(), LACKING)
    assert model.score(blobs(TEST), WORDS[TEST]) == 1
    assert clone(model).classes.tolist() == WORDS.tolist()
    loaded = cloudpickle.loads(cloudpickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(blobs(TEST)), WORDS[TEST])


def test_boosting_with_warm_start_is_fitted_anew(cancer):
    run = cancer.run(
        cg.FedCT(rounds=2), HistGradientBoostingClassifier(max_iter=5, warm_start=True, min_samples_leaf=2)
    )
    anew = cancer.run(cg.FedCT(rounds=2), HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2))
    assert run.accuracy.equals(anew.accuracy)


def test_a_net_with_steps_is_no_pipeline():
    from collegium.learners.torch.classifier import TorchClassifier
    from collegium.runs.checks import takes_missing_values

    assert learner_name(TorchClassifier("linear", steps=5)) == "TorchClassifier"
    assert not takes_missing_values(TorchClassifier())


def test_a_model_works_with_the_tools_of_scikit_learn(cancer):
    from sklearn.inspection import permutation_importance
    from sklearn.utils.validation import check_is_fitted

    model = cancer.run(cg.FedCT(rounds=1)).models["site0"]
    check_is_fitted(model)
    X, y = cancer.split.test
    assert len(permutation_importance(model, X, y, n_repeats=1, random_state=0).importances_mean) == 30
    with pytest.raises(cg.ConfigError, match="trained by"):
        model.fit(X, y)


class WithoutClasses(BaseEstimator):
    """A learner that does not say which classes it knows."""

    def fit(self, X, y):
        self.tree_ = DecisionTreeClassifier(random_state=0).fit(X, y)
        return self

    def predict(self, X):
        return self.tree_.predict(X)


def test_a_learner_need_not_say_which_classes_it_knows(cancer):
    run = cancer.run(cg.FedCT(rounds=1), WithoutClasses())
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.7


def test_a_model_can_be_unpickled_before_anything_else_was_imported(tmp_path: Path) -> None:
    tree = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    model = SiteModel(tree, np.array(["no", "yes"]), np.array([0, 1], np.int8), np.array([0, 1]))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).predict([[1.0]])[0])"
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.pkl")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "yes"
