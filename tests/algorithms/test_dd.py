"""DD: sites share probabilities, and really train on their mean."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.algorithms.nets import (
    CLASSES,
    FEATURES,
    PARTS,
    PUBLIC,
    SEEN,
    TEST,
    TRUTH,
    Diverging,
    RecordingNet,
    digits,
    forgetful_net,
    linear,
    sites_of,
)

import collegium as cg
from collegium.core.weights import SoftLabels, SoftMean
from collegium.errors import ConfigError, SiteError


def run(algorithm, learner=None, parts=PARTS, **options):
    options = {"public": PUBLIC, "test": TEST} | options
    return cg.run(algorithm, sites=sites_of(parts, learner or linear()), **options)


def probabilities(w, X):
    logits = X @ w["1.weight"].T + w["1.bias"]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("period", [1, 2])
def test_sites_train_on_the_mean_of_what_all_said(period):
    run(cg.DistributedDistillation(rounds=6, period=period, weight=0.7), lambda name: RecordingNet(site=name))
    for t in range(6):
        calls = {site: SEEN[site][t] for site in "abc"}
        last = t - 1 - t % period  # the update after which everybody spoke last
        for call in calls.values():
            if last < 0:
                assert call.get("terms") is None
                continue
            (soft,) = call["terms"].added
            X, targets = soft.unlabeled
            assert soft.weight == 0.7
            assert call["terms"].keep_optimizer
            np.testing.assert_array_equal(X, PUBLIC)
            said = [probabilities(SEEN[site][last]["after"], PUBLIC) for site in "abc"]
            np.testing.assert_allclose(targets, np.mean(said, axis=0), atol=1e-5)
            assert targets.std() > 0.01


def test_a_site_that_lacks_classes_learns_them_from_the_consensus():
    X, y = PARTS[0]
    parts = [(X[y < 5], y[y < 5]), *digits((30, 100, 100))[0][1:]]
    net = cg.TorchClassifier("linear", lr=0.02, batch_size=32)
    high = TEST[1] >= 5
    answers = {}
    for rounds in (1, 8):
        result = run(cg.DistributedDistillation(rounds=rounds, epochs=5), net, parts)
        answers[rounds] = np.mean(result.models["a"].predict(TEST[0])[high] == TEST[1][high])
    assert answers[1] < 0.1
    assert answers[8] > 0.5


def test_it_makes_a_global_model_of_the_final_consensus_and_measures_it():
    net = cg.TorchClassifier("linear", lr=0.02, batch_size=32)
    result = run(cg.DistributedDistillation(rounds=4, epochs=5), net, public_truth=TRUTH)
    quality = result.metrics.query("metric == 'consensus_quality'")["value"].tolist()
    assert len(quality) == 4
    assert quality[-1] > 0.7
    assert result.global_model is not None
    assert set(result.releases["kind"]) == {"SoftLabels"}
    assert set(result.releases["bytes"]) == {len(PUBLIC) * CLASSES * 4}


def test_nets_answer_in_eval_mode():
    run(cg.DistributedDistillation(rounds=2), lambda name: RecordingNet(forgetful_net(), site=name))
    (targets,) = {SEEN[site][1]["terms"].added[0].targets.tobytes() for site in "abc"}
    said = []
    for site in "abc":
        w = SEEN[site][0]["after"]
        hidden = np.maximum(PUBLIC @ w["0.weight"].T + w["0.bias"], 0)  # no dropout
        said.append(probabilities({"1.weight": w["3.weight"], "1.bias": w["3.bias"]}, hidden))
    np.testing.assert_allclose(
        np.frombuffer(targets, np.float32).reshape(-1, CLASSES), np.mean(said, axis=0), atol=1e-5
    )
    assert PUBLIC.shape[1] == FEATURES


def test_different_nets_can_teach_each_other():
    net = {"a": cg.TorchClassifier("mlp"), "b": linear(), "c": cg.TorchClassifier("linear")}
    assert set(run(cg.DistributedDistillation(rounds=2, epochs=1), lambda name: net[name]).models) == {"a", "b", "c"}


def test_a_site_whose_answers_are_no_numbers_is_left_out_and_reported():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)(site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(cg.DistributedDistillation(rounds=2), learner, global_learner=linear())
    assert set(result.refusals["party"]) == {"b"}
    said = [probabilities(SEEN[site][0]["after"], PUBLIC) for site in "ac"]
    np.testing.assert_allclose(SEEN["a"][1]["terms"].added[0].targets, np.mean(said, axis=0), atol=1e-5)


def test_a_mean_does_not_depend_on_the_order_and_takes_no_other_samples():
    rng = np.random.default_rng(0)
    said = [SoftLabels(rng.normal(size=(5, 3)).astype(np.float32) * 10) for _ in range(7)]
    means = []
    for order in (range(7), reversed(range(7))):
        mean = SoftMean(5, 3)
        assert all(mean.add(said[i]) for i in order)
        means.append(mean.values)
    np.testing.assert_array_equal(*means)
    np.testing.assert_allclose(means[0], np.mean([each.values for each in said], axis=0), atol=1e-6)
    assert not mean.add(SoftLabels(np.zeros((4, 3), np.float32)))
    assert mean.parties == 7


def test_learners_that_cannot_learn_soft_labels_are_an_error_that_names_methods_for_them():
    with pytest.raises(SiteError, match=r"learns from soft labels, but DecisionTreeClassifier.*fedct"):
        run(cg.DistributedDistillation(rounds=1), DecisionTreeClassifier())


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0}, {"period": 0}, {"weight": 0}, {"participation": 2}, {"participation": "0.5"},
        {"participation": None}, {"steps": 0}, {"rounds": 2, "period": 3},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=list(settings)[-1]):
        cg.DistributedDistillation(**settings)
