"""FedDF: the average of each kind of net, distilled from the nets of all sites."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from tests.algorithms.nets import (
    PARTS,
    PUBLIC,
    SEEN,
    TEST,
    Diverging,
    RecordingNet,
    close,
    linear,
    mean,
    same,
    sites_of,
    weights,
)
from torch import nn

import collegium as cg
from collegium.core.workbench import Workbench
from collegium.errors import ConfigError

SIZES = [len(y) for _, y in PARTS]
TAUGHT: list[dict] = []


@pytest.fixture(autouse=True)
def _record(monkeypatch) -> None:
    TAUGHT.clear()
    distill = Workbench.distill

    def recording(self, like, student, targets, **options):
        learned = distill(self, like, student, targets, **options)
        TAUGHT.append({"like": like, "student": student, "targets": targets, "learned": learned, **options})
        return learned

    monkeypatch.setattr(Workbench, "distill", recording)


def run(algorithm, learner=None, **options):
    options = {"public": PUBLIC, "test": TEST} | options
    return cg.run(algorithm, sites=sites_of(PARTS, learner or linear()), **options)


def logits(w, X):
    if "1.bias" in w and w["1.bias"].shape == (10,):
        return X @ w["1.weight"].T + w["1.bias"]
    h = np.maximum(X @ w["1.weight"].T + w["1.bias"], 0)
    h = np.maximum(h @ w["3.weight"].T + w["3.bias"], 0)
    return h @ w["5.weight"].T + w["5.bias"]


def test_the_average_is_distilled_from_the_mean_of_all_logits_and_is_the_next_start():
    result = run(cg.FedDF(rounds=2, distill_lr=1e-3, distill_epochs=2), lambda name: RecordingNet(site=name))
    for t, taught in enumerate(TAUGHT):
        after = [SEEN[site][t]["after"] for site in "abc"]
        close(taught["student"], mean(after, SIZES))
        expected = softmax(np.mean([logits(w, PUBLIC) for w in after], axis=0), axis=1)
        np.testing.assert_allclose(taught["targets"], expected, atol=1e-5)
        assert (taught["epochs"], taught["lr"], taught["batch_size"]) == (2, 1e-3, 128)
        assert not same(taught["student"], taught["learned"])
    assert same(SEEN["b"][1]["before"], TAUGHT[0]["learned"])
    assert same(weights(result.global_model), TAUGHT[1]["learned"])
    assert same(weights(result.models["c"]), TAUGHT[1]["learned"])


def test_distillation_brings_the_student_nearer_to_the_ensemble():
    algorithm = cg.FedDF(rounds=1, local_epochs=15, distill_lr=1e-3, distill_epochs=20)
    run(algorithm, cg.TorchClassifier("mlp", batch_size=16))
    (taught,) = TAUGHT

    def divergence(w):
        answers = softmax(logits(w, PUBLIC).astype(float), axis=1)
        return np.mean(np.sum(taught["targets"] * np.log(taught["targets"] / answers), axis=1))

    assert divergence(taught["learned"]) < 0.8 * divergence(taught["student"])


def test_sites_with_different_nets_are_averaged_by_kind_and_distilled_from_all():
    def learner(name):
        return RecordingNet("mlp" if name == "b" else "linear", site=name)

    result = run(cg.FedDF(rounds=2), learner)
    assert [taught["like"] for taught in TAUGHT] == ["a", "b", "a", "b"]
    for t in (0, 1):
        after = {site: SEEN[site][t]["after"] for site in "abc"}
        expected = softmax(np.mean([logits(w, PUBLIC) for w in after.values()], axis=0), axis=1)
        for taught in TAUGHT[2 * t : 2 * t + 2]:
            np.testing.assert_allclose(taught["targets"], expected, atol=1e-4)
        close(TAUGHT[2 * t]["student"], mean([after["a"], after["c"]], [SIZES[0], SIZES[2]]))
        assert same(TAUGHT[2 * t + 1]["student"], after["b"])
    assert list(result.global_models) == ["a", "b"]
    assert same(weights(result.models["c"]), weights(result.global_models["a"]))
    assert same(weights(result.models["b"]), weights(result.global_models["b"]))
    course = result.metrics.query("metric == 'global_accuracy'").groupby("party", observed=True).size().to_dict()
    assert course == {"coordinator": 2, "b": 2}


def test_a_start_is_used_by_the_nets_that_it_fits():
    zeros = {"1.bias": np.zeros(10, np.float32)}
    run(cg.FedDF(rounds=1, start=[zeros]), lambda n: RecordingNet("mlp" if n == "b" else "linear", site=n))
    assert not SEEN["a"][0]["before"]["1.bias"].any()
    assert SEEN["b"][0]["before"]["1.bias"].any()


def test_a_site_that_diverges_teaches_nobody():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)(site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(cg.FedDF(rounds=1), learner)
    assert result.refusals["code"].tolist() == ["diverged"]
    expected = softmax(np.mean([logits(SEEN[s][0]["after"], PUBLIC) for s in "ac"], axis=0), axis=1)
    np.testing.assert_allclose(TAUGHT[0]["targets"], expected, atol=1e-5)


def test_a_net_that_says_no_numbers_is_left_out_of_the_round_and_reported():
    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(cg.FedDF(rounds=2), lambda name: RecordingNet("mlp", site=name, lr=1e30 if name == "b" else 0.1))
    assert all(np.isfinite(value).all() for value in SEEN["b"][0]["after"].values())
    assert result.refusals[["party", "step", "code"]].to_numpy().tolist() == [["b", "fedavg.update", "diverged"]] * 2
    for t, taught in enumerate(TAUGHT):
        after = [SEEN[site][t]["after"] for site in "ac"]
        close(taught["student"], mean(after, [SIZES[0], SIZES[2]]))
        expected = softmax(np.mean([logits(w, PUBLIC) for w in after], axis=0), axis=1)
        np.testing.assert_allclose(taught["targets"], expected, atol=1e-4)


def test_a_round_without_a_sound_net_changes_nothing():
    with pytest.warns(cg.CollegiumWarning):
        result = run(cg.FedDF(rounds=2), lambda name: RecordingNet("mlp", site=name, lr=1e30))
    assert len(result.refusals) == 6
    assert not TAUGHT
    assert same(weights(result.global_model), SEEN["a"][0]["before"])


def test_nets_that_differ_in_what_has_no_weights_are_of_different_kinds():
    nets = {"a": nn.ReLU(), "b": nn.Tanh(), "c": nn.ReLU()}
    result = run(
        cg.FedDF(rounds=1),
        lambda name: cg.TorchClassifier(nn.Sequential(nn.Linear(64, 8), nets[name], nn.Linear(8, 10))),
    )
    assert list(result.global_models) == ["a", "b"]


def test_it_needs_a_public_set():
    with pytest.raises(ConfigError, match="public"):
        run(cg.FedDF(rounds=1), public=None)


@pytest.mark.parametrize("settings", [{"distill_epochs": 0}, {"distill_lr": 0}, {"distill_batch": 0}, {"rounds": 0}])
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.FedDF(**settings)
