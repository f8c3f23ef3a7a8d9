"""The guard: each site takes as much of the consensus as helps it, and what it decides stays there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import collegium as cg
from collegium.algorithms import _guard
from collegium.core.samples import LabelledData, Mixture
from collegium.errors import SiteError
from collegium.learners.base import Trainer

LEARNERS = {
    "tree": DecisionTreeClassifier(max_features=3),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "neighbors": KNeighborsClassifier(3),
}


def poisoned(cancer: Any, learner: Any) -> list[cg.Site]:
    """One honest site among four whose labels are the other way round."""
    sites = cancer.sites(learner)
    flip = {"benign": "malignant", "malignant": "benign"}
    return [s if i == 0 else cg.Site(s.name, s.X, [flip[y] for y in s.y], s.learner) for i, s in enumerate(sites)]


def share(run: cg.Run, site: str) -> list[float]:
    return run.metrics.query("metric == 'consensus_share' and party == @site")["value"].tolist()


@pytest.mark.parametrize("name", LEARNERS)
def test_with_nothing_to_gain_a_site_ends_with_the_model_it_would_have_had_alone(cancer: Any, name: str) -> None:
    sites, X = poisoned(cancer, LEARNERS[name]), cancer.split.test[0]
    alone = cancer.run(cg.Local(), sites=sites).models["site0"]
    guarded = cancer.run(cg.FedCT(rounds=3, guard=True), sites=sites)
    assert share(guarded, "site0") == [0.0, 0.0, 0.0]
    np.testing.assert_array_equal(guarded.models["site0"].predict(X), alone.predict(X))
    harmed = cancer.run(cg.FedCT(rounds=3), sites=sites).accuracy.iloc[-1]["site0"]
    assert harmed < guarded.accuracy.iloc[-1]["site0"] - 0.2


@pytest.mark.parametrize("learner", [LEARNERS["neighbors"], cg.TorchClassifier(nn.Linear(30, 2), steps=2)], ids=str)
def test_secret_votes_do_not_show_that_a_site_stays_alone(cancer: Any, learner: Any) -> None:
    run = cancer.run(
        cg.FedCT(rounds=3, guard=True, votes="secret", consensus=cg.Majority()), sites=poisoned(cancer, learner)
    )
    assert share(run, "site0") == [0.0, 0.0, 0.0]
    assert run.refusals.empty
    assert set(run.releases.query("kind == 'MaskedVotes'").groupby("party").size()) == {3}


def test_a_net_that_goes_on_keeps_a_model_alone_too(cancer: Any) -> None:
    net = cg.TorchClassifier(nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 2)), lr=0.05, batch_size=16, steps=30)
    sites, X = poisoned(cancer, net)[:3], cancer.split.test[0]
    alone = cancer.run(cg.Local(rounds=2), sites=sites).models["site0"]
    guarded = cancer.run(cg.FedCT(rounds=2, guard=True), sites=sites)
    assert share(guarded, "site0") == [0.0, 0.0]
    np.testing.assert_array_equal(guarded.models["site0"].predict_proba(X), alone.predict_proba(X))


def test_a_net_that_took_part_can_still_go_back(cancer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = cg.TorchClassifier(nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 2)), lr=0.05, batch_size=16, steps=5)
    sites, X = cancer.sites(net)[:1], cancer.split.test[0]
    shares = iter([1.0, 0.0])
    monkeypatch.setattr(_guard, "_share", lambda *_: next(shares))
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        guarded = cancer.run(cg.FedCT(rounds=3, guard=True), sites=sites)
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        alone = cancer.run(cg.Local(rounds=3), sites=sites).models["site0"]
    assert share(guarded, "site0") == [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(guarded.models["site0"].predict_proba(X), alone.predict_proba(X))


def test_what_helps_is_taken(digits: Any) -> None:
    plain, guarded = (digits.run(cg.FedCT(rounds=2, guard=guard)).accuracy.iloc[-1] for guard in (False, True))
    alone = digits.run(cg.Local()).accuracy.iloc[-1]
    assert guarded.mean() > alone.mean() + 0.02
    assert guarded.mean() > plain.mean() - 0.03
    assert (guarded >= alone - 0.005).mean() >= 0.8  # of five sites: what helps on 100 rows need not on 400 others


def test_classes_that_a_site_lacks_are_a_reason_to_listen(digits: Any) -> None:
    split = digits.split
    sites = [
        cg.Site(f"s{i}", X[np.isin(y, own)], y[np.isin(y, own)], DecisionTreeClassifier(random_state=0))
        for i, ((X, y), own) in enumerate(zip(split.sites, [[0, 1, 2], *[range(10)] * 4], strict=True))
    ]
    run = digits.run(cg.FedCT(rounds=2, guard=True), sites=sites)
    assert share(run, "s0")[-1] > 0
    assert run.accuracy.iloc[-1]["s0"] > 0.5  # alone it would know three classes in ten


def test_what_it_decides_does_not_leave_the_site(cancer: Any) -> None:
    plain, guarded = (cancer.run(cg.FedCT(rounds=3, guard=guard)) for guard in (False, True))
    assert list(guarded.releases["step"]) == list(plain.releases["step"])
    assert set(guarded.releases["kind"]) == {"HardLabels"}
    assert set(guarded.metrics.query("metric == 'consensus_share'")["split"]) == {"private"}


@pytest.mark.slow
def test_it_is_the_same_on_every_link_and_after_a_resume(cancer: Any, tmp_path: Any) -> None:
    algorithm = cg.FedCT(rounds=2, guard=True, consensus=cg.Informed(), weights="both")
    here = cancer.run(algorithm)
    there = cancer.run(algorithm, workers=1, out=tmp_path / "run")
    again = cancer.run(algorithm, out=tmp_path / "run", resume=True)
    for other in (there, again):
        assert here.labels == other.labels
        assert here.accuracy.equals(other.accuracy)


def test_a_private_learner_cannot_be_guarded(cancer: Any) -> None:
    sites = cancer.sites(cg.PrivateVoting(DecisionTreeClassifier(), epsilon=5.0, teachers=3))
    for settings in ({"guard": True}, {"weights": "balance"}):
        with pytest.raises(SiteError, match="its learner is private"):
            cancer.run(cg.FedCT(rounds=2, **settings), sites=sites)


# Weights


def mixture(weights: Any) -> Mixture:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    truth = (X[:, 0] > 0).astype(np.int8)
    # Pseudo-labels are all wrong: the less they count, the better.
    return Mixture(LabelledData(X[:60], truth[:60]), LabelledData(X[60:], 1 - truth[60:]), weights)


@pytest.mark.parametrize("learner", [LogisticRegression(), *(LEARNERS[name] for name in ("pipeline", "neighbors"))])
def test_weights_reach_every_learner(learner: Any) -> None:
    X, y = mixture(None).private.X, mixture(None).private.codes
    right = [
        np.mean(Trainer(learner, np.arange(2)).fit(mixture(w), None, np.random.default_rng(0)).predict_codes(X) == y)
        for w in (None, np.full(140, 0.05))
    ]
    assert right[0] < 0.6
    assert right[1] > 0.9


@pytest.mark.parametrize("weights", ["confidence", "balance", "both"])
@pytest.mark.parametrize("rule", [cg.Majority(), cg.WeightedMajority("agreement"), cg.DawidSkene(), cg.Informed()])
def test_every_rule_says_how_sure_it_is(cancer: Any, rule: Any, weights: Any) -> None:
    run = cancer.run(cg.FedCT(rounds=2, consensus=rule, weights=weights))
    assert run.refusals.empty
    assert run.accuracy.iloc[-1].mean() > 0.85


def test_balanced_weights_let_a_rare_class_be_learned() -> None:
    from collegium.algorithms.fedct import _weights

    codes = np.repeat([0, 1], [90, 10])
    weights = _weights(codes, None, balance=True)
    assert weights[codes == 0].sum() == pytest.approx(weights[codes == 1].sum())
    assert _weights(np.repeat([0, 1], [999, 1]), None, balance=True).max() == 10


class Weighed(DecisionTreeClassifier):
    """Notes what pseudo-labels weighed: the last rows, after 30 private ones."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        WEIGHED.append(None if sample_weight is None else np.asarray(sample_weight)[30:])
        return super().fit(X, y, sample_weight)


WEIGHED: list[Any] = []


def test_pseudo_labels_weigh_as_much_as_sites_agree_on_them() -> None:
    rng = np.random.default_rng(0)
    X, U = rng.normal(size=(30, 2)), rng.normal(size=(40, 2))
    sites = [
        cg.Site(name, X, X[:, 0] > limit, learner=Weighed()) for name, limit in zip("abc", (-1, 0, 1), strict=True)
    ]
    WEIGHED.clear()
    with pytest.warns(cg.Advice, match="differ much in frequency"):
        run = cg.run(cg.FedCT(rounds=2, weights="confidence"), sites=sites, public=U, workers=0)
    agreed = np.mean([run.models[name].predict(U) for name in "abc"], axis=0)
    assert 0 < agreed.mean() < 1
    given = [each for each in WEIGHED if each is not None and len(each) == 40]
    assert len(given) == 3  # in the second round
    shares = np.unique(np.round(given[0] / given[0].max(), 2))
    np.testing.assert_allclose(shares, [0.67, 1.0])  # two of three, or all
