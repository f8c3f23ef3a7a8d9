"""What protects a release: how private data reached it, seen by the site itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core import ActiveSite, HardLabels, Labels, Nothing, step
from collegium.core.algorithm import Algorithm
from collegium.core.federation import Federation
from collegium.privacy.budget import read_charges
from collegium.privacy.events import Gaussian


def private(**settings: Any) -> cg.PrivateVoting:
    return cg.PrivateVoting(
        DecisionTreeClassifier(max_depth=2), **({"teachers": 3, "epsilon": 2.0, "queries": 20} | settings)
    )


@step
def learn(site: ActiveSite, L: Labels | None) -> Nothing:
    """As FedCT does."""
    site.fit(site.data + site.public.labelled(L))
    return Nothing()


@step
def answer(site: ActiveSite, peek: str) -> HardLabels:
    """Labels of the site's model, after a look at the private rows."""
    looks = {
        "nothing": lambda: None,
        "features": lambda: site.data.X,
        "labels": lambda: site.data.codes,
        "number": lambda: len(site.data),
        "another fit": lambda: site.train(site.data, {"name": "decision_tree", "settings": {}}),
    }
    looks[peek]()
    return HardLabels(site.predict(site.public))


class Peeking(Algorithm):
    """Trains and asks twice; the second time the step looks at private rows."""

    asks_for = (learn, answer)

    def __init__(self, peek: str) -> None:
        object.__setattr__(self, "peek", peek)

    def coordinate(self, fed: Federation) -> None:
        for t in fed.rounds(2):
            fed.tell(learn(None))
            fed.ask(answer("nothing" if t == 0 else self.peek))


def test_labels_of_all_rounds_are_post_processing_of_one_private_fit(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=4), private())
    charges = [read_charges(text)[0] for text in run.releases.query("party == 'site0'")["privacy"]]
    assert [bool(charge.events) for (charge,) in charges] == [True, False, False, False]
    assert isinstance(charges[0][0].events[0], Gaussian)
    assert run.releases["protected"].all()
    assert run.privacy["epsilon"].tolist() == pytest.approx([2.0] * 5, rel=1e-6)
    assert run.privacy["assumptions"].str.contains("post-processing").all()
    assert set(run.privacy["rounds"]) == {1}


def test_every_private_fit_is_charged_and_all_of_them_cost_epsilon_together(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=4), private(fits=3))
    charges = [read_charges(text)[0] for text in run.releases.query("party == 'site0'")["privacy"]]
    assert [bool(charge.events) for (charge,) in charges] == [True, True, True, False]
    assert run.privacy["epsilon"].tolist() == pytest.approx([2.0] * 5, rel=1e-6)
    assert set(run.privacy["rounds"]) == {3}


@pytest.mark.parametrize("peek", ["features", "labels", "number", "another fit"])
def test_whoever_reads_private_rows_is_seen_and_nothing_after_that_is_protected(cancer, peek: str) -> None:
    run = cancer.run(Peeking(peek), private())
    assert list(run.releases.query("party == 'site0'")["protected"]) == [True, False]
    kinds = run.privacy.query("party == 'site0'").set_index("kind")
    assert set(kinds.index) == {"dp", "unprotected"}
    assert "no guarantee" in kinds.loc["dp", "assumptions"]


def test_who_reads_nothing_stays_protected(cancer) -> None:
    assert cancer.run(Peeking("nothing"), private()).releases["protected"].all()


def test_something_before_a_private_learner_in_a_pipeline_is_not_private(cancer) -> None:
    learner = make_pipeline(StandardScaler(), DecisionTreeClassifier())
    assert not cancer.run(cg.FedCT(rounds=1), learner).releases["protected"].any()


def test_after_the_private_fit_a_site_learns_from_public_rows_only(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=3), private())
    assert run.models["site0"].estimator.tree_.n_node_samples[0] == len(cancer.split.public)


def test_without_a_consensus_the_sites_own_private_labels_stand_in(cancer) -> None:
    # A quorum of all sites leaves some samples unlabeled; the model is still fitted on all public rows.
    run = cancer.run(cg.FedCT(rounds=2, consensus=cg.QualifiedMajority(1.0)), private())
    assert not run.labels.known.all()
    assert run.models["site0"].estimator.tree_.n_node_samples[0] == len(cancer.split.public)


def test_workers_and_resumed_runs_spend_the_same(cancer, tmp_path) -> None:
    run = cancer.run(cg.FedCT(rounds=3), private(fits=2))
    other = cancer.run(cg.FedCT(rounds=3), private(fits=2), workers=1, out=tmp_path / "run")
    again = cancer.run(cg.FedCT(rounds=3), private(fits=2), out=tmp_path / "run", resume=True)
    for each in (other, again):
        assert each.labels == run.labels
        assert list(each.privacy["epsilon"]) == list(run.privacy["epsilon"])
    assert len(cg.privacy.spent(tmp_path / "run" / "ledger.db")) == 5


def test_a_private_fit_beyond_the_budget_does_not_happen(cancer) -> None:
    sites = cancer.sites(private(fits=2), budget=cg.Budget(epsilon=1.6))
    with pytest.warns(cg.CollegiumWarning, match="budget-exhausted"):
        run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    assert (run.privacy["epsilon"] <= 1.6).all()
    assert set(run.releases["round"]) == {0}


def test_a_policy_that_requires_privacy_wants_a_private_learner_or_noise(cancer) -> None:
    strict = cg.Policy(requires="dp")
    with pytest.raises(cg.SiteError, match="requires differential privacy"):
        cancer.run(cg.FedCT(rounds=1), sites=cancer.sites(policy=strict))
    weak = cg.RandomizedResponse(epsilon=1, sensitivity="assumed_stability", stability_rate=0.1)
    with pytest.raises(cg.SiteError, match="requires differential privacy"):
        cancer.run(cg.FedCT(rounds=1, mechanism=weak), sites=cancer.sites(policy=strict))
    assert cancer.run(cg.FedCT(rounds=1), sites=cancer.sites(private(), policy=strict)).releases["protected"].all()
    noisy = cg.FedCT(rounds=1, mechanism=cg.UnaryEncoding(epsilon=0.1))
    assert cancer.run(noisy, sites=cancer.sites(policy=strict)).releases["protected"].all()


def test_a_private_learner_whose_settings_cannot_work_is_an_error_before_training(cancer) -> None:
    for settings in ({"epsilon": 0}, {"delta": 1.0}, {"teachers": 0}, {"fits": 0}):
        with pytest.raises(cg.SiteError, match="site0"):
            cancer.run(cg.FedCT(rounds=1), private(**settings))


def test_a_private_learner_needs_a_public_set(cancer) -> None:
    with pytest.raises(cg.SiteError, match="public set"):
        cg.run(cg.Local(), sites=cancer.sites(private()))


def test_different_sites_have_different_claims(cancer) -> None:
    sites = cancer.sites()
    X, y = cancer.split.sites[0]
    sites[0] = cg.Site("site0", X, y, learner=private())
    run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    assert list(run.privacy["kind"]) == ["dp"] + ["unprotected"] * 4
    assert np.isfinite(run.privacy["epsilon"]).sum() == 1
