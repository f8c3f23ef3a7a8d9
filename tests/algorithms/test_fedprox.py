"""FedProx: the proximal term, and its start from FedKT."""

from __future__ import annotations

import numpy as np
import pytest
from tests.algorithms.nets import (
    PARTS,
    PUBLIC,
    SEEN,
    RecordingNet,
    close,
    gradient,
    mean,
    run_nets,
    same,
    step,
    weights,
    zeros,
)

import collegium as cg
from collegium.errors import ConfigError


def test_without_mu_it_is_fedavg_bit_for_bit():
    net = cg.TorchClassifier("mlp", batch_size=16)
    prox = run_nets(cg.FedProx(rounds=2, local_epochs=2, mu=0), net)
    plain = run_nets(cg.FedAvg(rounds=2, local_epochs=2), net)
    assert same(weights(prox.global_model), weights(plain.global_model))


def test_its_steps_are_pulled_back_to_the_common_model():
    mu, expected = 0.5, zeros()
    for _ in range(2):
        local = []
        for X, y in PARTS:
            w = expected
            for _ in range(4):
                g = gradient(w, X, y)
                w = step(w, {name: g[name] + mu * (w[name] - expected[name]) for name in w}, 0.1)
            local.append(w)
        expected = mean(local, [len(y) for _, y in PARTS])
    close(weights(run_nets(cg.FedProx(rounds=2, local_steps=4, mu=mu, start=zeros())).global_model), expected)


def test_a_strong_pull_keeps_sites_near_the_common_model():
    def drift(mu):
        SEEN.clear()
        run_nets(cg.FedProx(rounds=1, local_steps=20, mu=mu), lambda name: RecordingNet(site=name))
        ((call,),) = (SEEN["a"],)
        return np.linalg.norm(call["after"]["1.weight"] - call["before"]["1.weight"])

    assert drift(5.0) < 0.5 * drift(0.0)


def test_fedkt_prox_starts_from_the_final_model_of_fedkt():
    SEEN.clear()
    kt = run_nets(cg.FedKT(), cg.TorchClassifier("linear", epochs=30, lr=0.05), public=PUBLIC)
    prox = run_nets(cg.FedProx(rounds=3, start=kt.global_model), lambda name: RecordingNet(site=name))
    for calls in SEEN.values():
        assert same(calls[0]["before"], weights(kt.global_model))
    course = prox.metrics.query("metric == 'global_accuracy'")["value"].tolist()
    fresh = run_nets(cg.FedProx(rounds=3)).metrics.query("metric == 'global_accuracy'")["value"].tolist()
    assert course[0] > fresh[0] + 0.1


@pytest.mark.parametrize("mu", [-1, float("nan"), float("inf"), "1", True])
def test_a_mu_that_is_none_is_an_error(mu):
    with pytest.raises(ConfigError, match="mu"):
        cg.FedProx(mu=mu)
