"""SCAFFOLD, option II, against a loop written by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.algorithms.nets import (
    CLASSES,
    FEATURES,
    PARTS,
    SEEN,
    TEST,
    Diverging,
    RecordingNet,
    close,
    gradient,
    linear,
    mean,
    run_nets,
    same,
    sites_of,
    step,
    weights,
    zeros,
)
from torch import nn

import collegium as cg
from collegium.algorithms import scaffold
from collegium.core.site import ActiveSite
from collegium.errors import ConfigError


def by_hand(rounds: int, K: int, lr: float, global_lr: float = 1.0):
    x, c, c_i = zeros(), zeros(), [zeros() for _ in PARTS]
    for _ in range(rounds):
        y_i, changes = [], []
        for i, (X, y) in enumerate(PARTS):
            w = x
            for _ in range(K):
                g = gradient(w, X, y)
                w = step(w, {n: g[n] - c_i[i][n] + c[n] for n in w}, lr)
            new = {n: c_i[i][n] - c[n] + (x[n] - w[n]) / (K * lr) for n in w}
            changes.append({n: new[n] - c_i[i][n] for n in w})
            c_i[i] = new
            y_i.append(w)
        m = mean(y_i)
        x = {n: x[n] + global_lr * (m[n] - x[n]) for n in x}
        c = {n: c[n] + sum(each[n] for each in changes) / len(PARTS) for n in c}
    return x, c, c_i


@pytest.mark.parametrize("global_lr", [1.0, 0.5])
def test_it_is_the_papers_loop(global_lr):
    x, c, _ = by_hand(3, 4, 0.1, global_lr)
    SEEN.clear()
    algorithm = cg.Scaffold(rounds=3, local_steps=4, start=zeros(), global_lr=global_lr)
    result = run_nets(algorithm, lambda name: RecordingNet(site=name))
    close(weights(result.global_model), x, atol=1e-5)
    assert np.abs(c["1.bias"]).max() > 1e-3


def test_the_first_round_is_fedavg_that_counts_sites_alike():
    plain = run_nets(cg.FedAvg(rounds=1, local_steps=3, start=zeros(), weighting="equal"))
    close(
        weights(run_nets(cg.Scaffold(rounds=1, local_steps=3, start=zeros())).global_model), weights(plain.global_model)
    )


def test_the_common_control_variate_is_the_mean_of_the_sites_own():
    sites = [ActiveSite(site, np.arange(10), None, 0) for site in sites_of(PARTS, linear())]
    x, c = zeros(), zeros()
    for number in range(3):
        answers = []
        for site in sites[: 2 if number == 1 else 3]:  # one is away in the second round
            site.begin(number)
            answers.append(scaffold.update.function(site, x, c, 1, 3, None))
        assert [answer.reach for answer in answers] == pytest.approx([0.3] * len(answers))
        changes = [scaffold.control_change(x, answer.arrays, c, answer.reach) for answer in answers]
        x = mean([answer.arrays for answer in answers])
        c = {n: (c[n] + sum(each[n] for each in changes) / len(sites)).astype(np.float32) for n in c}
        close(c, mean([site.state.get("c_i", zeros()) for site in sites]), atol=1e-5)


def test_the_correction_of_each_site_is_c_minus_c_i():
    run_nets(cg.Scaffold(rounds=2, local_steps=2, start=zeros()), lambda name: RecordingNet(site=name))
    first, second = zip(*(SEEN[site] for site in "abc"), strict=True)
    assert all(not call["terms"].added[0].arrays["1.weight"].any() for call in first)
    total = mean([call["terms"].added[0].arrays for call in second])
    close(total, zeros(), atol=1e-6)  # the sum of c - c_i over all sites
    assert any(np.abs(call["terms"].added[0].arrays["1.weight"]).max() > 1e-3 for call in second)


def test_sites_train_by_plain_sgd_whatever_their_optimizer():
    own = run_nets(cg.Scaffold(rounds=2, start=zeros()), linear(lr=0.1))
    adam = cg.TorchClassifier("linear", optimizer="adam", lr=1e-3, batch_size=10_000)
    assert same(weights(run_nets(cg.Scaffold(rounds=2, start=zeros()), adam).global_model), weights(own.global_model))
    slow = run_nets(cg.Scaffold(rounds=2, start=zeros(), lr=0.01), linear(lr=0.1))
    close(weights(slow.global_model), by_hand(2, 1, 0.01)[0])


def test_a_site_that_diverges_keeps_what_it_knew_and_the_others_go_on():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)(site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run_nets(cg.Scaffold(rounds=3, local_steps=2, start=zeros()), learner)
    assert set(result.refusals["code"]) == {"diverged"}
    assert np.isfinite(weights(result.global_model)["1.weight"]).all()
    assert set(result.releases["party"]) == {"a", "c"}


def test_there_are_no_control_variates_for_batch_norm_statistics():
    arrays = {"0.weight": np.ones(2), "0.running_mean": np.ones(2), "0.running_var": np.ones(2), "running": np.ones(1)}
    assert set(scaffold.zeros_like(arrays)) == {"0.weight", "running"}


def test_batch_norm_statistics_are_averaged_and_never_carried_beyond_their_mean():
    net = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES))
    result = run_nets(
        cg.Scaffold(rounds=1, local_steps=2, global_lr=50.0), lambda name: RecordingNet(net, site=name, lr=0.01)
    )
    expected = mean([SEEN[site][0]["after"] for site in "abc"])
    for name in ("0.running_mean", "0.running_var"):
        np.testing.assert_allclose(weights(result.global_model)[name], expected[name], rtol=1e-5)
    assert np.isfinite(result.global_model.predict_proba(TEST[0])).all()


@pytest.mark.parametrize("settings", [{"lr": 0}, {"global_lr": -1}, {"rounds": 0}])
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.Scaffold(**settings)
