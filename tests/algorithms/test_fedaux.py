"""FedAUX: pre-trained features, private certainty scores, and distillation that they weight."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from tests.algorithms.nets import (
    PARTS,
    PUBLIC,
    SEEN,
    TEST,
    Diverging,
    RecordingNet,
    close,
    digits,
    mean,
    same,
    sites_of,
    weights,
)
from torch import nn

import collegium as cg
from collegium.algorithms import fedaux
from collegium.algorithms._certainty import XI, certainty, likeness, noisy_separator, sensitivity
from collegium.algorithms.fedaux import FedAUX
from collegium.errors import ConfigError, QuorumLost, SiteError
from collegium.learners.simclr import SimCLR
from collegium.learners.torch.classifier import TorchClassifier
from collegium.privacy.composition import gaussian_sigma

SIZES = [len(y) for _, y in PARTS]
TAUGHT: list[dict] = []
SCORES: list[dict] = []
ASKED: list[dict] = []
FREE = {"epsilon": 1e4, "ridge": 1e-2}
"""Hardly any noise, and scores that differ."""


@pytest.fixture(autouse=True)
def _record(monkeypatch) -> None:
    for seen in (SEEN, TAUGHT, SCORES, ASKED):
        seen.clear()
    distill = TorchClassifier.distill

    def taught(self, X, targets, **options):
        student = self.get_weights()
        distill(self, X, targets, **options)
        TAUGHT.append({"X": X, "targets": targets, "student": student, "learned": self.get_weights(), **options})
        return self

    def scored(w, features):
        SCORES.append({"w": w, "features": features, "s": certainty(w, features)})
        return SCORES[-1]["s"]

    def asked(site, negatives, bound, *settings):
        ASKED.append({"site": site.name, "negatives": negatives, "bound": bound})
        return noisy_separator(site, negatives, bound, *settings)

    monkeypatch.setattr(TorchClassifier, "distill", taught)
    monkeypatch.setattr(fedaux, "certainty", scored)
    monkeypatch.setattr(fedaux, "noisy_separator", asked)


def run(algorithm, learner=None, sites=None, **options):
    options = {"public": PUBLIC, "test": TEST} | options
    learner = learner or (lambda name: RecordingNet("mlp", site=name))
    return cg.run(algorithm, sites=sites or sites_of(PARTS, learner), **options)


def embedding(w, X):
    if w["1.bias"].shape == (10,):
        return X
    h = np.maximum(X @ w["1.weight"].T + w["1.bias"], 0)
    return np.maximum(h @ w["3.weight"].T + w["3.bias"], 0)


def logits(w, X):
    head = "1" if w["1.bias"].shape == (10,) else "5"
    return embedding(w, X) @ w[f"{head}.weight"].T + w[f"{head}.bias"]


def weighted(after, scores, X):
    total = sum(s[:, None] * logits(w, X) for s, w in zip(scores, after, strict=True))
    return softmax(total / sum(scores)[:, None], axis=1)


# Preparation


def test_negatives_and_distillation_rows_are_disjoint_and_all_of_the_public_set():
    run(FedAUX(rounds=1, participation=1.0))
    negatives = ASKED[0]["negatives"]
    assert all(np.array_equal(each["negatives"], negatives) for each in ASKED)
    assert len(negatives) == 24
    rest = np.setdiff1d(np.arange(120), negatives)
    np.testing.assert_array_equal(TAUGHT[0]["X"], PUBLIC[rest])


@pytest.mark.parametrize("quantile", [1.0, 0.1])
def test_scores_are_of_the_start_and_bounded_by_public_norms(quantile):
    run(FedAUX(rounds=2, participation=1.0, norm_quantile=quantile, **FREE))
    start = SEEN["a"][0]["before"]
    h = embedding(start, PUBLIC)
    norms = np.linalg.norm(h, axis=1)
    R = np.quantile(norms, quantile)
    h = h * np.minimum(1, R / norms)[:, None]
    assert [each["bound"] for each in ASKED] == pytest.approx([R] * 3, rel=1e-5)
    rest = np.setdiff1d(np.arange(120), ASKED[0]["negatives"])
    assert len(SCORES) == 3  # once per site, for all rounds
    for each in SCORES:
        np.testing.assert_allclose(each["features"], h[rest] / R, atol=1e-5)
        np.testing.assert_allclose(each["s"], expit(h[rest] / R @ each["w"]) + XI, atol=1e-3)
    assert not same(start, SEEN["a"][1]["before"])


def test_every_kind_of_net_is_pretrained_on_all_public_rows():
    calls = []

    class Halve:
        def pretrain(self, net, X):
            calls.append((net.net, X))
            return {name: value / 2 for name, value in net.get_weights("features").items()}

    def learner(name):
        return RecordingNet("mlp" if name == "b" else narrow, site=name, random_state=0)

    run(FedAUX(rounds=1, participation=1.0, pretrain=Halve()), learner)
    assert [net for net, _ in calls] == [narrow, "mlp"]
    assert all(np.array_equal(X, PUBLIC) for _, X in calls)
    first = TorchClassifier("mlp", random_state=0).initialize(PUBLIC, np.arange(10)).get_weights()
    before = SEEN["b"][0]["before"]
    close(before, {name: value if name.startswith("5.") else value / 2 for name, value in first.items()})


def narrow(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes))


def images(shape, n_classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, n_classes))


def test_simclr_pretrains_images():
    parts = [(X.reshape(-1, 1, 8, 8), y) for X, y in PARTS]
    net = cg.TorchClassifier(images, batch_size=16)
    simclr = SimCLR(epochs=1, batch_size=32, device="cpu", progress=False)
    public = PUBLIC.reshape(-1, 1, 8, 8)
    result = run(FedAUX(rounds=1, pretrain=simclr), public=public, test=None, sites=sites_of(parts, lambda n: net))
    assert result.refusals.empty
    assert {"seconds_pretrain", "seconds_scores"} <= set(result.costs.columns)


def test_weights_that_are_pretrained_already_are_a_start():
    h_0 = {"1.bias": np.ones(512, np.float32)}
    algorithm = FedAUX(rounds=1, pretrain=h_0)
    assert algorithm == FedAUX(rounds=1, start=h_0)
    run(algorithm)
    assert all((SEEN[site][0]["before"]["1.bias"] == 1).all() for site in SEEN)


def test_a_run_that_goes_on_scores_by_what_was_pretrained():
    def scores_and_start(**weights):
        SCORES.clear(), SEEN.clear()
        run(FedAUX(rounds=1, participation=1.0, **FREE, **weights))
        return np.stack([each["s"] for each in SCORES]), SEEN["a"][0]["before"]["1.bias"]

    h_0, later = ({"1.bias": np.full(512, value, np.float32)} for value in (0.0, 0.5))
    scores, _ = scores_and_start(pretrain=h_0)
    going_on, start = scores_and_start(pretrain=h_0, start=later)
    np.testing.assert_array_equal(going_on, scores)
    assert (start == 0.5).all()
    assert not np.allclose(scores_and_start(start=later)[0], scores)


def test_a_pretraining_may_be_given_by_name_but_not_as_a_class():
    assert FedAUX(pretrain="simclr") == FedAUX(pretrain=SimCLR())
    with pytest.raises(ConfigError, match=r"FedAUX: pretrain.*Did you mean 'simclr'"):
        FedAUX(pretrain="simclrr")
    with pytest.raises(ConfigError, match=r"FedAUX: pretrain is a class: pass an instance, such as SimCLR\(\)"):
        FedAUX(pretrain=SimCLR)


def test_a_pretraining_that_gives_another_net_is_an_error():
    class Other:
        def pretrain(self, net, X):
            return {"elsewhere": np.zeros(3, np.float32)}

    with pytest.raises(ConfigError, match="a net that no site has"):
        run(FedAUX(rounds=1, pretrain=Other()))


# Training


def test_the_average_is_distilled_from_the_logits_weighted_by_scores_row_by_row():
    result = run(FedAUX(rounds=2, participation=1.0, distill_lr=1e-3, distill_epochs=2, **FREE))
    scores = [each["s"] for each in SCORES]
    assert np.std(scores, axis=0).mean() > 0.01
    for t, taught in enumerate(TAUGHT):
        after = [SEEN[site][t]["after"] for site in "abc"]
        close(taught["student"], mean(after, SIZES))
        np.testing.assert_allclose(taught["targets"], weighted(after, scores, taught["X"]), atol=1e-5)
        options = {name: taught[name] for name in ("epochs", "lr", "batch_size", "train")}
        assert options == {"epochs": 2, "lr": 1e-3, "batch_size": 128, "train": "all"}
    assert same(SEEN["b"][1]["before"], TAUGHT[0]["learned"])
    assert same(weights(result.global_model), TAUGHT[1]["learned"])
    assert same(weights(result.models["c"]), TAUGHT[1]["learned"])


def test_distillation_has_the_papers_settings_and_a_share_of_the_sites_trains():
    run(FedAUX(rounds=3))
    assert [sum(len(SEEN[site]) for site in SEEN), len(SCORES)] == [3, 3]  # .4 of 3 sites is one; all are scored
    assert [(each["lr"], each["batch_size"], each["epochs"]) for each in TAUGHT] == [(5e-5, 128, 1)] * 3


def test_sites_with_different_nets_have_scores_of_their_own_features():
    def learner(name):
        return RecordingNet("mlp" if name == "b" else "linear", site=name)

    result = run(FedAUX(rounds=2, participation=1.0, **FREE), learner)
    assert [len(each["w"]) for each in SCORES] == [64, 512, 64]
    scores = [each["s"] for each in SCORES]
    for t in (0, 1):
        after = {site: SEEN[site][t]["after"] for site in "abc"}
        for taught in TAUGHT[2 * t : 2 * t + 2]:
            expected = weighted(after.values(), scores, taught["X"])
            np.testing.assert_allclose(taught["targets"], expected, atol=1e-4)
        close(TAUGHT[2 * t]["student"], mean([after["a"], after["c"]], [SIZES[0], SIZES[2]]))
        assert same(TAUGHT[2 * t + 1]["student"], after["b"])
    assert list(result.global_models) == ["a", "b"]
    assert same(weights(result.models["b"]), weights(result.global_models["b"]))


@pytest.mark.parametrize("method", [FedAUX, cg.FedDF, cg.FedBE])
def test_optimizers_may_live_on_at_sites_and_coordinator(method):
    def learned(optimizer, rounds=2):
        net = TorchClassifier("linear", optimizer="adam", lr=1e-2, batch_size=16)
        settings = {"rounds": rounds, "participation": 1.0, "optimizer": optimizer, "distill_lr": 1e-2}
        result = run(method(**settings), net)
        return result.global_model.estimator._training, result.models["a"].estimator._training

    (new, at_new), (kept, at_kept), (once, at_once) = learned("new"), learned("kept"), learned("kept", rounds=1)
    assert not same(new.get_weights("all"), kept.get_weights("all"))
    assert (at_new.taken, at_kept.taken) == (at_once.taken, 2 * at_once.taken)
    steps = [{float(each["step"]) for each in net._distiller.state.values()} for net in (kept, once)]
    assert steps[0] == {2 * step for step in steps[1]}
    assert new._distiller is None


@pytest.mark.parametrize("method", [FedAUX, cg.FedDF])
def test_teachers_may_label_public_batches_with_the_statistics_of_those(method):
    learner = TorchClassifier(normed, optimizer="sgd", lr=0.1, batch_size=16, random_state=0)

    def targets(teacher_norm, **settings):
        TAUGHT.clear()
        settings = {"distill_batch": 30} | settings
        run(method(rounds=1, participation=1.0, teacher_norm=teacher_norm, **settings), learner)
        return TAUGHT[0]["targets"]

    running, batch = targets("running"), targets("public batch")
    np.testing.assert_array_equal(batch, targets("public batch"))
    assert np.abs(running - batch).max() > 1e-3
    larger = targets("public batch", teacher_batch=60)
    assert np.abs(larger - batch).max() > 1e-3
    np.testing.assert_array_equal(larger, targets("public batch", distill_batch=60))
    some, all_of_them = targets("public rows", teacher_batch=20), targets("public rows")
    assert np.abs(some - all_of_them).max() > 1e-3 < np.abs(all_of_them - running).max()


def normed(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, n_classes))


def test_linear_evaluation_trains_the_head_only():
    result = run(FedAUX(rounds=2, participation=1.0, mode="head", distill_lr=1e-2))
    start, end = SEEN["a"][0]["before"], weights(result.global_model)
    for name in start:
        assert np.array_equal(start[name], end[name]) == (not name.startswith("5.")), name
    assert TAUGHT[0]["train"] == "head"


WIDE, WIDE_PUBLIC, WIDE_TRUTH, _ = digits((200, 200, 200), public=1000, test=10)
KNOWN = ((0, 1, 2, 3), (4, 5, 6), (7, 8, 9))


def teach(algorithm) -> float:
    """How often the targets are right, for sites that know different digits."""
    X, y = np.concatenate([X for X, _ in WIDE]), np.concatenate([y for _, y in WIDE])
    parts = [(X[np.isin(y, few)], y[np.isin(y, few)]) for few in KNOWN]
    net = cg.TorchClassifier("linear", lr=0.01, batch_size=16, random_state=0)
    run(algorithm, sites=sites_of(parts, lambda name: net), public=WIDE_PUBLIC, test=None)
    truth = dict(zip([row.tobytes() for row in WIDE_PUBLIC], WIDE_TRUTH, strict=True))
    TAUGHT[-1]["truth"] = np.array([truth[row.tobytes()] for row in TAUGHT[-1]["X"]])
    return float(np.mean(TAUGHT[-1]["targets"].argmax(axis=1) == TAUGHT[-1]["truth"]))


def test_certain_sites_teach_better_in_one_round_unless_noise_drowns_the_scores():
    equal = teach(cg.FedDF(rounds=1, local_epochs=20))
    one_shot = {"rounds": 1, "participation": 1.0, "local_epochs": 20}
    certain = teach(FedAUX(**one_shot, epsilon=30.0, ridge=1e-2))
    own = np.array([np.isin(TAUGHT[-1]["truth"], few) for few in KNOWN])
    scores = np.array([each["s"] for each in SCORES])
    assert scores[own].mean() > 1.2 * scores[~own].mean()
    assert certain > equal + 0.05
    assert teach(FedAUX(**one_shot, epsilon=0.1, ridge=1e-2)) < equal


# Privacy


def test_the_claim_is_for_the_scores_and_says_that_weights_are_unprotected(tmp_path):
    result = run(FedAUX(rounds=2, participation=1.0, epsilon=0.5, delta=1e-6), out=tmp_path / "run")
    table = result.privacy
    assert table["party"].tolist() == ["a", "a", "b", "b", "c", "c"]
    scores, rest = table[table["kind"] == "dp"], table[table["kind"] == "unprotected"]
    assert scores["epsilon"].tolist() == pytest.approx([0.5] * 3, rel=1e-9)
    assert set(scores["delta"]) == {1e-6}
    assert set(zip(scores["unit"], scores["relation"], scores["rounds"], strict=True)) == {("record", "replace", 1)}
    assert set(scores["covers"]) == {"1 x Numbers"}
    assert all("not cover 2 x Weights" in words and "simulated noise" in words for words in scores["assumptions"])
    assert set(rest["covers"]) == {"2 x Weights"}
    noise = result.metrics.query("metric == 'score_noise'")
    expected = [gaussian_sigma(0.5, 1e-6, sensitivity(n, 24, 0.1)) for n in SIZES]
    assert sorted(noise["value"]) == pytest.approx(sorted(expected))
    first = result.releases.groupby("party").first()
    assert set(first["kind"]) == {"Numbers"}
    assert first["protected"].all()
    assert not result.releases.query("kind == 'Weights'")["protected"].any()


def test_with_the_sum_of_the_losses_nothing_is_claimed():
    result = run(FedAUX(rounds=1, participation=1.0, score_loss="sum"))
    assert set(result.privacy["kind"]) == {"unprotected"}
    assert not result.releases["protected"].any()
    wary = [cg.Site(s.name, s.X, s.y, learner=s.learner, policy=cg.Policy(unprotected=["Weights"]))
            for s in sites_of(PARTS, RecordingNet("mlp"))]  # fmt: skip
    with pytest.raises(QuorumLost):
        run(FedAUX(rounds=1, participation=1.0, score_loss="sum"), sites=wary)
    assert len(run(FedAUX(rounds=1, participation=1.0), sites=wary).releases) > 0


def test_means_are_told_with_their_claim_and_weigh_what_sites_say(monkeypatch):
    seen = []

    def recorded(mean, features, bound):
        seen.append(likeness(mean, features, bound))
        return seen[-1]

    monkeypatch.setattr(fedaux, "likeness", recorded)
    result = run(FedAUX(rounds=1, participation=1.0, scorer="mean", components=5, epsilon=0.5, delta=1e-6))
    assert not ASKED
    assert not SCORES
    dp = result.privacy[result.privacy["kind"] == "dp"]
    assert dp["epsilon"].tolist() == pytest.approx([0.5] * 3, rel=1e-9)
    noise = result.metrics.query("metric == 'score_noise'")["value"]
    assert sorted(noise) == pytest.approx(sorted(gaussian_sigma(0.5, 1e-6, 2 / n) for n in SIZES))
    after = [SEEN[name][0]["after"] for name in "abc"]
    np.testing.assert_allclose(TAUGHT[0]["targets"], weighted(after, seen, TAUGHT[0]["X"]), atol=1e-5)
    assert FedAUX(scorer="mean", epsilon=0.3).fixed(0) == {"fedaux.tell_mean": {"epsilon": 0.3, "delta": 1e-5}}


@pytest.mark.parametrize("method", [FedAUX, cg.FedDF, cg.FedBE])
def test_the_common_model_is_the_mean_of_the_last_rounds_and_training_goes_on_from_the_last(method):
    result = run(method(rounds=3, participation=1.0, averaged_rounds=2))
    learned = [each["learned"] for each in TAUGHT]
    if method is not cg.FedBE:  # which distills in several parts
        expected = {name: (learned[1][name] + learned[2][name]) / 2 for name in learned[1]}
        for name, value in result.global_model.estimator.get_weights().items():
            np.testing.assert_allclose(value, expected[name], atol=1e-6)
        for name, value in SEEN["a"][2]["before"].items():
            np.testing.assert_array_equal(value, learned[1][name])
    plain = run(method(rounds=3, participation=1.0)).global_model.estimator.get_weights()
    assert any(not np.array_equal(plain[name], value) for name, value in
               result.global_model.estimator.get_weights().items())  # fmt: skip


def test_a_site_that_is_never_drawn_has_told_nothing_but_its_scores():
    result = run(FedAUX(rounds=1))
    kinds = result.privacy.groupby("party")["kind"].apply(list)
    drawn = next(iter(SEEN))
    assert kinds[drawn] == ["dp", "unprotected"]
    assert all(kinds[site] == ["dp"] for site in "abc" if site != drawn)


def test_noise_follows_the_seed_and_grows_with_less_epsilon():
    def separators(**settings):
        SCORES.clear()
        run(FedAUX(rounds=1, **settings), lambda name: RecordingNet("linear", site=name))
        return np.stack([each["w"] for each in SCORES])

    little, much = separators(epsilon=1.0), separators(epsilon=0.1)
    assert np.array_equal(much, separators(epsilon=0.1))
    assert np.std(much) > 5 * np.std(little)


def test_a_site_that_wants_privacy_for_all_that_it_sends_does_not_take_part():
    sites = [cg.Site(s.name, s.X, s.y, learner=s.learner, policy=cg.Policy(requires="dp")) for s in two_sites()]
    with pytest.raises(SiteError, match="requires differential privacy"):
        run(FedAUX(rounds=1), sites=sites)


def two_sites():
    return sites_of(PARTS[:2], lambda name: RecordingNet("linear", site=name))


def test_a_budget_pays_for_the_scores_and_ends_them(tmp_path):
    def sites(policy):
        return [
            cg.Site(
                *(s.name, s.X, s.y, s.learner, policy), budget=cg.Budget(0.12, 1e-5, ledger=tmp_path / f"{s.name}.db")
            )
            for s in two_sites()
        ]

    result = run(FedAUX(rounds=1), sites=sites(cg.Policy(unprotected=("Weights",))))
    assert result.privacy.query("kind == 'dp'")["epsilon"].tolist() == pytest.approx([0.1, 0.1], rel=1e-6)
    with pytest.raises(QuorumLost, match="a: budget-exhausted, b: budget-exhausted"):
        run(FedAUX(rounds=1), sites=sites(cg.Policy(unprotected=("Weights",))))


def test_a_budget_alone_lets_no_weights_out(tmp_path):
    sites = [
        cg.Site(s.name, s.X, s.y, s.learner, budget=cg.Budget(1.0, 1e-5, ledger=tmp_path / f"{s.name}.db"))
        for s in two_sites()
    ]
    with pytest.raises(QuorumLost, match="unprotected"):
        run(FedAUX(rounds=1, participation=1.0), sites=sites)


# Sites that fail, and settings


def test_a_site_without_a_score_teaches_almost_nothing():
    policy = cg.Policy(steps=("fedavg.*", "averaging.*"))
    sites = sites_of(PARTS, lambda name: RecordingNet("mlp", site=name))
    sites[1] = cg.Site("b", sites[1].X, sites[1].y, learner=sites[1].learner, policy=policy)
    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(FedAUX(rounds=1, participation=1.0, **FREE), sites=sites)
    assert result.refusals[["party", "step", "code"]].to_numpy().tolist() == [["b", "fedaux.score", "step-denied"]]
    after = [SEEN[site][0]["after"] for site in "ac"]
    expected = weighted(after, [each["s"] for each in SCORES], TAUGHT[0]["X"])
    np.testing.assert_allclose(TAUGHT[0]["targets"], expected, atol=1e-5)
    close(TAUGHT[0]["student"], mean([SEEN[site][0]["after"] for site in "abc"], SIZES))


def test_a_score_of_another_net_is_refused(monkeypatch):
    def odd(site, *settings):
        return np.zeros(3) if site.name == "a" else noisy_separator(site, *settings)

    monkeypatch.setattr(fedaux, "noisy_separator", odd)
    with pytest.warns(cg.CollegiumWarning, match="'a'"):
        result = run(FedAUX(rounds=1, participation=1.0))
    assert result.refusals[["party", "step", "code"]].to_numpy().tolist() == [["a", "fedaux.score", "bad-reply"]]
    assert len(SCORES) == 2


def test_a_site_that_diverges_teaches_nobody():
    def learner(name):
        return (Diverging if name == "b" else RecordingNet)("mlp", site=name)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(FedAUX(rounds=1, participation=1.0, **FREE), learner)
    assert result.refusals["code"].tolist() == ["diverged"]
    after = [SEEN[site][0]["after"] for site in "ac"]
    expected = weighted(after, [SCORES[0]["s"], SCORES[2]["s"]], TAUGHT[0]["X"])
    np.testing.assert_allclose(TAUGHT[0]["targets"], expected, atol=1e-5)


def test_a_net_that_says_no_numbers_is_left_out_of_the_round_and_reported():
    def learner(name):
        return RecordingNet("mlp", site=name, lr=1e30 if name == "b" else 0.1)

    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(FedAUX(rounds=1, participation=1.0, **FREE), learner)
    assert result.refusals[["party", "step", "code"]].to_numpy().tolist() == [["b", "fedavg.update", "diverged"]]
    after = [SEEN[site][0]["after"] for site in "ac"]
    expected = weighted(after, [SCORES[0]["s"], SCORES[2]["s"]], TAUGHT[0]["X"])
    np.testing.assert_allclose(TAUGHT[0]["targets"], expected, atol=1e-5)
    close(TAUGHT[0]["student"], mean(after, [SIZES[0], SIZES[2]]))


def test_a_round_without_a_sound_net_changes_nothing():
    with pytest.warns(cg.CollegiumWarning):
        result = run(FedAUX(rounds=1, participation=1.0), lambda name: RecordingNet("mlp", site=name, lr=1e30))
    assert len(result.refusals) == 3
    assert not TAUGHT
    assert same(weights(result.global_model), SEEN["a"][0]["before"])


@pytest.mark.parametrize(("rows", "share"), [(5, 0.2), (120, 0.001), (120, 0.999), (3, 0.5)])
def test_a_public_set_that_is_too_small_is_an_error_before_anything_is_trained(rows, share):
    with pytest.raises(ConfigError, match="too small"):
        run(FedAUX(rounds=1, negatives=share), public=PUBLIC[:rows])
    assert not SEEN


def test_features_that_are_all_zero_are_an_error():
    silent = {"3.weight": np.zeros((512, 512), np.float32), "3.bias": np.zeros(512, np.float32)}
    with pytest.raises(ConfigError, match="features of the net of site 'a' are all 0"):
        run(FedAUX(rounds=1, start=silent))


def test_it_needs_a_public_set_and_a_learner_with_features():
    with pytest.raises(ConfigError, match="public"):
        run(FedAUX(rounds=1), public=None)
    with pytest.raises(SiteError, match="averages weights"):
        run(FedAUX(rounds=1), LogisticRegression())

    class Blind(RecordingNet):
        @property
        def embed(self):
            raise AttributeError("embed")

    with pytest.raises(SiteError, match=r"scores rows .* 'embed'"):
        run(FedAUX(rounds=1), lambda name: Blind("mlp", site=name))


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0}, {"epsilon": -1.0}, {"delta": 0}, {"delta": 1}, {"ridge": 0}, {"ridge": -0.1}, {"negatives": 0},
        {"negatives": 1}, {"negatives": 1.2}, {"mode": "tail"}, {"rounds": 0}, {"participation": 0}, {"distill_lr": 0},
        {"norm_quantile": "a"}, {"norm_quantile": 1.1}, {"norm_quantile": -0.1}, {"norm_quantile": None},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        FedAUX(**settings)
