from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import ConfigError, LedgerError, Refused, SiteError
from collegium.privacy.budget import Budget, read_charges, write_charges
from collegium.privacy.claims import Charge
from collegium.privacy.events import Gaussian, Pure, SampledGaussian
from collegium.wire.orders import Request


def test_charges_survive_the_ledger_with_the_budget_they_were_made_against() -> None:
    charges = [Charge((Pure(epsilon=0.1, count=3), Gaussian(noise_multiplier=2.0)), assumptions=("one", "two"))]
    assert read_charges(write_charges(charges, Budget(1.0, 1e-6))) == (charges, Budget(1.0, 1e-6))
    assert read_charges(None) == ([], None)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"charges": 1, "budget": null}', '{"charges": [{}], "budget": null}']
)
def test_other_text_is_no_charge(text: str) -> None:
    with pytest.raises(ConfigError):
        read_charges(text)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (float("nan"), 1e-5), (1, 0), (1, 1), (1, 2)])
def test_a_budget_that_makes_no_sense_is_an_error(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        Budget(epsilon, delta)


def test_charges_for_different_neighbours_are_not_added_up() -> None:
    sgd = Charge((SampledGaussian(noise_multiplier=4.0, sampling=0.1),), relation="add_remove")
    other = Charge((Pure(epsilon=0.1),), relation="replace")
    with pytest.raises(Refused) as refusal:
        Budget(10.0).require([sgd], [other])
    assert refusal.value.code == "budget-relation"


def per_label_epsilon(cancer, epsilon: float) -> float:
    return cg.privacy.per_round(epsilon=epsilon, delta=1e-5, rounds=len(cancer.split.public))


def labelled_once(cancer, tmp_path: Path, epsilon: float, budget: float, rounds: int = 3, **options) -> cg.Run:
    """FedCT with noise of `epsilon` in all per round at every site, each with its own ledger."""
    per_label = per_label_epsilon(cancer, epsilon)
    sites = [
        cg.Site(
            f"site{i}", X, y, learner=DecisionTreeClassifier(), budget=cg.Budget(budget, 1e-5, tmp_path / f"{i}.db")
        )
        for i, (X, y) in enumerate(cancer.split.sites)
    ]
    algorithm = cg.FedCT(rounds=rounds, mechanism=cg.RandomizedResponse(epsilon=per_label))
    return cancer.run(algorithm, sites=sites, **options)


def test_when_every_budget_is_spent_the_run_ends_with_what_it_has(cancer, tmp_path) -> None:
    with pytest.warns(cg.CollegiumWarning, match="budget-exhausted"):
        run = labelled_once(cancer, tmp_path, epsilon=2.0, budget=5.0, rounds=5)
    spent = run.privacy
    assert set(run.refusals["code"]) == {"budget-exhausted"}
    assert 0 < run.releases["round"].max() < 4
    assert (spent["epsilon"] <= 5.0).all()
    assert run.labels is not None
    assert len(run.accuracy) > run.releases["round"].max()


def test_a_budget_outlives_the_study(cancer, tmp_path) -> None:
    labelled_once(cancer, tmp_path, epsilon=2.0, budget=5.0, rounds=2)
    before = cg.privacy.spent(tmp_path / "0.db", delta=1e-5)["site0"]
    with pytest.warns(cg.CollegiumWarning, match="budget-exhausted"):
        labelled_once(cancer, tmp_path, epsilon=1.5, budget=before + 0.6, rounds=4)
    assert before < cg.privacy.spent(tmp_path / "0.db", delta=1e-5)["site0"] <= before + 0.6
    with pytest.raises(SiteError, match="smaller than one round costs"):
        labelled_once(cancer, tmp_path, epsilon=2.0, budget=before + 0.6)


def test_a_budget_smaller_than_one_round_is_an_error_before_training(cancer, tmp_path) -> None:
    with pytest.raises(SiteError, match="smaller than one round"):
        labelled_once(cancer, tmp_path, epsilon=50.0, budget=1.0)
    assert not (tmp_path / "0.db").exists()


def test_a_tampered_ledger_is_an_error_before_training(cancer, tmp_path) -> None:
    labelled_once(cancer, tmp_path, epsilon=0.5, budget=5.0, rounds=1)
    with sqlite3.connect(tmp_path / "2.db") as db:
        db.execute("UPDATE ledger SET event = NULL")
    with pytest.raises(LedgerError, match="was changed"):
        labelled_once(cancer, tmp_path, epsilon=0.5, budget=5.0, rounds=1)


def test_one_site_that_runs_out_leaves_the_others_going(cancer, tmp_path) -> None:
    per_label = per_label_epsilon(cancer, 1.0)
    sites = cancer.sites()
    X, y = cancer.split.sites[0]
    sites[0] = cg.Site("site0", X, y, learner=DecisionTreeClassifier(), budget=cg.Budget(1.5, ledger=tmp_path / "x.db"))
    with pytest.warns(cg.CollegiumWarning, match="'site0' did not answer"):
        run = cancer.run(cg.FedCT(rounds=4, mechanism=cg.RandomizedResponse(epsilon=per_label)), sites=sites)
    counts = run.releases.groupby("party").size()
    assert counts["site0"] < 4
    assert (counts.drop("site0") == 4).all()
    assert len(run.accuracy["site0"].dropna()) >= 1


def spend(path: Path, together, taken) -> None:
    """Spend as much as the ledger allows, in a process of its own."""
    import numpy as np

    from collegium.core import HardLabels, Labels
    from collegium.core.public_set import PublicSet
    from collegium.core.site import ActiveSite, Site
    from collegium.core.steps import INSTALLED
    from collegium.registry import install_steps
    from collegium.site.gate import Gate
    from collegium.site.ledger import Ledger

    install_steps()
    X = np.zeros((4, 1))
    site = ActiveSite(Site("ukb", X, np.array([0, 1, 0, 1])), np.arange(2), PublicSet(X), seed=0, simulation=True)
    gate = Gate("ukb", cg.Policy(), Ledger("ukb", path), simulation=True, budget=Budget(10.0, 1e-9))
    label = INSTALLED["fedct.label"]
    together.wait(600)  # both are here
    for number in range(10):
        site.begin(number)
        asked = Request(
            path.name, None, number, 0, label.name, label.digest, {}, {"name": "randomized_response", "epsilon": 1.0}
        )
        try:
            with gate.ledger.transaction():
                gate.seal(asked, HardLabels(Labels(np.array([0]), 2)), None, site)
        except Refused:
            continue
        with taken.get_lock():
            taken.value += 1


def test_runs_at_the_same_time_cannot_spend_twice(tmp_path) -> None:
    context = multiprocessing.get_context("spawn")
    together, taken = context.Barrier(2), context.Value("i", 0)
    several = [context.Process(target=spend, args=(tmp_path / "site.db", together, taken)) for _ in range(2)]
    for process in several:
        process.start()
    for process in several:
        process.join()
        assert process.exitcode == 0
    assert taken.value == 10
