"""FedBE: the posterior, the ensemble drawn from it, and the student's average."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from tests.algorithms.nets import PARTS, PUBLIC, SEEN, TEST, RecordingNet, close, linear, mean, same, sites_of, weights

import collegium as cg
from collegium.algorithms.fedbe import Probabilities, deviation, draw
from collegium.core import Weights
from collegium.core.workbench import Workbench
from collegium.errors import ConfigError

SIZES = [len(y) for _, y in PARTS]


def run(algorithm, learner=None, **options):
    return cg.run(algorithm, sites=sites_of(PARTS, learner or linear()), public=PUBLIC, test=TEST, **options)


def test_the_posterior_is_the_sites_mean_and_deviation():
    nets = {p: Weights({"w": np.float32([i, 2.0])}, 1) for i, p in enumerate("abc")}
    centre = {"w": np.float32([1.0, 2.0])}
    np.testing.assert_allclose(deviation(nets, {"a": 1, "b": 2, "c": 1}, centre)["w"], [np.sqrt(0.5), 0.0])
    rng = np.random.default_rng(0)
    spread = {"w": np.float32([0.5, 0.0]), "0.running_var": np.float32([9.0])}
    drawn = [draw(centre | {"0.running_var": np.float32([0.1])}, spread, rng) for _ in range(4000)]
    values = np.stack([each["w"] for each in drawn])
    np.testing.assert_allclose(values.mean(axis=0), [1.0, 2.0], atol=0.03)
    np.testing.assert_allclose(values.std(axis=0), [0.5, 0.0], atol=0.03)
    assert {float(each["0.running_var"][0]) for each in drawn} == {np.float32(0.1)}


def test_the_ensemble_is_the_average_the_sites_and_the_drawn_nets_and_its_student_is_averaged(monkeypatch):
    SEEN.clear()
    tried, taught = [], []
    logits_of_each, distill = Workbench.logits_of_each, Workbench.distill

    def recording_logits(self, nets, *rows, **options):
        nets = list(nets)
        for (_, w), answers in zip(nets, logits_of_each(self, nets, *rows, **options), strict=True):
            tried.append((w, answers))
            yield answers

    def recording_distill(self, like, student, targets, **options):
        learned = distill(self, like, student, targets, **options)
        taught.append({"student": student, "targets": targets, "learned": learned, **options})
        return learned

    monkeypatch.setattr(Workbench, "logits_of_each", recording_logits)
    monkeypatch.setattr(Workbench, "distill", recording_distill)
    algorithm = cg.FedBE(rounds=1, samples=6, swa=3, distill_lr=1e-3, distill_batch=40, distill_epochs=2)
    result = run(algorithm, lambda name: RecordingNet(site=name))
    after = [SEEN[site][0]["after"] for site in "abc"]
    assert len(tried) == 3 + 1 + 6
    assert all(same(w, own) for (w, _), own in zip(tried[:3], after, strict=True))
    close(tried[3][0], mean(after, SIZES))
    assert len({w["1.bias"].tobytes() for w, _ in tried}) == 10
    expected = np.mean([softmax(answers.astype(float), axis=1) for _, answers in tried], axis=0)
    assert len(taught) == 3
    for part in taught:
        np.testing.assert_allclose(part["targets"], expected, atol=1e-6)
        assert part["steps"] == 2  # two sweeps of three batches, in three parts
    assert same(taught[0]["student"], tried[3][0])
    assert same(taught[1]["student"], taught[0]["learned"])
    close(weights(result.global_model), mean([part["learned"] for part in taught]))


def test_different_nets_are_an_error_that_names_both_sites():
    with pytest.raises(ConfigError, match="'a' and 'b' differ"):
        run(cg.FedBE(), lambda name: cg.TorchClassifier("mlp" if name == "b" else "linear"))


def test_a_net_that_says_no_numbers_is_left_out_of_the_round_and_reported():
    SEEN.clear()
    algorithm = cg.FedBE(rounds=2, distill_lr=1e-9)
    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(algorithm, lambda name: RecordingNet("mlp", site=name, lr=1e30 if name == "b" else 0.1))
    assert all(np.isfinite(value).all() for value in SEEN["b"][0]["after"].values())
    assert result.refusals[["party", "step", "code"]].to_numpy().tolist() == [["b", "fedavg.update", "diverged"]] * 2
    sound = mean([SEEN[site][1]["after"] for site in "ac"], [SIZES[0], SIZES[2]])
    close(weights(result.global_model), sound, atol=1e-5)


def test_a_round_without_a_sound_net_changes_nothing():
    with pytest.warns(cg.CollegiumWarning):
        result = run(cg.FedBE(rounds=2), lambda name: RecordingNet("mlp", site=name, lr=1e30))
    assert len(result.refusals) == 6
    assert same(weights(result.global_model), SEEN["a"][0]["before"])


def test_drawn_nets_that_say_no_numbers_do_not_count():
    p = Probabilities(2, 3)
    p.add(np.zeros((2, 3), np.float32))
    p.add(np.full((2, 3), np.inf, np.float32))
    np.testing.assert_allclose(p.mean, 1 / 3)


def test_it_learns():
    result = run(cg.FedBE(rounds=4, local_epochs=5), cg.TorchClassifier("linear", lr=0.02, batch_size=16))
    assert result.accuracy.iloc[-1].mean() > 0.7


@pytest.mark.parametrize("settings", [{"samples": 0}, {"swa": 0}, {"distill_lr": -1}])
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.FedBE(**settings)
