"""Local terms: proximal, control variates, distillation, head only; each against its formula."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import NotFittedError
from torch import nn

from collegium.algorithms.fedmatch import Disjoint
from collegium.algorithms.fedprox import Proximal
from collegium.algorithms.fedsiam import Siamese
from collegium.algorithms.scaffold import Correction
from collegium.core.terms import LocalTerm, LocalTerms, SoftTargets, UpdateReport
from collegium.errors import ConfigError
from collegium.learners.torch.classifier import TorchClassifier

Arrays = dict[str, NDArray[Any]]
CLASSES = [0, 1, 2]
LR = 0.5
torch.set_num_threads(1)


def make_blobs(n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return (rng.normal(size=(n, 5)) + 2 * np.eye(3, 5)[y]).astype(np.float32), y


X, Y = make_blobs(24, seed=0)
U, _ = make_blobs(24, seed=1)
P = softmax(np.random.default_rng(2).normal(size=(24, 3)), axis=1)


def linear(**settings: Any) -> TorchClassifier:
    """One linear layer, whose every step uses all rows."""
    settings = {"optimizer": "sgd", "lr": LR, "batch_size": 24, "random_state": 0} | settings
    return TorchClassifier("linear", **settings).initialize(X, CLASSES)


def with_batch_norm(**settings: Any) -> TorchClassifier:
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    return TorchClassifier(net, random_state=0, batch_size=8, **settings).initialize(X, CLASSES)


def step(model: TorchClassifier, *added: LocalTerm, steps: int = 1, **how: Any) -> Arrays:
    return model.update(X, Y, classes=CLASSES, steps=steps, terms=LocalTerms(added, **how)).get_weights()


def gradient(w: Arrays, rows: NDArray[Any] = X, targets: NDArray[Any] | None = None) -> Arrays:
    """Of the mean cross-entropy of logistic regression."""
    targets = np.eye(3)[Y] if targets is None else targets
    errors = softmax(rows @ w["1.weight"].T + w["1.bias"], axis=1) - targets
    return {"1.weight": errors.T @ rows / len(rows), "1.bias": errors.mean(axis=0)}


def assert_close(actual: Arrays, wanted: Arrays, atol: float = 1e-6) -> None:
    assert actual.keys() == wanted.keys()
    for name in actual:
        np.testing.assert_allclose(actual[name], wanted[name], atol=atol)


# FedProx


def test_the_proximal_term_pulls_towards_the_start_of_the_update() -> None:
    model, mu = linear(), 0.7
    w0 = model.get_weights()
    w1 = {name: w0[name] - LR * gradient(w0)[name] for name in w0}
    w2 = {name: w1[name] - LR * (gradient(w1)[name] + mu * (w1[name] - w0[name])) for name in w0}
    assert_close(step(model, Proximal(mu), steps=2), w2)


def test_a_given_anchor_is_pulled_towards() -> None:
    model, mu = linear(), 0.7
    w0 = model.get_weights()
    anchor = {name: value + 1 for name, value in w0.items()}
    assert_close(step(model, Proximal(mu, anchor)), {name: w0[name] - LR * (gradient(w0)[name] - mu) for name in w0})


def test_the_proximal_optimum_balances_gradient_and_pull() -> None:
    model, mu = linear(), 0.3
    w0 = model.get_weights()
    w = step(model, Proximal(mu), steps=400)
    assert_close(gradient(w), {name: -mu * (w[name] - w0[name]) for name in w}, atol=1e-5)
    far = step(linear(), steps=400)
    assert np.linalg.norm(w["1.weight"] - w0["1.weight"]) < np.linalg.norm(far["1.weight"] - w0["1.weight"]) / 2


# SCAFFOLD


def test_the_correction_is_added_to_every_gradient() -> None:
    correction = {"1.weight": np.random.default_rng(0).normal(size=(3, 5)), "1.bias": np.array([1.0, 0.0, -1.0])}
    w0 = linear().get_weights()
    assert_close(
        step(linear(), Correction(correction)),
        {name: w0[name] - LR * (gradient(w0)[name] + correction[name]) for name in w0},
    )


def test_the_report_gives_option_ii_its_control_variate() -> None:
    model = linear()
    w0 = model.get_weights()
    w1 = {name: w0[name] - LR * gradient(w0)[name] for name in w0}
    w2 = step(model, steps=2)
    report = model.last_update_
    assert (report.steps, report.lr, report.device) == (2, LR, "cpu")
    assert_close(
        {name: (w0[name] - w2[name]) / (report.steps * report.lr) for name in w0},
        {name: (gradient(w0)[name] + gradient(w1)[name]) / 2 for name in w0},
    )


def test_a_correction_for_every_weight_leaves_buffers_alone() -> None:
    model = with_batch_norm(optimizer="sgd")
    ones = {name: np.ones_like(value) for name, value in model.get_weights().items()}
    corrected = step(copy.deepcopy(model), Correction(ones))
    plain = step(model)
    for name in ("1.running_mean", "1.running_var"):
        np.testing.assert_array_equal(corrected[name], plain[name])
    np.testing.assert_allclose(corrected["0.weight"], plain["0.weight"] - 1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("correction", "text"),
    [
        ({"1.weight": np.zeros((3, 5))}, "missing 1.bias"),
        ({"1.weight": np.zeros((3, 5)), "1.bias": np.zeros(3), "x": np.zeros(1)}, "unknown x"),
        ({"1.weight": np.zeros((5, 3)), "1.bias": np.zeros(3)}, r"1.weight has shape \(5, 3\), not \(3, 5\)"),
        ({"1.weight": np.full((3, 5), "a"), "1.bias": np.zeros(3)}, "are not numeric"),
    ],
)
@pytest.mark.parametrize("term", [Correction, partial(Proximal, 0.1)])
def test_arrays_of_another_net_are_refused(term: Any, correction: Arrays, text: str) -> None:
    model = linear()
    before = model.get_weights()
    with pytest.raises(ConfigError, match=text):
        step(model, term(correction))
    np.testing.assert_equal(model.get_weights(), before)


# Distillation


def test_soft_targets_add_their_divergence_to_the_loss() -> None:
    w0 = linear().get_weights()
    wanted = {name: w0[name] - LR * (gradient(w0)[name] + 0.3 * gradient(w0, U, P)[name]) for name in w0}
    assert_close(step(linear(), SoftTargets(U, P, 0.3)), wanted)
    assert_close(step(linear(), SoftTargets(U, P)), step(linear(), SoftTargets(U, P, 1.0)))


def test_the_loss_reported_has_the_divergence_in_it() -> None:
    def divergence(p: NDArray[Any], q: NDArray[Any]) -> float:
        return float((p * (np.log(p) - np.log(q))).sum(axis=1).mean())

    model = linear()
    answers, own = model.predict_proba(U), model.predict_proba(X)
    step(model, SoftTargets(U, P, 0.3))
    entropy = -np.log(own[np.arange(24), Y]).mean()
    assert model.last_update_.loss == pytest.approx(entropy + 0.3 * divergence(P, answers), abs=1e-5)
    step(model)
    model.distill(U, model.predict_proba(U), lr=0, batch_size=24)
    assert model.last_update_.loss == pytest.approx(0, abs=1e-6)


def test_distilling_reproduces_a_teacher() -> None:
    teacher = TorchClassifier("mlp", random_state=0, epochs=10).fit(X, Y)
    rows, _ = make_blobs(300, seed=3)
    student = TorchClassifier("mlp", random_state=1).initialize(X, CLASSES)
    before = np.abs(student.predict_proba(rows) - teacher.predict_proba(rows)).mean()
    student.distill(rows, teacher.predict_proba(rows), epochs=20, lr=1e-3)
    after = np.abs(student.predict_proba(rows) - teacher.predict_proba(rows)).mean()
    assert after < before / 10
    assert np.mean(student.predict(rows) == teacher.predict(rows)) > 0.97


def test_distilling_leaves_the_training_where_it_was() -> None:
    model = TorchClassifier("linear", random_state=0, batch_size=8).update(X, Y, classes=CLASSES, steps=5)
    other = copy.deepcopy(model)
    weights = model.get_weights()
    model.distill(U, P).set_weights(weights)
    for each in (model, other):
        each.update(X, Y, classes=CLASSES, steps=5)
    np.testing.assert_equal(model.get_weights(), other.get_weights())


def test_temperature_softens_both_sides() -> None:
    logits = np.random.default_rng(0).normal(size=(24, 3))
    model = linear()
    answers = softmax(model.predict_logits(U) / 4, axis=1)
    softened = softmax(logits / 4, axis=1)
    model.distill(U, softmax(logits, axis=1), temperature=4, lr=0, batch_size=24)
    wanted = 16 * (softened * np.log(softened / answers)).sum(axis=1).mean()
    assert model.last_update_.loss == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        (np.ones((24, 3)), "sum to 1"),
        (P - [[1, 0, -1]], "sum to 1"),
        (np.full((24, 3), np.nan), "sum to 1"),
        (P[:, :2], r"must have shape \(24, 3\), one column per class, not \(24, 2\)"),
        (P[:5], r"must have shape \(24, 3\), one column per class, not \(5, 3\)"),
    ],
)
def test_soft_targets_that_are_none(targets: NDArray[Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        linear().distill(U, targets)
    with pytest.raises(ConfigError, match=text):
        linear().update(X, Y, classes=CLASSES, epochs=1, terms=LocalTerms([SoftTargets(U, targets)]))


def test_distilling_needs_a_net_rows_and_a_temperature() -> None:
    with pytest.raises(NotFittedError):
        TorchClassifier().distill(U, P)
    with pytest.raises(ConfigError, match="no rows to distill from"):
        linear().distill(U[:0], P[:0])
    with pytest.raises(ConfigError, match="temperature"):
        linear().distill(U, P, temperature=0)
    with pytest.raises(ConfigError, match="'all' or 'head'"):
        linear().distill(U, P, train="body")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batches of one row"):
        with_batch_norm().distill(U[:1], P[:1])


# The head only


@pytest.mark.parametrize("how", ["update", "distill"])
def test_training_the_head_leaves_the_features_as_they_are(how: str) -> None:
    model = with_batch_norm()
    features, head, embedded = model.get_weights("features"), model.get_weights("head"), model.embed(X)
    if how == "update":
        step(model, Proximal(0.1), steps=5, train="head")
    else:
        model.distill(U, P, train="head", lr=1e-2)
    np.testing.assert_equal(model.get_weights("features"), features)  # batch norm's running means too
    np.testing.assert_array_equal(model.embed(X), embedded)
    assert not any(np.array_equal(value, head[name]) for name, value in model.get_weights("head").items())
    step(model, steps=1)
    assert not np.array_equal(model.get_weights()["0.weight"], features["0.weight"])


def test_the_head_learns_as_logistic_regression_on_the_features_does() -> None:
    model = with_batch_norm(optimizer="sgd", lr=LR).set_params(batch_size=24)
    before, rows = model.get_weights("head"), model.embed(X)
    renamed = {f"1.{name.rpartition('.')[2]}": value for name, value in before.items()}
    after = step(model, train="head")
    for name, slope in gradient(renamed, rows).items():
        np.testing.assert_allclose(after[name.replace("1.", "4.")], renamed[name] - LR * slope, atol=1e-6)


def test_a_correction_of_the_head_will_do_for_the_head() -> None:
    model = with_batch_norm()
    step(model, Correction(model.get_weights("head")), train="head")
    with pytest.raises(ConfigError, match=r"missing 0\.bias"):
        step(model, Correction(model.get_weights("head")))


def test_a_row_alone_can_train_the_head_of_a_net_with_batch_norm() -> None:
    with_batch_norm().update(X[:1], Y[:1], classes=CLASSES, steps=1, terms=LocalTerms(train="head"))


# The optimizer


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_terms_start_the_optimizer_anew_unless_they_keep_it(optimizer: str) -> None:
    models = [linear(optimizer=optimizer, lr=1e-2) for _ in range(3)]
    for model in models:
        model.update(X, Y, classes=CLASSES, steps=3)
    again, kept, anew = models
    again.update(X, Y, classes=CLASSES, steps=3)
    np.testing.assert_equal(step(kept, steps=3, keep_optimizer=True), again.get_weights())
    fresh = linear(optimizer=optimizer, lr=1e-2).set_weights(anew.get_weights())
    assert_close(step(anew, steps=3), fresh.update(X, Y, classes=CLASSES, steps=3).get_weights())
    assert not np.allclose(anew.get_weights()["1.weight"], again.get_weights()["1.weight"], atol=1e-5)


def test_momentum_is_sgd_with_momentum() -> None:
    w0 = linear().get_weights()
    w1 = {name: w0[name] - LR * gradient(w0)[name] for name in w0}
    w2 = {name: w1[name] - LR * (gradient(w1)[name] + 0.9 * gradient(w0)[name]) for name in w0}
    assert_close(step(linear(optimizer="momentum"), steps=2), w2)


# Sample weights


def test_sample_weights_weigh_the_loss() -> None:
    weights = np.arange(24.0)
    w0 = linear().get_weights()
    model = linear().update(X, Y, classes=CLASSES, steps=1, sample_weight=weights)
    share = (weights / weights.sum())[:, None]
    errors = softmax(X @ w0["1.weight"].T + w0["1.bias"], axis=1) - np.eye(3)[Y]
    assert_close(
        model.get_weights(),
        {
            "1.weight": w0["1.weight"] - LR * (share * errors).T @ X,
            "1.bias": w0["1.bias"] - LR * (share * errors).sum(axis=0),
        },
    )


def test_pseudo_labelled_rows_weigh_one() -> None:
    both = {"classes": CLASSES, "steps": 1, "pseudo": (U, Y)}
    plain = linear().update(X, Y, **both).get_weights()
    assert_close(linear().update(X, Y, **both, sample_weight=np.full(24, 7)).get_weights(), plain)
    nothing_private = linear().update(X, Y, **both, sample_weight=[24] + [0] * 23).get_weights()
    assert not np.allclose(nothing_private["1.weight"], plain["1.weight"], atol=1e-4)


@pytest.mark.parametrize(
    "weights", [np.ones(3), np.ones((24, 1)), -np.ones(24), np.zeros(24), np.full(24, np.nan), ["a"] * 24]
)
def test_sample_weights_that_are_none(weights: Any) -> None:
    with pytest.raises(ConfigError, match="sample_weight"):
        linear().fit(X, Y, sample_weight=weights)


# Divergence


def test_divergence_is_reported() -> None:
    model = linear()
    assert not model.diverged_
    model.set_params(lr=1e38).update(X * 100, Y, classes=CLASSES, steps=5)
    assert model.diverged_
    assert not np.isfinite(model.last_update_.loss)
    model.set_weights(linear().get_weights())
    assert not model.diverged_


def test_a_start_is_the_same_for_all_and_trains_nothing() -> None:
    common = TorchClassifier("mlp", random_state=4).initialize(X[:0], CLASSES)
    assert not hasattr(common, "last_update_")
    assert common.predict_proba(X).shape == (24, 3)
    trained = TorchClassifier("mlp", random_state=4).update(X, Y, classes=CLASSES, steps=3)
    common.update(X, Y, classes=CLASSES, steps=3)
    np.testing.assert_equal(common.get_weights(), trained.get_weights())
    common.initialize(X, CLASSES)
    np.testing.assert_equal(
        common.get_weights(), TorchClassifier("mlp", random_state=4).initialize(X, CLASSES).get_weights()
    )


@pytest.mark.parametrize(
    "make",
    [
        partial(Proximal, -1),
        partial(Proximal, float("nan")),
        partial(LocalTerms, train="body"),
        partial(SoftTargets, U, P, -1),
    ],
)
def test_terms_that_cannot_be(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_classifier_goes_on_after_a_pickle_between_updates_with_terms() -> None:
    model = with_batch_norm()
    step(model, Proximal(0.1), SoftTargets(U, P), steps=3)
    model.distill(U, P)
    other = pickle.loads(pickle.dumps(model))
    for each in (model, other):
        step(each, Proximal(0.1), SoftTargets(U, P), steps=3)
        each.distill(U, P)
    np.testing.assert_equal(model.get_weights(), other.get_weights())
    assert model.last_update_ == other.last_update_


# Confidences of pseudo-labels


def test_confidences_weigh_the_pseudo_labelled_rows_as_they_are() -> None:
    confidences = np.linspace(0, 0.5, 24)
    w0 = linear().get_weights()
    model = linear().update(X, Y, classes=CLASSES, steps=1, pseudo=(U, Y), terms=LocalTerms(confidences=confidences))
    rows = np.concatenate([X, U])
    share = np.concatenate([np.ones(24), confidences])[:, None] / 48
    errors = softmax(rows @ w0["1.weight"].T + w0["1.bias"], axis=1) - np.eye(3)[np.concatenate([Y, Y])]
    assert_close(
        model.get_weights(),
        {
            "1.weight": w0["1.weight"] - LR * (share * errors).T @ rows,
            "1.bias": w0["1.bias"] - LR * (share * errors).sum(axis=0),
        },
    )


def test_pseudo_labels_that_nobody_is_sure_of_change_nothing() -> None:
    terms = LocalTerms(confidences=np.zeros(24))
    w0 = linear().get_weights()
    model = linear().update(X[:0], Y[:0], classes=CLASSES, steps=3, pseudo=(U, Y), terms=terms)
    assert_close(model.get_weights(), w0)


@pytest.mark.parametrize(
    "confidences", [np.ones(3), -np.ones(24), np.full(24, np.nan), np.full(24, np.inf), ["a"] * 24]
)
def test_confidences_that_are_none(confidences: Any) -> None:
    with pytest.raises(ConfigError, match="confidences"):
        linear().update(X, Y, classes=CLASSES, pseudo=(U, Y), terms=LocalTerms(confidences=confidences))


# Rows without labels


def test_an_update_learns_from_one_kind_of_rows_beside_the_labelled() -> None:
    with pytest.raises(ConfigError, match="one kind of rows"):
        LocalTerms([SoftTargets(U, P), Siamese(U, {})])
    with pytest.raises(ConfigError, match="cannot be combined"):
        LocalTerms([Disjoint(U, {}), Proximal(0.1)])


def test_without_rows_at_all_there_is_nothing_to_learn() -> None:
    model = linear()
    terms = LocalTerms([Siamese(U[:0], model.get_weights())])
    with pytest.raises(ConfigError, match="no rows"):
        model.update(X[:0], Y[:0], classes=CLASSES, terms=terms)


def test_views_are_drawn_only_where_the_learner_or_the_terms_ask_for_them() -> None:
    plain, augmented = (linear(augment=augment) for augment in (False, True))
    again = linear(augment=True)
    assert_close(step(plain), step(linear()))
    np.testing.assert_equal(step(augmented, steps=3), step(again, steps=3))
    assert not np.allclose(augmented.get_weights()["1.weight"], step(linear(), steps=3)["1.weight"], atol=1e-4)


def test_a_loss_that_is_still_being_computed_is_waited_for_and_stored_as_a_number() -> None:
    asked: list[int] = []

    def late() -> float:
        asked.append(1)
        return 0.5

    report = UpdateReport(2, 0.1, late, "cpu")
    assert not asked
    stored = pickle.loads(pickle.dumps(report))
    assert stored.loss == report.loss == 0.5
    assert stored == UpdateReport(2, 0.1, 0.5, "cpu")
