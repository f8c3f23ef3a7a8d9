"""DP-FedAvg: the clipping clips, the noise is as large as claimed, and the claim is the true one."""

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
    run_nets,
    same,
    sites_of,
    step,
    weights,
    zeros,
)
from torch import nn

import collegium as cg
from collegium.core.weights import clip, with_noise
from collegium.errors import ConfigError, SiteError
from collegium.privacy.noise import noise_source

TINY = 1e-9


def norm(arrays) -> float:
    return float(np.sqrt(sum(np.square(value).sum() for value in arrays.values())))


def final(algorithm, learner=None, **options):
    return weights(run_nets(algorithm, learner, **options).global_model)


# Clipping


def test_all_weights_together_are_clipped_to_the_bound():
    arrays = {"a": np.full((2, 2), 3.0), "b": np.full(5, -4.0)}
    clipped = clip(arrays, 2.0)
    assert norm(clipped) == pytest.approx(2.0)
    np.testing.assert_allclose(clipped["a"] / clipped["b"][0], arrays["a"] / arrays["b"][0])
    assert same(clip(arrays, 1e3), arrays)
    assert norm(clip({"a": np.array([np.nan, np.inf, 3.0])}, 5.0)) == 3.0


def test_updates_are_clipped_and_the_mean_is_over_all_sites():
    expected = zeros()
    for X, y in PARTS:
        change = step(zeros(), gradient(zeros(), X, y), 50.0)
        assert norm(change) > 1
        scaled = {name: value / norm(change) for name, value in change.items()}
        expected = {name: expected[name] + 0.5 * scaled[name] / 3 for name in expected}
    close(final(cg.DPFedAvg(rounds=1, clip=0.5, noise=TINY, start=zeros()), linear(lr=50.0)), expected)


def test_one_site_moves_the_model_by_its_share_at_most():
    without = final(cg.DPFedAvg(rounds=1, clip=0.3, noise=TINY, start=zeros()), linear(lr=1e-6))
    moved = final(
        cg.DPFedAvg(rounds=1, clip=0.3, noise=TINY, start=zeros()), lambda n: linear(lr=1e4 if n == "b" else 1e-6)
    )
    assert norm({n: moved[n] - without[n] for n in moved}) == pytest.approx(0.1, rel=1e-3)


def test_small_updates_are_those_of_fedavg_that_counts_sites_alike():
    plain = final(cg.FedAvg(rounds=2, weighting="equal", start=zeros()))
    close(final(cg.DPFedAvg(rounds=2, clip=1e3, noise=1e-12, start=zeros())), plain)


# Noise


def test_noise_has_the_standard_deviation_that_is_asked_for():
    noisy = with_noise({"w": np.zeros((200, 500), np.float32)}, 0.7, 1.0, noise_source(1))["w"]
    assert noisy.std() == pytest.approx(0.7, rel=0.02)
    assert abs(noisy.mean()) < 0.01


@pytest.mark.parametrize(("relation", "factor"), [("add_remove", 1), ("replace", 2)])
def test_the_noise_on_the_model_is_z_times_the_sensitivity_over_the_sites(relation, factor):
    algorithm = cg.DPFedAvg(rounds=1, clip=0.5, noise=3.0, relation=relation, start=zeros())
    assert algorithm.sensitivity == 0.5 * factor
    noise = final(algorithm, linear(lr=0.0))["1.weight"]  # nothing is learned: what is left is the noise
    assert noise.std() == pytest.approx(3.0 * 0.5 * factor / 3, rel=0.1)


def test_every_round_and_every_seed_has_noise_of_its_own():
    first, again, other = (final(cg.DPFedAvg(rounds=1, start=zeros()), seed=seed) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    twice = final(cg.DPFedAvg(rounds=2, start=zeros()), linear(lr=0.0))["1.weight"]
    assert twice.std() == pytest.approx(np.sqrt(2) / 3, rel=0.1)


def test_sites_are_drawn_independently_and_a_round_without_any_is_still_noised_and_paid():
    result = run_nets(cg.DPFedAvg(rounds=40, participation=0.3, start=zeros()), linear(lr=0.0))
    each = result.releases.groupby("round").size().reindex(range(40), fill_value=0)
    assert set(each) >= {0, 1, 2}
    assert each.mean() == pytest.approx(0.9, abs=0.35)
    row = result.privacy.set_index("party").loc["coordinator"]
    assert row["rounds"] == 40
    noise = weights(result.global_model)["1.weight"]
    assert noise.std() == pytest.approx(np.sqrt(40) / (0.3 * 3), rel=0.1)  # over q m, whoever answered


def test_a_site_that_diverges_counts_as_one_that_changed_nothing():
    def learner(name):
        return Diverging(site=name) if name == "b" else linear(lr=0.0)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run_nets(cg.DPFedAvg(rounds=1, noise=TINY, start=zeros()), learner)
    assert result.refusals["code"].tolist() == ["diverged"]
    assert norm(weights(result.global_model)) < 1e-6


def test_a_run_whose_drawn_sites_all_diverge_goes_on_since_its_end_would_tell_who_was_drawn():
    with pytest.warns(cg.CollegiumWarning):
        result = run_nets(cg.DPFedAvg(rounds=3, noise=TINY, start=zeros()), lambda name: Diverging(site=name))
    assert len(result.refusals) == 9
    assert result.privacy.set_index("party").loc["coordinator", "rounds"] == 3
    assert norm(weights(result.global_model)) < 1e-6


def test_sites_that_add_the_noise_and_do_not_answer_change_nothing_either():
    policy = cg.Policy(steps=("averaging.*",))
    sites = [cg.Site(s.name, s.X, s.y, learner=linear(), policy=policy) for s in sites_of(PARTS, None)]
    with pytest.warns(cg.CollegiumWarning, match="step-denied"):
        result = run_nets(cg.DPFedAvg(rounds=2, variant="clip_parameters", start=zeros()), sites=sites)
    assert same(weights(result.global_model), zeros())


@pytest.mark.parametrize("variant", ["clip_updates", "clip_parameters"])
def test_noise_makes_no_running_variance_negative(variant):
    net = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES))
    result = run_nets(cg.DPFedAvg(rounds=2, variant=variant, noise=3.0), cg.TorchClassifier(net))
    for model in (result.global_model, *result.models.values()):
        assert weights(model)["0.running_var"].min() >= 0
        assert np.isfinite(model.predict_proba(TEST[0])).all()
    assert result.refusals.empty


# Claims


@pytest.mark.parametrize(("z", "epsilon"), [(614.991, 0.1), (74.6126, 1.0), (12.0046, 8.0)])
def test_the_noise_that_400_rounds_need(z, epsilon):
    claim = cg.DPFedAvg(rounds=400, noise=z, delta=1e-5).claim()
    assert claim.epsilon == pytest.approx(epsilon, rel=2e-6)
    assert (claim.kind, claim.unit, claim.relation, claim.delta) == ("dp", "party", "add_remove", 1e-5)
    assert cg.DPFedAvg(rounds=400, noise=z, relation="replace").claim().epsilon == pytest.approx(epsilon, rel=2e-6)


def test_the_claim_of_aimhis_setting_is_the_true_one():
    claim = cg.DPFedAvg(rounds=150, variant="clip_parameters", clip=2, noise=0.01).claim()
    assert claim.epsilon == pytest.approx(1.20e7, rel=2e-3)
    assert (claim.kind, claim.unit, claim.relation) == ("dp", "party", "replace")


def test_a_sample_of_the_sites_costs_less():
    whole = cg.DPFedAvg(rounds=50, noise=2.0).claim().epsilon
    assert cg.DPFedAvg(rounds=50, noise=2.0, participation=0.2).claim().epsilon < 0.4 * whole


def test_the_run_says_who_adds_the_noise_and_what_that_is_worth():
    algorithm = cg.DPFedAvg(rounds=3, noise=5.0)
    table = run_nets(algorithm).privacy.set_index("party")
    row = table.loc["coordinator"]
    assert row["epsilon"] == pytest.approx(algorithm.claim().epsilon)
    assert (row["kind"], row["unit"], row["rounds"]) == ("dp", "party", 3)
    assert "coordinator adds the noise" in row["covers"]
    assert "trusted" in row["assumptions"]
    assert "simulated noise" in row["assumptions"]
    assert set(table.loc[["a", "b", "c"], "kind"]) == {"unprotected"}  # the coordinator sees what they send


def test_a_site_that_wants_privacy_of_its_own_does_not_trust_the_coordinators_noise():
    sites = [
        cg.Site(s.name, s.X, s.y, learner=linear(), policy=cg.Policy(requires="dp")) for s in sites_of(PARTS, None)
    ]
    with pytest.raises(SiteError, match="requires differential privacy"):
        run_nets(cg.DPFedAvg(rounds=1), sites=sites)
    result = run_nets(cg.DPFedAvg(rounds=2, variant="clip_parameters", noise=4.0), sites=sites)
    assert set(result.privacy["kind"]) == {"dp"}


# Clipped parameters with the sites' own noise


def test_each_site_clips_its_parameters_and_noises_them_itself():
    algorithm = cg.DPFedAvg(rounds=2, variant="clip_parameters", clip=0.2, noise=0.5, start=zeros())
    result = run_nets(algorithm, lambda name: RecordingNet(site=name, lr=5.0))
    assert norm(SEEN["a"][0]["after"]) > 0.2
    table = result.privacy
    assert table["party"].tolist() == ["a", "b", "c"]
    assert table["epsilon"].tolist() == pytest.approx([algorithm.claim().epsilon] * 3)
    assert set(table["unit"]) == {"party"}
    assert set(result.releases["protected"]) == {True}
    # Three sites' independent noise on parameters that are small beside it.
    assert weights(result.global_model)["1.weight"].std() == pytest.approx(0.5 / np.sqrt(3), rel=0.15)


def test_nothing_of_the_trained_net_is_left_at_the_site_but_the_noisy_one():
    algorithm = cg.DPFedAvg(rounds=1, variant="clip_parameters", clip=1.0, noise=TINY, start=zeros())
    expected = [clip(step(zeros(), gradient(zeros(), X, y), 30.0), 1.0) for X, y in PARTS]
    assert all(norm(each) == pytest.approx(1.0) for each in expected)
    mean = {name: sum(each[name] for each in expected) / 3 for name in zeros()}
    close(final(algorithm, linear(lr=30.0)), mean)


def test_a_net_that_diverged_counts_as_zeros_since_a_refusal_would_tell():
    algorithm = cg.DPFedAvg(rounds=1, variant="clip_parameters", noise=TINY, start=zeros())
    result = run_nets(algorithm, lambda name: Diverging(site=name))
    assert result.refusals.empty
    assert norm(weights(result.global_model)) < 1e-6


def test_a_budget_ends_it(tmp_path):
    algorithm = cg.DPFedAvg(rounds=50, variant="clip_parameters", clip=1.0, noise=10.0)
    spent = cg.DPFedAvg(rounds=4, variant="clip_parameters", clip=1.0, noise=10.0).claim().epsilon
    sites = [
        cg.Site(s.name, s.X, s.y, learner=linear(), budget=cg.Budget(spent * 1.001, 1e-5, tmp_path / f"{s.name}.db"))
        for s in sites_of(PARTS, None)
    ]
    with pytest.warns(cg.CollegiumWarning):
        result = run_nets(algorithm, sites=sites)
    assert result.releases.groupby("party").size().tolist() == [4, 4, 4]


def test_a_spent_budget_ends_it_whoever_was_drawn(tmp_path):
    algorithm = cg.DPFedAvg(rounds=50, variant="clip_parameters", noise=10.0, participation=0.34)
    once = cg.DPFedAvg(rounds=1, variant="clip_parameters", noise=10.0).claim().epsilon
    sites = [
        cg.Site(s.name, s.X, s.y, learner=linear(), budget=cg.Budget(once * 1.001, 1e-5, tmp_path / f"{s.name}.db"))
        for s in sites_of(PARTS, None)
    ]
    with pytest.warns(cg.CollegiumWarning):
        result = run_nets(algorithm, sites=sites)
    assert result.refusals["code"].tolist() == ["budget-exhausted"]


@pytest.mark.parametrize(
    "settings",
    [
        {"clip": 0}, {"noise": 0}, {"delta": 0}, {"delta": 1}, {"relation": "any"}, {"variant": "clip"},
        {"variant": "clip_parameters", "relation": "add_remove"}, {"participation": 0.5, "relation": "replace"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=list(settings)[-1]):
        cg.DPFedAvg(**settings)
