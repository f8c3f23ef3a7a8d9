"""PrivateVoting: what a record can change, what that costs, and what the votes become."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from collegium.errors import ConfigError
from collegium.privacy import accountant
from collegium.privacy.claims import SEEDED_NOISE
from collegium.privacy.events import Gaussian, Laplace
from collegium.privacy.learners.assignment import teacher_of
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.learners.classifier import KNOWN_CLASSES
from collegium.privacy.learners.voting import PrivateVoting

Data = tuple[NDArray[Any], NDArray[Any]]
LARGE = {"epsilon": 1e4, "random_state": 0}  # noise that changes nothing


@pytest.fixture(scope="module")
def blobs() -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    return rng.normal(size=(240, 4)) + 4 * np.eye(3, 4)[y], np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def public() -> NDArray[Any]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(60, 4)) + 4 * np.eye(3, 4)[np.arange(60) % 3]


class Eavesdropper(DecisionTreeClassifier):  # type: ignore[misc]
    """A teacher whose training sets are noted."""

    heard: list[list[tuple[float, ...]]] = []  # noqa: RUF012

    def fit(self, X: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        self.heard.append(sorted(map(tuple, np.column_stack([X, y]).tolist())))
        return super().fit(X, y, *args, **kwargs)


class OneClass(DecisionTreeClassifier):  # type: ignore[misc]
    """A teacher that cannot be fitted on few records, and says so with them."""

    def fit(self, X: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        if len(X) < 30:
            raise ValueError(f"too few: {X}")
        return super().fit(X, y, *args, **kwargs)


def training_sets(X: NDArray[Any], y: NDArray[Any], public: NDArray[Any]) -> list[list[tuple[float, ...]]]:
    Eavesdropper.heard.clear()
    PrivateVoting(Eavesdropper(), 8, student=LogisticRegression(), **LARGE).fit(X, y, public)
    return Eavesdropper.heard[1:]  # the first one rehearses on public rows


# What one record can change


def test_a_record_more_changes_the_training_set_of_one_teacher(blobs: Data, public: NDArray[Any]) -> None:
    X, y = blobs[0][:200], np.arange(200) % 3
    with_it = training_sets(X, y, public)
    without = training_sets(X[1:], y[1:], public)
    changed = [(one, other) for one, other in zip(with_it, without, strict=True) if one != other]
    assert len(with_it) == 8
    ((one, other),) = changed
    assert [row for row in one if row not in other] == [(*X[0], 0.0)]
    assert sum(map(len, with_it)) == 200


def test_a_replaced_record_changes_at_most_two_teachers(blobs: Data, public: NDArray[Any]) -> None:
    X, y = blobs[0][:200], np.arange(200) % 3
    numbers = set()
    for seed in range(4):
        other = X.copy()
        other[0] = np.random.default_rng(seed).normal(size=4)
        pairs = zip(training_sets(X, y, public), training_sets(other, y, public), strict=True)
        numbers.add(sum(one != two for one, two in pairs))
    assert numbers == {1, 2}


@pytest.mark.parametrize("kind", ["array", "float32", "sparse", "frame", "texts", "images"])
def test_the_place_of_a_record_depends_on_no_other(kind: str) -> None:
    rng = np.random.default_rng(0)
    numbers = np.round(rng.normal(size=(50, 4)), 2)
    frame = pd.DataFrame(numbers).assign(words=rng.choice(["x", "yy", None], 50), n=np.arange(50))
    tables: dict[str, Any] = {
        "array": numbers,
        "float32": numbers.astype(np.float32),
        "sparse": sparse.csr_array(np.where(numbers > 0, numbers, 0)),
        "frame": frame.astype({"words": "category"}),
        "texts": np.array([[f"{a}", "w" * i] for i, a in enumerate(numbers[:, 0])]),
        "images": numbers.reshape(50, 1, 2, 2),
    }
    X = tables[kind]
    places = teacher_of(X, 7)
    assert set(places) == set(range(7))
    order = rng.permutation(50)[:20]
    rows = X.iloc[order] if kind == "frame" else X[order]
    np.testing.assert_array_equal(teacher_of(rows, 7), places[order])
    np.testing.assert_array_equal(teacher_of(rows, 7), teacher_of(rows, 7))


def test_a_gap_elsewhere_or_another_order_of_categories_moves_nobody() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "w": pd.Categorical(["a", "b", "a"])})
    other = pd.DataFrame({"n": [1, 2, 3, None], "w": pd.Categorical(["a", "b", "a", "c"], categories=["c", "b", "a"])})
    np.testing.assert_array_equal(teacher_of(other, 1000)[:3], teacher_of(frame, 1000))
    zeros = sparse.csr_array((np.array([0.0, 5.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    assert teacher_of(zeros, 1000) == teacher_of(sparse.csr_array(np.array([[0.0, 5.0, 0.0]])), 1000)


def test_zeros_that_are_stored_move_nobody() -> None:
    plain = sparse.csr_array(np.arange(60.0).reshape(20, 3) % 4)
    stored = plain.copy()
    stored.data[stored.data == 1] = 0
    told = stored.copy()
    told.eliminate_zeros()
    assert stored.nnz > told.nnz
    assert (teacher_of(stored, 7) == teacher_of(told, 7)).all()


def test_copies_of_a_record_meet_at_one_teacher() -> None:
    assert len(set(teacher_of(np.tile([[1.5, 2.0]], (9, 1)), 1000))) == 1


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_label_of_one_query_is_as_private_as_claimed(relation: str) -> None:
    """The probabilities of the answer on neighbouring data, exactly: three records, three teachers with one each."""
    epsilon, delta = 0.8, 1e-3
    learner = PrivateVoting(None, 3, epsilon, delta, relation=relation, queries=1)  # type: ignore[arg-type]
    (event,) = learner.charge(3, 1, 2).events
    assert isinstance(event, Gaussian)
    l2 = {"add_remove": math.sqrt(2), "replace": 2 * math.sqrt(2)}[relation]
    sigma = event.noise_multiplier * l2 * math.sqrt(2)  # of the difference of two noisy counts
    changes = {"add_remove": (2, 1), "replace": (4,)}[relation]
    for margin in range(-3, 4):
        for change in changes:
            first, second = norm.cdf(margin / sigma), norm.cdf((margin + change) / sigma)
            for p, q in ((first, second), (second, first), (1 - first, 1 - second), (1 - second, 1 - first)):
                assert p <= math.exp(epsilon) * q + delta


@pytest.mark.parametrize("noise", ["gaussian", pytest.param("laplace", marks=pytest.mark.slow)])
def test_the_whole_learner_answers_alike_on_neighbouring_data(noise: Any) -> None:
    """Two teachers, one query, all of `fit`: how often each label comes out, with and without one record."""
    rows = np.array([[i, i] for i in range(40)], dtype=float)
    place = teacher_of(rows, 2)
    X = rows[[np.flatnonzero(place == 0)[0], np.flatnonzero(place == 1)[0]]]
    y, epsilon, delta, runs = np.array([1, 1]), 0.5, 0.01, 500
    counts = []
    for n in (2, 1):
        ones = 0
        for seed in range(runs):
            learner = PrivateVoting(
                None, 2, epsilon, delta, student=DecisionTreeClassifier(), noise=noise, queries=1, random_state=seed
            )
            learner.fit_private(X[:n], y[:n], X[:1], classes=[0, 1])
            ones += int(learner.predict(X[:1])[0])
        counts.append(ones / runs)
    with_it, without = counts
    slack = 4 * math.sqrt(0.25 / runs)
    assert 0.5 < without < with_it  # it is noise around the votes, not noise alone
    assert with_it <= math.exp(epsilon) * without + delta + slack
    assert 1 - without <= math.exp(epsilon) * (1 - with_it) + delta + slack


def test_noise_has_the_size_that_the_charge_says(blobs: Data, public: NDArray[Any], monkeypatch: Any) -> None:
    from collegium.privacy.noise import Noise

    drawn: dict[str, tuple[float, float]] = {}
    for name in ("add_normal", "add_laplace"):
        add = getattr(Noise, name)
        monkeypatch.setattr(Noise, name, lambda self, v, *n, add=add, k=name: drawn.update({k: n}) or add(self, v, *n))
    for relation, factor in (("add_remove", 1), ("replace", 2)):
        for noise, sensitivity, called in (("gaussian", math.sqrt(2), "add_normal"), ("laplace", 2, "add_laplace")):
            learner = PrivateVoting(relation=relation, noise=noise, queries=5, random_state=0).fit(*blobs, public)  # type: ignore[arg-type]
            multiplier = learner.charge_.events[0].noise_multiplier  # type: ignore[attr-defined]
            assert drawn[called] == pytest.approx((multiplier * sensitivity * factor, sensitivity * factor))
            assert learner.privacy_.relation == relation


# What it costs


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("epsilon", "delta", "fits"), [(1.0, 1e-5, 1), (0.3, 1e-6, 4), (8.0, 1e-3, 2)])
def test_all_fits_together_cost_epsilon(noise: Any, epsilon: float, delta: float, fits: int) -> None:
    charge = PrivateVoting(None, 10, epsilon, delta, noise=noise, queries=20, fits=fits).charge(500, 60, 3)
    total, _ = accountant.epsilon_of([event.times(fits) for event in charge.events], delta)
    assert epsilon * (1 - 1e-3) <= total <= epsilon * (1 + 1e-9)
    assert (charge.kind, charge.unit, charge.relation, charge.delta) == ("dp", "record", "add_remove", delta)
    assert charge.events[0].count == 20
    assert isinstance(charge.events[0], Gaussian if noise == "gaussian" else Laplace)


def test_the_charge_is_known_before_and_depends_on_no_record(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(random_state=0)
    before = learner.charge(240, 60, 3)
    assert before == learner.charge(7, 60, 2)
    learner.fit_private(*blobs, public, classes=["a", "b", "c"])
    assert learner.charge_ == before
    assert before.events[0].count == 60  # no more queries than public rows
    assert learner.charge(240, 5000, 3).events[0].count == 100


def test_the_claim_is_that_of_one_fit(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(epsilon=1.0, fits=4, random_state=0).fit(*blobs, public)
    assert learner.privacy_.epsilon < 0.6
    assert learner.privacy_.rounds == 1
    assert PrivateVoting(random_state=0).fit(*blobs, public).privacy_.epsilon == pytest.approx(1.0, abs=1e-3)


def test_a_simulation_says_so_and_secure_noise_cannot_be_repeated(blobs: Data, public: NDArray[Any]) -> None:
    seeded = [PrivateVoting(queries=30, random_state=3).fit(*blobs, public) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].predict(public), seeded[1].predict(public))
    assert SEEDED_NOISE in seeded[0].privacy_.assumptions
    secure = [PrivateVoting(DecisionTreeClassifier(random_state=0), 5, 0.1).fit(*blobs, public) for _ in range(2)]
    assert not np.array_equal(secure[0].predict(public), secure[1].predict(public))
    assert SEEDED_NOISE not in secure[0].privacy_.assumptions


def test_classes_read_from_the_labels_are_an_assumption(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(random_state=0).fit(*blobs, public)
    assert KNOWN_CLASSES in learner.privacy_.assumptions
    learner.fit_private(*blobs, public, classes=["a", "b", "c", "d"])
    assert KNOWN_CLASSES not in learner.privacy_.assumptions
    assert learner.predict_proba(public).shape == (60, 4)


# What it learns


def test_it_learns(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(None, 12, **LARGE).fit(*blobs, public)
    assert learner.score(*blobs) > 0.9
    assert learner.n_features_in_ == 4
    np.testing.assert_array_equal(learner.classes_, ["a", "b", "c"])
    np.testing.assert_allclose(learner.predict_proba(public).sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.predict(public), learner.predict(public))


def test_it_learns_at_epsilon_1_with_enough_records() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 2
    X = rng.normal(size=(3000, 3)) + 3 * y[:, None]
    learner = PrivateVoting(None, 200, 1.0, queries=40, random_state=0).fit(X[:2500], y[:2500], X[2500:])
    assert learner.score(X[2500:], y[2500:]) > 0.9


def test_public_rows_may_be_a_setting(blobs: Data, public: NDArray[Any]) -> None:
    assert PrivateVoting(None, 12, public=public, **LARGE).fit(*blobs).score(*blobs) > 0.9


def test_pseudo_labelled_rows_teach_every_teacher(blobs: Data, public: NDArray[Any]) -> None:
    X, y = blobs
    few = PrivateVoting(None, 4, **LARGE)
    few.fit_private(X[:4], y[:4], public, classes=["a", "b", "c"])
    helped = PrivateVoting(None, 4, **LARGE)
    helped.fit_private(X[:4], y[:4], public, (X[100:], y[100:]), classes=["a", "b", "c"])
    assert helped.score(X, y) > 0.9 > few.score(X, y)


def test_frames_with_categories() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"w": pd.Categorical(rng.choice(["x", "y", "z"], 300)), "n": rng.normal(size=300)})
    y = np.where(frame["w"] == "x", "yes", "no")
    words = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["w"]), remainder="passthrough")
    learner = PrivateVoting(make_pipeline(words, DecisionTreeClassifier()), 10, **LARGE).fit(
        frame[:200], y[:200], frame[200:]
    )
    assert learner.score(frame, y) == 1.0


def test_sparse_tables(blobs: Data, public: NDArray[Any]) -> None:
    X, y = sparse.csr_matrix(np.maximum(blobs[0], 0)), blobs[1]
    learner = PrivateVoting(None, 12, **LARGE).fit(X, y, sparse.csr_matrix(np.maximum(public, 0)))
    assert learner.score(X, y) > 0.8


def test_empty_teachers_abstain_and_more_teachers_than_records_work(blobs: Data, public: NDArray[Any]) -> None:
    X, y = blobs[0][:12], blobs[1][:12]
    learner = PrivateVoting(None, 500, **LARGE).fit(X, y, public)
    assert set(learner.predict(public)) <= {"a", "b", "c"}
    votes = learner._votes(*_as_learn_arguments(learner, X, y, public))
    assert set(votes.sum(axis=1)) == {len(set(teacher_of(X, 500)))}


def test_no_records_at_all_give_noise(public: NDArray[Any]) -> None:
    learner = PrivateVoting(random_state=0)
    learner.fit_private(np.zeros((0, 4)), np.zeros(0, dtype=int), public, classes=[0, 1])
    assert 0.1 < learner.predict(public).mean() < 0.9
    with pytest.raises(ConfigError, match="classes"):
        learner.fit(np.zeros((0, 4)), np.zeros(0, dtype=int), public)


def test_one_class(public: NDArray[Any]) -> None:
    learner = PrivateVoting(LogisticRegression(), 4, **LARGE).fit(public, np.full(60, 7), public)
    assert set(learner.predict(public)) == {7}
    np.testing.assert_array_equal(learner.predict_proba(public), np.ones((60, 1)))


def test_a_class_without_records_can_only_come_from_noise(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(None, 12, **LARGE)
    learner.fit_private(*blobs, public, classes=["a", "b", "c", "never"])
    assert "never" not in learner.predict(public)


def test_a_teacher_that_fails_votes_for_its_commonest_class(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(OneClass(), 12, student=DecisionTreeClassifier(), **LARGE).fit(*blobs, public)
    votes = learner._votes(*_as_learn_arguments(learner, *blobs, public))
    assert votes.sum() == 60 * 12
    assert (votes == votes[0]).all()


def test_a_learner_that_cannot_work_fails_on_public_rows_before_any_record_is_used(blobs: Data) -> None:
    texts = np.array([["w"] * 4] * 60)
    with pytest.raises(ValueError, match="could not convert"):
        PrivateVoting(random_state=0).fit(blobs[0].astype(str), blobs[1], texts)


def test_probabilities_only_where_the_student_has_them(blobs: Data, public: NDArray[Any]) -> None:
    assert not hasattr(PrivateVoting(LinearSVC()), "predict_proba")
    assert hasattr(PrivateVoting(LinearSVC(), student=KNeighborsClassifier()), "predict_proba")


def test_the_site_goes_on_with_an_unfitted_student(blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(LogisticRegression(), student=DecisionTreeClassifier(max_depth=3), random_state=0)
    learner.fit(*blobs, public)
    other = learner.public_learner()
    assert isinstance(other, DecisionTreeClassifier)
    assert other.max_depth == 3
    assert not hasattr(other, "tree_")
    assert isinstance(PrivateVoting(LogisticRegression()).public_learner(), LogisticRegression)


@pytest.mark.parametrize("cell", [np.nan, np.inf, 1e300, "text", None, 10**5000], ids=lambda _: "")
def test_no_record_is_an_error(blobs: Data, public: NDArray[Any], cell: Any) -> None:
    X = blobs[0].astype(object)
    X[7, 2] = cell
    for table in (X, pd.DataFrame(X)):
        learner = PrivateVoting(LogisticRegression(), 12, **LARGE).fit_private(
            table, blobs[1], public, classes=["a", "b", "c"]
        )
        assert learner.score(*blobs) > 0.8


# Settings and errors


def test_settings_are_kept_and_cloned() -> None:
    learner = PrivateVoting(DecisionTreeClassifier(max_depth=2), 7, 0.5, 1e-6, queries=3, fits=2, relation="replace")
    assert isinstance(learner, PrivateLearner)
    assert repr(clone(learner).get_params()) == repr(learner.get_params())
    assert clone(learner.set_params(base__max_depth=4)).base.max_depth == 4
    with pytest.raises(NotFittedError):
        learner.predict(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 2}, "delta"),
        ({"teachers": 0}, "teachers"),
        ({"teachers": 2.5}, "teachers"),
        ({"queries": 0}, "queries"),
        ({"fits": 0}, "fits"),
        ({"noise": "uniform"}, "noise"),
        ({"relation": "any"}, "relation"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], named: str, blobs: Data, public: NDArray[Any]) -> None:
    learner = PrivateVoting(**settings)
    for attempt in (learner.check, lambda: learner.fit(*blobs, public)):
        with pytest.raises(ConfigError, match=f"PrivateVoting: {named} "):
            attempt()


def test_data_that_cannot_work(blobs: Data, public: NDArray[Any]) -> None:
    with pytest.raises(ConfigError, match="`public`"):
        PrivateVoting().fit(*blobs)
    with pytest.raises(ConfigError, match="`public` has no rows"):
        PrivateVoting().fit(*blobs, public[:0])
    with pytest.raises(ConfigError, match="240 rows and y has 3"):
        PrivateVoting().fit(blobs[0], blobs[1][:3], public)
    with pytest.raises(ConfigError, match="not classes of this study"):
        PrivateVoting().fit_private(*blobs, public, classes=["a", "b"])


def _as_learn_arguments(learner: PrivateVoting, X: Any, y: Any, public: Any) -> tuple[Any, ...]:
    from collegium.core.samples import LabelledData

    return LabelledData(X, np.searchsorted(learner.classes_, y)), public, None, np.random.default_rng(0)
