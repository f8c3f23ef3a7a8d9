"""FedCT: who trains on what and when, who speaks and when it stops, and that it helps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.tree import DecisionTreeClassifier
from tests.algorithms.recorder import FITTED, LOCK, Recorder, recorders
from tests.core.exchanges import last_comes_first

import collegium as cg
from collegium.core import Labels
from collegium.errors import ConfigError
from collegium.learners.torch.classifier import TorchClassifier
from collegium.privacy.budget import read_charges

CALLS: dict[str, list[dict[str, Any]]] = defaultdict(list)


class RecordingNet(TorchClassifier):
    """Keeps how its `update` was called."""

    def update(self, X, y, **options):
        with LOCK:
            CALLS["update"].append({"rows": len(X), "model": id(self), **options})
        return super().update(X, y, **options)


class RecordingSGD(SGDClassifier):
    """Keeps how it was trained."""

    def fit(self, X, y):
        with LOCK:
            CALLS["fit"].append({"rows": len(X)})
        return super().fit(X, y)

    def partial_fit(self, X, y, classes=None):
        with LOCK:
            CALLS["partial_fit"].append({"rows": len(X), "model": id(self), "classes": list(classes)})
        return super().partial_fit(X, y, classes=classes)


@pytest.fixture(autouse=True)
def _forget() -> None:
    CALLS.clear()


def rows_seen(site: str) -> list[int]:
    return [len(y) for _, y in FITTED[site]]


# What a site trains on


def test_without_a_period_every_round_after_the_first_has_pseudo_labels(cancer) -> None:
    cancer.run(cg.FedCT(rounds=3), sites=recorders(cancer), global_learner=DecisionTreeClassifier())
    for name, (_, y) in zip(cancer.split.names, cancer.split.sites, strict=True):
        assert rows_seen(name) == [len(y), len(y) + 370, len(y) + 370]


def test_with_a_period_pseudo_labels_are_used_from_the_round_after_each_communication(cancer) -> None:
    sites = recorders(cancer)
    run = cancer.run(cg.FedCT(rounds=8, period=3), sites=sites, global_learner=DecisionTreeClassifier())
    assert set(FITTED) == {site.name for site in sites}
    for site in sites:
        n = len(site)
        assert rows_seen(site.name) == [n, n, n, *[n + 370] * 5]
        for X, y in FITTED[site.name]:
            np.testing.assert_array_equal(X[:n], site.X)
            np.testing.assert_array_equal(y[:n], site.y)
            if len(y) > n:
                np.testing.assert_array_equal(X[n:], cancer.split.public)
        last = FITTED[site.name][-1][1][n:]  # rounds 6 and 7 learn from the consensus of round 5, the last one
        np.testing.assert_array_equal(last, run.classes[run.labels.codes])
        np.testing.assert_array_equal(FITTED[site.name][-2][1][n:], last)


def test_samples_without_a_qualified_majority_are_left_out_of_training(cancer) -> None:
    rule = cg.QualifiedMajority(1.0)
    sites = recorders(cancer)
    run = cancer.run(cg.FedCT(rounds=2, consensus=rule), sites=sites)
    first = cancer.run(cg.FedCT(rounds=1, consensus=rule), sites=recorders(cancer)).labels
    assert 0.2 < first.coverage < 0.9
    for site in sites:
        X, y = FITTED[site.name][1]
        assert len(y) == len(site) + first.known.sum()
        np.testing.assert_array_equal(X[len(site) :], cancer.split.public[first.known])
        np.testing.assert_array_equal(y[len(site) :], run.classes[first.codes[first.known]])


def test_where_nothing_reaches_the_quorum_sites_go_on_alone() -> None:
    X = np.arange(20.0)[:, None]
    sites = [cg.Site(c, X, [c] * 10 + ["z"] * 10, learner=Recorder(c)) for c in ("a", "b")]
    with pytest.warns(cg.CollegiumWarning, match="No global model: no public sample has a label"):
        run = cg.run(cg.FedCT(rounds=3, consensus=cg.QualifiedMajority(1.0)), sites=sites, public=X[:5])
    assert rows_seen("a") == rows_seen("b") == [20, 20, 20]
    assert not run.labels.known.any()


def test_a_site_that_lacks_a_class_learns_it_from_the_consensus(digits) -> None:
    X, y = digits.split.sites[0]
    sites = digits.sites(DecisionTreeClassifier(random_state=0))
    sites[0] = cg.Site("site0", X[y < 5], y[y < 5], learner=DecisionTreeClassifier(random_state=0))
    alone = digits.run(cg.FedCT(rounds=1), sites=sites).models["site0"].predict(digits.split.test[0])
    taught = digits.run(cg.FedCT(rounds=2), sites=sites).models["site0"].predict(digits.split.test[0])
    high = digits.split.test[1] >= 5
    assert not (alone >= 5).any()
    assert np.mean(taught[high] == digits.split.test[1][high]) > 0.5


def test_the_global_model_is_fitted_on_the_public_set_and_the_final_labels_only(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=3), sites=recorders(cancer), global_learner=Recorder("global"))
    ((X, y),) = FITTED["global"]
    np.testing.assert_array_equal(X, cancer.split.public)
    np.testing.assert_array_equal(y, run.classes[run.labels.codes])
    expected = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y).predict(cancer.split.test[0])
    np.testing.assert_array_equal(run.global_model.predict(cancer.split.test[0]), expected)


def test_the_global_model_leaves_unlabeled_samples_out(cancer) -> None:
    algorithm = cg.FedCT(rounds=1, consensus=cg.QualifiedMajority(1.0))
    run = cancer.run(algorithm, sites=recorders(cancer), global_learner=Recorder("global"))
    ((X, y),) = FITTED["global"]
    np.testing.assert_array_equal(X, cancer.split.public[run.labels.known])
    np.testing.assert_array_equal(y, run.classes[run.labels.codes[run.labels.known]])


# The size of a local update


@pytest.mark.parametrize(("epochs", "steps"), [(None, 3), (2, None), (None, None)])
def test_epochs_and_steps_reach_a_net_that_goes_on_with_pseudo_labels(cancer, epochs, steps) -> None:
    net = RecordingNet("linear", epochs=1, batch_size=16)
    algorithm = cg.FedCT(rounds=4, period=2, epochs=epochs, steps=steps)
    run = cancer.run(algorithm, net, global_learner=DecisionTreeClassifier())
    calls = CALLS["update"]
    assert len(calls) == 5 * 4
    assert {(call["epochs"], call["steps"]) for call in calls} == {(epochs, steps)}
    assert len({call["model"] for call in calls}) == 5  # one net per site, which goes on
    assert [call["rows"] for call in calls if call["pseudo"] is None] == [17, 17] * 5
    assert [len(call["pseudo"][1]) for call in calls if call["pseudo"] is not None] == [370] * 10
    assert all(list(call["classes"]) == ["benign", "malignant"] for call in calls)
    assert set(run.models) == {f"site{i}" for i in range(5)}


def test_steps_are_single_partial_fits_of_an_sgd_classifier(cancer) -> None:
    cancer.run(cg.FedCT(rounds=3, steps=2), RecordingSGD(), global_learner=DecisionTreeClassifier())
    assert not CALLS["fit"]
    calls = CALLS["partial_fit"]
    assert len(calls) == 5 * 3 * 2
    assert {call["rows"] for call in calls} == {17, 128}  # all of a small site, then a batch of both
    assert len({call["model"] for call in calls}) == 5
    assert all(call["classes"] == ["benign", "malignant"] for call in calls)


def test_epochs_are_sweeps_over_all_rows_of_an_sgd_classifier(cancer) -> None:
    cancer.run(cg.FedCT(rounds=2, epochs=3), RecordingSGD(), global_learner=DecisionTreeClassifier())
    assert [call["rows"] for call in CALLS["partial_fit"]].count(17) == 5 * 3
    assert [call["rows"] for call in CALLS["partial_fit"]].count(17 + 370) == 5 * 3


def test_without_either_an_sgd_classifier_is_fitted_as_it_fits_itself(cancer) -> None:
    cancer.run(cg.FedCT(rounds=2), RecordingSGD(), global_learner=DecisionTreeClassifier())
    assert len(CALLS["fit"]) == 10
    assert not CALLS["partial_fit"]


# Who speaks, and when


@pytest.mark.parametrize(("rounds", "period"), [(4, 1), (6, 2), (7, 3), (5, 5)])
def test_a_site_releases_once_per_communication(cancer, rounds: int, period: int) -> None:
    run = cancer.run(cg.FedCT(rounds=rounds, period=period))
    assert run.releases.groupby("party").size().to_dict() == {f"site{i}": rounds // period for i in range(5)}
    assert sorted(set(run.releases["round"])) == list(range(period - 1, rounds, period))
    assert set(run.releases["kind"]) == {"HardLabels"}


def test_only_the_sampled_sites_train_and_speak_and_a_sample_lasts_for_a_period(cancer) -> None:
    algorithm = cg.FedCT(rounds=12, period=2, participation=0.4)
    run = cancer.run(algorithm, sites=recorders(cancer), global_learner=DecisionTreeClassifier())
    speakers = run.releases.groupby("round")["party"].apply(frozenset)
    assert list(speakers.index) == [1, 3, 5, 7, 9, 11]
    assert {len(parties) for parties in speakers} == {2}
    assert len(set(speakers)) > 1
    for i in range(5):
        spoke = sum(f"site{i}" in parties for parties in speakers)
        assert len(FITTED[f"site{i}"]) == 2 * spoke


def test_a_site_that_was_not_sampled_hears_the_latest_consensus_when_it_is(cancer) -> None:
    algorithm = cg.FedCT(rounds=8, participation=0.4)
    cancer.run(algorithm, sites=recorders(cancer), global_learner=DecisionTreeClassifier())
    later = [site for site, fits in FITTED.items() if len(fits[0][1]) > 17]
    assert later  # its first training already had pseudo-labels


def test_patience_stops_when_the_labels_no_longer_change(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=50, patience=2), DecisionTreeClassifier(random_state=0))
    changed = run.metrics.query("metric == 'consensus_changed'")["value"].tolist()
    assert len(changed) < 50
    assert changed[-2:] == [0, 0]
    patient = cancer.run(cg.FedCT(rounds=len(changed) + 3), DecisionTreeClassifier(random_state=0))
    assert patient.metrics["round"].max() == len(changed) + 2
    assert patient.labels == run.labels


@dataclass(frozen=True)
class Scripted(cg.Consensus):
    """Says the same of all samples, a class given for each round."""

    script: tuple[int, ...] = ()

    def __call__(self, fed, order, parties=None):
        fed.ask(order, parties)
        return Labels(np.full(len(fed.public), self.script[fed.round]), fed.n_classes)


@pytest.mark.parametrize(
    ("script", "patience", "rounds"),
    [((0, 0, 1, 1, 1, 1), 1, 2), ((0, 0, 1, 1, 1, 1), 2, 5), ((0, 0, 1, 1, 1, 1), None, 6), ((0, 1, 0, 1, 0, 1), 1, 6)],
)
def test_patience_counts_communications_in_a_row(cancer, script, patience, rounds) -> None:
    run = cancer.run(cg.FedCT(rounds=6, consensus=Scripted(script), patience=patience))
    assert run.metrics["round"].max() == rounds - 1
    assert set(run.labels.codes) == {script[rounds - 1]}


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0},
        {"period": 0},
        {"epochs": 0},
        {"steps": 0},
        {"patience": 0},
        {"participation": 0},
        {"participation": 1.1},
        {"participation": float("nan")},
        {"rounds": 4, "period": 5},
    ],
)
def test_settings_that_make_no_sense_are_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(settings)[-1]):
        cg.FedCT(**settings)


def test_it_needs_a_public_set(cancer) -> None:
    with pytest.raises(ConfigError, match="public"):
        cancer.run(cg.FedCT(rounds=1), public=None)


# Does it help?


def test_decision_trees_gain_from_each_other_on_breast_cancer() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    local, shared = [], []
    for seed in range(3):
        split = cg.split(X, y, sites=5, public=370, test=114, seed=seed)
        sites = [cg.Site(f"s{i}", *part, learner=DecisionTreeClassifier()) for i, part in enumerate(split.sites)]
        assert sum(map(len, sites)) == 85
        local.append(cg.run(cg.Local(), sites=sites, test=split.test, seed=seed).accuracy.iloc[-1].mean())
        run = cg.run(cg.FedCT(rounds=5), sites=sites, public=split.public, test=split.test, seed=seed)
        shared.append(run.accuracy.iloc[-1].mean())
    assert np.mean(shared) >= np.mean(local) + 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 2.5},
        {"rounds": None},
        {"rounds": True},
        {"participation": "0.5"},
        {"participation": None},
        {"participation": True},
        {"consensus": "majority"},
        {"consensus": cg.Majority},
        {"voters": cg.Familiar},
        {"voters": 1.0},
    ],
)
def test_settings_of_the_wrong_kind_are_refused_where_they_are_written(settings):
    with pytest.raises(cg.ConfigError, match=next(iter(settings))):
        cg.FedCT(**settings)


def test_an_empty_consensus_is_no_reason_to_stop(digits):
    run = digits.run(
        cg.FedCT(rounds=3, patience=1, consensus=cg.QualifiedMajority(1.0)), DummyClassifier(strategy="uniform")
    )
    assert set(run.metrics["round"]) == {0, 1, 2}


# DP-FedCT: the same algorithm, answered through a mechanism.


@pytest.mark.parametrize(
    "mechanism", [cg.RandomizedResponse(epsilon=8), cg.UnaryEncoding(epsilon=16), cg.XorMechanism(theta=8)]
)
def test_little_noise_leaves_the_consensus_as_it_is(cancer, mechanism) -> None:
    plain, noisy = cancer.run(cg.FedCT(rounds=1)), cancer.run(cg.FedCT(rounds=1, mechanism=mechanism))
    assert np.mean(plain.labels.codes == noisy.labels.codes) > 0.97
    assert set(noisy.releases["kind"]) == {mechanism.gives.kind}


def test_at_the_papers_own_parameters_the_labels_are_coins(digits) -> None:
    truth = digits.split.public_truth
    run = digits.run(cg.FedCT(rounds=1, mechanism=cg.XorMechanism(theta=0.1 / 3000)), public_truth=truth)
    quality = run.metrics.query("metric == 'consensus_quality'")["value"].iloc[-1]
    assert 0.05 < quality < 0.16  # ten classes
    clean = digits.run(cg.FedCT(rounds=1), public_truth=truth).metrics.query("metric == 'consensus_quality'")
    assert clean["value"].iloc[-1] > 0.6


def test_the_three_sensitivities_give_three_kinds_of_claim(cancer) -> None:
    kinds = {}
    for sensitivity, more in (
        ("worst_case", {}),
        ("assumed_stability", {"stability_rate": 0.05}),
        ("observed_max_change", {"neighbours": 2}),
    ):
        mechanism = cg.RandomizedResponse(epsilon=0.5, sensitivity=sensitivity, **more)
        run = cancer.run(cg.FedCT(rounds=2, mechanism=mechanism))
        kinds[sensitivity] = run.privacy["kind"].iloc[0]
        assert run.releases["protected"].all() == (sensitivity == "worst_case")
        assert run.privacy["publishable"].all() == (sensitivity != "observed_max_change")
    assert kinds == {"worst_case": "dp", "assumed_stability": "conditional", "observed_max_change": "nominal"}


def test_observed_change_is_that_of_leaving_one_row_out(cancer) -> None:
    mechanism = cg.RandomizedResponse(epsilon=0.5, sensitivity="observed_max_change", neighbours=17)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    run = cancer.run(cg.FedCT(rounds=1, mechanism=mechanism), tree)
    X, y = cancer.split.sites[0]
    whole = clone(tree).fit(X, y).predict(cancer.split.public)
    without = [clone(tree).fit(np.delete(X, i, 0), np.delete(y, i)).predict(cancer.split.public) for i in range(17)]
    most = max(int(np.sum(other != whole)) for other in without)
    (charge,), _ = read_charges(run.releases["privacy"].iloc[0])
    assert charge.events[0].count == max(1, most)


def test_a_learner_that_goes_on_has_no_neighbours_to_observe(cancer) -> None:
    mechanism = cg.RandomizedResponse(epsilon=0.5, sensitivity="observed_max_change")
    with pytest.raises(cg.SiteError, match="refitted each time"):
        cancer.run(cg.FedCT(rounds=1, mechanism=mechanism), cg.TorchClassifier("linear"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mechanism": "randomized_response"}, "mechanism must be an instance of Mechanism or None"),
        ({"mechanism": cg.Laplace(epsilon=1)}, "Laplace is for Numbers"),
        ({"mechanism": cg.UnaryEncoding(epsilon=1), "consensus": cg.DawidSkene()}, "cannot count ApprovalBits"),
        ({"mechanism": cg.RandomizedResponse(epsilon=1), "voters": cg.Familiar()}, "leave out voters"),
    ],
)
def test_a_mechanism_that_does_not_fit_is_an_error(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(cg.ConfigError, match=said):
        cg.FedCT(**settings)


def test_noise_is_the_same_whoever_answers_first_and_other_at_every_site_and_round(cancer) -> None:
    algorithm = cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=1))
    run = cancer.run(algorithm)
    with last_comes_first():
        other = cancer.run(algorithm)
    assert run.labels == other.labels
    assert list(run.releases["sha256"]) == list(other.releases["sha256"])
    assert run.releases["sha256"].nunique() == len(run.releases)
