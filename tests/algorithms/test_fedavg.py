"""FedAvg: what is averaged, from where sites start, who takes part, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.algorithms.nets import (
    CLASSES,
    FEATURES,
    PARTS,
    SEEN,
    TEST,
    Diverging,
    RecordingNet,
    close,
    forgetful_net,
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
from collegium.algorithms import _averaging as averaging
from collegium.core import ActiveSite, Weights
from collegium.errors import ConfigError, QuorumLost, SiteError


def recorders(**settings):
    return lambda name: RecordingNet(site=name, **settings)


def test_one_full_batch_step_at_each_of_all_sites_is_gradient_descent_on_all_data():
    X, y = (np.concatenate(part) for part in zip(*PARTS, strict=True))
    expected = zeros()
    for _ in range(4):
        expected = step(expected, gradient(expected, X, y), 0.1)
    close(weights(run_nets(cg.FedAvg(rounds=4, start=zeros())).global_model), expected)


def test_local_epochs_are_steps_of_each_site_by_itself():
    expected = zeros()
    for _ in range(2):
        local = []
        for X, y in PARTS:
            w = expected
            for _ in range(3):
                w = step(w, gradient(w, X, y), 0.1)
            local.append(w)
        expected = mean(local, [len(y) for _, y in PARTS])
    close(weights(run_nets(cg.FedAvg(rounds=2, local_epochs=3, start=zeros())).global_model), expected)
    close(weights(run_nets(cg.FedAvg(rounds=2, local_steps=3, start=zeros())).global_model), expected)


@pytest.mark.parametrize("method", [cg.FedAvg, cg.FedProx])
def test_the_rate_may_fall_by_a_cosine(method):
    halved = method(rounds=1, anneal=4, first_round=2, start=zeros())  # half way of the cosine
    expected = weights(run_nets(method(rounds=1, start=zeros()), linear(lr=0.05)).global_model)
    close(weights(run_nets(halved, linear(lr=0.1)).global_model), expected)


def test_equal_weighting_counts_every_site_alike():
    local = [step(zeros(), gradient(zeros(), X, y), 0.1) for X, y in PARTS]
    close(weights(run_nets(cg.FedAvg(rounds=1, weighting="equal", start=zeros())).global_model), mean(local))


def test_all_sites_start_every_round_from_one_point_whatever_their_own_seeds():
    final = run_nets(cg.FedAvg(rounds=3), lambda name: RecordingNet(site=name, random_state=ord(name)))
    assert set(SEEN) == {"a", "b", "c"}
    for a, b, c in zip(*SEEN.values(), strict=True):
        assert same(a["before"], b["before"])
        assert same(a["before"], c["before"])
        assert not same(a["after"], b["after"])
    sizes = dict(zip("abc", (len(y) for _, y in PARTS), strict=True))
    close(SEEN["a"][2]["before"], mean([SEEN[s][1]["after"] for s in sizes], list(sizes.values())))
    close(weights(final.global_model), mean([SEEN[s][2]["after"] for s in sizes], list(sizes.values())))


def test_the_start_is_drawn_from_the_seed():
    starts = []
    for seed in (0, 0, 1):
        SEEN.clear()
        run_nets(cg.FedAvg(rounds=1), recorders(), seed=seed)
        starts.append(SEEN["a"][0]["before"])
    assert same(starts[0], starts[1])
    assert not same(starts[0], starts[2])


def test_no_optimizer_outlives_a_round():
    X, y = (np.concatenate(part) for part in zip(*PARTS, strict=True))
    net = cg.TorchClassifier("linear", optimizer="momentum", lr=0.1, batch_size=10_000)
    expected = zeros()
    for _ in range(3):  # a first step with momentum is one without
        expected = step(expected, gradient(expected, X, y), 0.1)
    close(weights(run_nets(cg.FedAvg(rounds=3, start=zeros()), net).global_model), expected)


def test_a_part_of_the_sites_takes_part_and_all_receive_the_final_model():
    result = run_nets(cg.FedAvg(rounds=6, participation=0.34), recorders())
    assert result.releases.groupby("round")["party"].nunique().tolist() == [1] * 6
    assert len(set(result.releases["party"])) > 1
    assert sum(map(len, SEEN.values())) == 6
    for model in result.models.values():
        assert same(weights(model), weights(result.global_model))


def test_the_final_accuracy_of_every_site_and_the_global_one_of_every_round_are_noted():
    result = run_nets(cg.FedAvg(rounds=4))
    course = result.metrics.query("metric == 'global_accuracy'")
    assert course["round"].tolist() == [0, 1, 2, 3]
    final = np.mean(result.global_model.predict(TEST[0]) == TEST[1])
    assert course["value"].iloc[-1] == final
    assert set(result.accuracy.iloc[-1]) == {final}
    assert list(result.global_models) == ["a"]


def test_the_common_model_may_be_tested_every_so_many_rounds_and_always_in_the_last():
    every = run_nets(cg.FedAvg(rounds=7), test_sites=False).metrics.query("metric == 'global_accuracy'")
    some = run_nets(cg.FedAvg(rounds=7), test_sites=False, test_every=3).metrics.query("metric == 'global_accuracy'")
    assert some["round"].tolist() == [2, 5, 6]
    assert some["value"].tolist() == every["value"].iloc[[2, 5, 6]].tolist()
    with pytest.raises(ConfigError, match="test_every"):
        run_nets(cg.FedAvg(rounds=1), test_every=0)


def test_what_leaves_is_one_set_of_weights_per_site_and_round():
    result = run_nets(cg.FedAvg(rounds=3))
    assert set(result.releases["kind"]) == {"Weights"}
    assert result.releases.groupby("party").size().tolist() == [3, 3, 3]
    assert set(result.releases["bytes"]) == {4 * CLASSES * (FEATURES + 1)}
    assert set(result.privacy["kind"]) == {"unprotected"}


def test_batch_norm_statistics_are_averaged_like_weights():
    net = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES))
    result = run_nets(cg.FedAvg(rounds=1), lambda name: RecordingNet(net, site=name))
    sizes = [len(y) for _, y in PARTS]
    for name in ("0.running_mean", "0.running_var"):
        expected = sum(n * SEEN[site][0]["after"][name] for n, site in zip(sizes, "abc", strict=True)) / sum(sizes)
        np.testing.assert_allclose(weights(result.global_model)[name], expected, rtol=1e-5)
        assert SEEN["a"][0]["after"][name].std() > 0


def test_models_answer_in_eval_mode():
    result = run_nets(cg.FedAvg(rounds=2), cg.TorchClassifier(forgetful_net()))
    for model in (result.global_model, *result.models.values()):
        assert np.array_equal(model.predict_proba(TEST[0]), model.predict_proba(TEST[0]))
        assert not model.estimator.to_module().training


# What goes wrong


def test_weights_that_are_no_numbers_are_left_out_and_reported_and_the_round_goes_on():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)(site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b' did not answer"):
        result = run_nets(cg.FedAvg(rounds=2, start=zeros()), learner)
    assert result.refusals["party"].tolist() == ["b", "b"]
    assert set(result.refusals["code"]) == {"diverged"}
    close(weights(result.global_model), mean([SEEN["a"][1]["after"], SEEN["c"][1]["after"]], [30, 50]))
    assert np.isfinite(weights(result.models["b"])["1.weight"]).all()


def test_a_run_in_which_every_site_diverges_ends_and_says_so():
    with pytest.raises(QuorumLost, match="diverged"):
        run_nets(cg.FedAvg(rounds=2), lambda name: Diverging(site=name))


def test_a_round_in_which_no_drawn_site_answers_changes_nothing_and_the_run_goes_on():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)(site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run_nets(cg.FedAvg(rounds=8, participation=0.34, start=zeros()), learner)
    silent = set(result.refusals["round"])
    assert silent
    assert set(result.refusals["code"]) == {"diverged"}
    assert set(result.releases["round"]) == set(range(8)) - silent
    course = result.metrics.query("metric == 'global_accuracy'")["value"].tolist()
    assert len(course) == 8
    assert all(course[t] == course[t - 1] for t in silent if t)


def test_a_quorum_that_was_set_is_needed_of_a_part_of_the_sites_too():
    with pytest.raises(QuorumLost, match="diverged"):
        run_nets(cg.FedAvg(rounds=2, participation=0.34), lambda name: Diverging(site=name), quorum=0.1)


def test_nets_that_differ_in_what_has_no_weights_are_an_error_that_names_both_sites():
    def learner(name):
        between = nn.Tanh() if name == "b" else nn.ReLU()
        return cg.TorchClassifier(nn.Sequential(nn.Linear(FEATURES, 8), between, nn.Linear(8, CLASSES)))

    with pytest.raises(ConfigError, match="'a' and 'b' differ"):
        run_nets(cg.FedAvg(), learner)


@pytest.mark.parametrize(
    ("settings", "why"), [({"net": "mpl"}, "Did you mean 'mlp'"), ({"optimizer": "sdg"}, "Did you mean 'sgd'")]
)
def test_nets_that_cannot_be_made_are_an_error_that_has_the_reason(settings, why):
    with pytest.raises(SiteError, match=f"Site 'a': .*{why}"):
        run_nets(cg.FedAvg(), cg.TorchClassifier(**settings))
    with pytest.raises(SiteError, match=f"Site 'b': .*{why}"):  # one site only
        run_nets(cg.FedAvg(rounds=1), lambda name: cg.TorchClassifier(**settings if name == "b" else {}))


def test_different_nets_are_an_error_that_names_both_sites():
    with pytest.raises(ConfigError, match="'a' and 'c' differ"):
        run_nets(cg.FedAvg(), lambda name: cg.TorchClassifier("mlp" if name == "c" else "linear"))


def test_a_learner_without_weights_is_an_error_that_names_methods_for_it():
    with pytest.raises(SiteError, match=r"FedAvg averages weights, but DecisionTreeClassifier.*fedct"):
        run_nets(cg.FedAvg(), DecisionTreeClassifier())


def test_a_site_that_sends_another_net_is_left_out_and_reported(monkeypatch):
    honest = ActiveSite.weights

    def dishonest(site):
        arrays = honest(site)
        return {"other": arrays["1.bias"]} if site.name == "c" else arrays

    monkeypatch.setattr(ActiveSite, "weights", dishonest)
    with pytest.warns(cg.CollegiumWarning, match="'c'"):
        result = run_nets(cg.FedAvg(rounds=1, start=zeros()))
    assert result.refusals["code"].tolist() == ["bad-reply"]
    local = [step(zeros(), gradient(zeros(), X, y), 0.1) for X, y in PARTS[:2]]
    close(weights(result.global_model), mean(local, [30, 40]))


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0}, {"local_epochs": 0}, {"local_steps": 0}, {"participation": 0}, {"participation": "0.5"},
        {"participation": None}, {"weighting": "size"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.FedAvg(**settings)


# Where it starts


def test_it_starts_from_another_runs_global_model():
    before = run_nets(cg.FedAvg(rounds=2))
    run_nets(cg.FedAvg(rounds=1, start=before.global_model), recorders())
    assert same(SEEN["a"][0]["before"], weights(before.global_model))
    again = cg.FedAvg(rounds=1, start=weights(before.global_model))
    assert again == cg.FedAvg(rounds=1, start=before.global_model)
    assert again == cg.FedAvg(rounds=1, start=before.global_model.estimator)
    assert again != cg.FedAvg(rounds=1, start=zeros())
    assert "start=<weights " in repr(again)


def test_a_start_may_name_some_of_the_weights_only():
    bias = np.arange(CLASSES, dtype=np.float32)
    run_nets(cg.FedAvg(rounds=1, start={"1.bias": bias}), recorders())
    np.testing.assert_array_equal(SEEN["a"][0]["before"]["1.bias"], bias)
    assert SEEN["a"][0]["before"]["1.weight"].std() > 0


def test_a_start_may_be_a_file_of_arrays(tmp_path):
    file = tmp_path / "start.npz"
    np.savez(file, **{"1.bias": np.arange(10, dtype=np.float32)})
    assert cg.FedAvg(start=str(file)).start == cg.FedAvg(start={"1.bias": np.arange(10)}).start
    (tmp_path / "words.npz").write_text("no weights")
    np.save(tmp_path / "lone.npy", np.zeros(3))
    for name in ("none.npz", "words.npz", "lone.npy"):
        with pytest.raises(ConfigError, match=f"start names .*{name}, which is no .npz file"):
            cg.FedAvg(start=tmp_path / name)


def test_a_start_of_another_net_is_an_error():
    with pytest.raises(ConfigError, match="start"):
        run_nets(cg.FedAvg(rounds=1, start={"1.bias": np.zeros(3)}))
    with pytest.raises(ConfigError, match="no weights to start from"):
        cg.FedAvg(start=cg.run(cg.Local(), sites=sites_of(PARTS, DecisionTreeClassifier())).models["a"])


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (3, "start must be a fitted model"), (cg.TorchClassifier, "start must be a fitted model"),
        (cg.TorchClassifier("linear"), "start must be a fitted model"), ({}, "start has no weights"),
        ([], "start is an empty list"), ([{}], "start has no weights"), ({"1.bias": "x"}, "start has .* not numeric"),
        ({"1.bias": None}, "start has .* NaN or infinite"), ({"1.bias": [np.nan]}, "start has .* NaN or infinite"),
        ({"1.bias": [1e300]}, "start has .* infinite"),
    ],
)  # fmt: skip
def test_a_start_without_usable_weights_is_an_error_at_once(start, why):
    with pytest.raises(ConfigError, match=why):
        cg.FedAvg(start=start)


def test_a_start_of_other_classes_is_an_error_that_names_both():
    letters = cg.TorchClassifier("linear").initialize(TEST[0], list("abcdefghij"))
    with pytest.raises(ConfigError, match=r"classes 'a', 'b'.* this study has 0, 1"):
        run_nets(cg.FedAvg(rounds=1, start=letters))
    assert run_nets(cg.FedAvg(rounds=1, start=letters.get_weights())).refusals.empty
    digits = cg.TorchClassifier("linear").initialize(TEST[0], range(10))
    assert run_nets(cg.FedAvg(rounds=1, start=[digits])).refusals.empty


def test_an_average_does_not_depend_on_who_answers_first():
    parts = {p: Weights({"w": np.float32([i + 0.1])}, i + 1) for i, p in enumerate("abc")}
    assert list(averaging.shares(parts, "samples").values()) == [1.0, 2.0, 3.0]
    assert list(averaging.shares(parts, "equal").values()) == [1.0, 1.0, 1.0]
