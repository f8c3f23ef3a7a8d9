"""PATE: pooled, and with sites as teachers; with and without noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

import collegium as cg
from collegium.errors import ConfigError

TREE = DecisionTreeClassifier(max_depth=4)
EXACT_74 = 3.586130  # exact composition of 74 queries at gamma = .05; the moments of the paper give 4.508821


def test_pooled_teachers_are_shared_out_over_the_sites(cancer) -> None:
    run = cancer.run(cg.Pate(teachers=12), TREE)
    assert run.releases.groupby("kind").size().to_dict() == {"RawRecords": 5, "VoteCounts": 5}
    assert run.metrics.query("metric == 'global_accuracy'")["value"].item() > 0.8
    assert run.one_shot["seconds_teachers"].iloc[:5].min() > 0


def test_fewer_teachers_than_sites_leave_some_sites_without_work(cancer) -> None:
    run = cancer.run(cg.Pate(teachers=2), TREE)
    assert set(run.releases.query("kind == 'VoteCounts'")["party"]) == {"site0", "site1"}


def test_more_teachers_than_records_are_as_many_as_records() -> None:
    X = np.arange(6.0)[:, None]
    sites = [cg.Site("a", X, [0, 0, 0, 1, 1, 1], learner=TREE), cg.Site("b", X, [0, 0, 0, 1, 1, 1], learner=TREE)]
    run = cg.run(cg.Pate(teachers=50), sites=sites, public=X)
    assert run.labels.coverage == 1.0


def test_sites_as_teachers_pool_nothing(cancer) -> None:
    run = cancer.run(cg.Pate(teachers="sites"), TREE)
    assert set(run.releases["kind"]) == {"HardLabels"}
    assert cg.Pate().simulation_only
    assert not cg.Pate(teachers="sites").simulation_only


@pytest.mark.slow
def test_pooled_pate_is_the_upper_bound_of_fedkt(digits) -> None:
    forest = RandomForestClassifier(30)
    bound = digits.run(cg.Pate(teachers=5), forest).metrics.query("metric == 'global_accuracy'")["value"].item()
    fedkt = digits.run(cg.FedKT(), forest).metrics.query("metric == 'global_accuracy'")["value"].item()
    assert bound > fedkt - 0.02


def test_noise_on_pooled_votes_is_claimed_for_single_records(cancer) -> None:
    run = cancer.run(cg.DPPate(teachers=50, gamma=0.05, queries=74), TREE)
    claim = run.privacy.iloc[-1]
    assert (claim["party"], claim["unit"], claim["relation"]) == ("coordinator", "record", "add_remove")
    assert claim["epsilon"] == pytest.approx(EXACT_74, abs=1e-6)
    assert cg.privacy.fedkt_epsilon(gamma=0.05, queries=74, partitions=1, delta=1e-5) == pytest.approx(
        4.508821, abs=1e-6
    )
    assert run.labels.known.sum() == 74
    assert set(run.privacy["kind"].iloc[:5]) == {"unprotected"}  # the pool itself


def test_noise_on_votes_of_sites_is_claimed_for_whole_sites(cancer) -> None:
    claim = cancer.run(cg.DPPate(teachers="sites", gamma=0.05, queries=74), TREE).privacy.iloc[-1]
    assert (claim["unit"], claim["relation"]) == ("party", "replace")
    assert claim["epsilon"] == pytest.approx(EXACT_74, abs=1e-6)


def test_epsilon_sets_the_noise(cancer) -> None:
    algorithm = cg.DPPate(teachers=20, epsilon=2.0, queries=60, noise="gaussian")
    assert cancer.run(algorithm, TREE).privacy["epsilon"].iloc[-1] == pytest.approx(2.0, rel=1e-6)


def test_without_settings_the_noise_is_that_of_the_paper() -> None:
    assert cg.DPPate().gamma == 0.05
    assert cg.DPPate(epsilon=1.0).gamma is None


def test_data_dependent_accounting_is_not_for_publication(cancer) -> None:
    algorithm = cg.DPPate(teachers=20, gamma=0.3, queries=60, accounting="data_dependent")
    assert not cancer.run(algorithm, TREE).privacy["publishable"].iloc[-1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"teachers": 0}, "teachers"),
        ({"teachers": "all"}, "teachers"),
        ({"gamma": 0}, "gamma"),
        ({"queries": 0}, "queries"),
    ],
)
def test_settings_that_make_no_sense_are_an_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cg.DPPate(**settings)


def test_more_queries_than_public_samples_are_an_error_before_training(cancer) -> None:
    with pytest.raises(ConfigError, match="queries"):
        cancer.run(cg.DPPate(queries=371), TREE)


@pytest.mark.parametrize(
    ("learners", "teachers"),
    [
        ((TREE, KNeighborsClassifier(1), GaussianNB()), 40),  # most subsets have one record, or none
        ((KNeighborsClassifier(4),) * 3, 15),  # too many neighbours for the smallest subsets
        ((ExtraTreeClassifier(max_features=1),) * 3, 15),
    ],
    ids=["different learners", "learners that fail on few rows", "learners that draw at random"],
)
def test_one_record_changes_one_vote_whoever_learns_from_it(cancer, monkeypatch, learners, teachers) -> None:
    """What the claim for single records stands on: also when a subset loses its only record."""
    seen: list[np.ndarray] = []
    label = cg.DPPate._labels
    monkeypatch.setattr(
        cg.DPPate, "_labels", lambda self, fed, counts: (seen.append(counts), label(self, fed, counts))[1]
    )
    parts = [(X[:12], y[:12]) for X, y in cancer.split.sites[:3]]

    def run(without: int | None) -> None:
        (X, y), *others = parts
        keep = np.arange(len(X)) != without
        rows = [(X[keep], y[keep]), *others]
        sites = [
            cg.Site(f"site{i}", *part, learner=each) for i, (part, each) in enumerate(zip(rows, learners, strict=True))
        ]
        cancer.run(cg.DPPate(teachers=teachers, gamma=0.05, queries=20), sites=sites)

    run(None)
    for record in range(8):
        run(record)
    changes = [np.abs(counts - seen[0]).sum(axis=0).max() for counts in seen[1:]]
    assert 1 <= max(changes) <= 2


def test_noise_on_votes_for_one_class_is_an_error_before_training() -> None:
    X = np.arange(6.0)[:, None]
    sites = [cg.Site(name, X, [0] * 6, learner=TREE) for name in "ab"]
    with pytest.raises(ConfigError, match="DPPate: noise on votes needs at least two classes"):
        cg.run(cg.DPPate(teachers=3, gamma=0.1), sites=sites, public=X)
