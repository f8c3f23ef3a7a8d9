"""FedKT: who learns from what, consistent voting, the three privacy levels, and what may be sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from tests.algorithms.recorder import FITTED, Recorder, recorders
from tests.core.exchanges import last_comes_first
from xgboost import XGBClassifier

import collegium as cg
from collegium.algorithms import _shared_models as sharing
from collegium.algorithms._teachers import ask_teachers, hashed_subsets, random_subsets
from collegium.algorithms.fedkt import consistent, rare_first
from collegium.core.federation import Federation
from collegium.core.public_set import PublicSet
from collegium.core.releases import SharedModels
from collegium.core.site import ActiveSite
from collegium.core.tally import winners
from collegium.errors import ConfigError, Refused, SiteError, WireError
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax
from collegium.privacy.noise import SeededNoise
from collegium.reports.html import render_report
from collegium.site.ledger import read_ledger

TREE = DecisionTreeClassifier(max_depth=4)


def rows_of(X: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(X)}


# Who learns from what


def test_every_partition_divides_all_records_among_its_teachers(cancer) -> None:
    sites = recorders(cancer)
    cancer.run(cg.FedKT(partitions=2, subsets=3, student=TREE), sites=sites)
    for site in sites:
        parts = [rows_of(X) for X, _ in FITTED[site.name]]
        assert 2 <= len(parts) <= 6  # a subset of one class is not fitted
        assert all(part <= rows_of(site.X) for part in parts)
        assert max(len(y) for _, y in FITTED[site.name]) <= -(-len(site) // 3)
    subsets = random_subsets(17, 5, np.random.default_rng(0))
    assert sorted(map(len, subsets)) == [3, 3, 3, 4, 4]
    assert sorted(np.concatenate(subsets)) == list(range(17))


def test_students_learn_the_public_set_and_the_teachers_votes_only(cancer) -> None:
    sites = recorders(cancer)
    cancer.run(cg.FedKT(partitions=2, subsets=2, teacher=TREE), sites=sites, global_learner=TREE)
    for site in sites:
        students = FITTED[site.name]
        assert len(students) == 2
        for X, _ in students:
            np.testing.assert_array_equal(X, cancer.split.public)


def test_teachers_students_and_the_final_model_may_be_different_learners(cancer) -> None:
    student = RandomForestClassifier(5)
    run = cancer.run(cg.FedKT(teacher=TREE, student=student, subsets=2), LGBMClassifier())
    assert {type(model.estimator) for model in run.models.values()} == {RandomForestClassifier}
    assert type(run.global_model.estimator) is RandomForestClassifier
    other = cancer.run(cg.FedKT(teacher=TREE, student=student, subsets=2), global_learner=TREE)
    assert type(other.global_model.estimator) is DecisionTreeClassifier


def test_learners_may_be_given_by_name(cancer) -> None:
    named = cg.FedKT(teacher="decision_tree", student="xgboost", share="models", subsets=2)
    given = cg.FedKT(teacher=DecisionTreeClassifier(), student=XGBClassifier(), share="models", subsets=2)
    run = cancer.run(named, TREE)
    assert type(run.global_model.estimator) is XGBClassifier
    assert run.labels == cancer.run(given, TREE).labels
    sites = [cg.Site(f"site{i}", X, y) for i, (X, y) in enumerate(cancer.split.sites)]
    assert cancer.run(named, sites=sites).labels == run.labels


def test_sites_need_no_learner_where_the_method_names_all(cancer) -> None:
    sites = [cg.Site(f"site{i}", X, y) for i, (X, y) in enumerate(cancer.split.sites)]
    named = cg.FedKT(teacher=TREE, student=RandomForestClassifier(5), subsets=2)
    run = cancer.run(named, sites=sites)
    assert run.labels == cancer.run(named, TREE).labels
    assert list(run.accuracy.columns) == [site.name for site in sites]
    assert "RandomForestClassifier" in render_report(run)
    for incomplete in (cg.FedKT(teacher=TREE), cg.FedKT(student=TREE)):
        with pytest.raises(SiteError, match="'site0': it has no learner"):
            cancer.run(incomplete, sites=sites)


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_noise_that_answers_nothing_is_paid_for_like_any_answer(level, cancer, tmp_path) -> None:
    nobody = ConfidentNoisyMax(threshold=1000, sigma1=3, sigma2=2)
    sites = [
        cg.Site(f"site{i}", X, y, learner=TREE, budget=cg.Budget(epsilon=20, delta=1e-5, ledger=tmp_path / f"{i}.db"))
        for i, (X, y) in enumerate(cancer.split.sites)
    ]
    method = cg.FedKT(level=level, partitions=1, queries=3, mechanism=nobody)
    if level == "L1":
        sites = recorders(cancer)
    with pytest.warns(cg.CollegiumWarning, match="No global model: no public sample has a label"):
        run = cancer.run(method, sites=sites)
    assert run.refusals.empty
    assert run.global_model is None
    assert not run.labels.known.any()
    spent = run.privacy.query("party == 'coordinator'")["epsilon"].item()
    assert spent > 1
    if level == "L2":
        assert (run.privacy.query("party != 'coordinator'")["epsilon"] > 1).all()
        assert all(read_ledger(tmp_path / f"{i}.db")[0]["event"] for i in range(5))


def test_it_is_better_than_each_site_alone(digits) -> None:
    tree = DecisionTreeClassifier()
    alone = digits.run(cg.Local(), tree).accuracy.iloc[-1].mean()
    run = digits.run(cg.FedKT(subsets=2, teacher=tree, student=RandomForestClassifier(30)))
    assert run.metrics.query("metric == 'global_accuracy'")["value"].item() > alone + 0.1


def test_a_party_with_fewer_records_than_subsets_has_fewer_teachers_and_that_is_noted(cancer) -> None:
    sites = cancer.sites(TREE)
    sites[2] = cg.Site("site2", sites[2].X[:3], sites[2].y[:3], learner=TREE)
    sites[4] = cg.Site("site4", sites[4].X[:1], sites[4].y[:1], learner=TREE)
    run = cancer.run(cg.FedKT(subsets=5), sites=sites)
    noted = run.metrics.query("metric == 'teachers'").set_index("party")["value"]
    assert noted.to_dict() == {"site2": 3, "site4": 1}
    assert run.refusals.empty
    assert "made fewer: site2 (3), site4 (1)" in render_report(run)


# Consistent voting


def test_two_students_and_two_classes_make_consistent_voting_change_nothing() -> None:
    rng = np.random.default_rng(0)
    students = rng.integers(2, size=(20, 2, 500))  # parties, students, samples
    plain = np.array([(students == c).sum(axis=(0, 1)) for c in range(2)])
    party = np.array([consistent(list(votes)) for votes in students])
    counted = 2 * np.array([(party == c).sum(axis=0) for c in range(2)])
    np.testing.assert_array_equal(plain[0] - plain[1], counted[0] - counted[1])
    some = counted.sum(axis=0) > 0
    np.testing.assert_array_equal(winners(plain, 7)[some], winners(counted, 7)[some])


@pytest.mark.parametrize(
    ("votes", "plain_winner", "consistent_winner"),
    [
        # s = 3: two parties are divided and outvote the one that is sure, unless they are left out.
        ([[0, 0, 1], [0, 0, 1], [1, 1, 1]], 1, 1),
        ([[0, 0, 1], [0, 0, 1], [0, 0, 1], [1, 1, 1]], 0, 1),
        # s = 2, three classes.
        ([[0, 1], [0, 2], [0, 1], [2, 2]], 0, 2),
    ],
)
def test_elsewhere_a_party_counts_only_where_its_students_agree(votes, plain_winner, consistent_winner) -> None:
    counts = np.bincount(np.concatenate(votes), minlength=3)
    assert counts.argmax() == plain_winner
    agreed = [consistent([np.array([vote]) for vote in party])[0] for party in votes]
    assert np.bincount([vote for vote in agreed if vote >= 0], minlength=3).argmax() == consistent_winner


def test_only_what_the_students_agree_on_leaves_a_party(digits) -> None:
    run = digits.run(cg.FedKT(partitions=3, subsets=2), TREE)
    assert set(run.releases["kind"]) == {"HardLabels"}
    assert set(run.releases["step"]) == {"fedkt.vote"}
    assert run.labels.coverage > 0.5


def test_ties_may_go_to_the_class_that_has_fewer_votes_in_all(cancer) -> None:
    counts = np.array([[3, 2, 1, 0], [1, 2, 3, 0]])
    assert winners(rare_first(counts + [[1], [0]] * (counts > 0)), 0).tolist() == [
        0,
        0,
        1,
        -1,
    ]  # without ties as before
    for common, rare in ((0, 1), (1, 0)):
        tied = np.array([[2, 2, 2, 2, 0], [2, 2, 2, 2, 0]])
        tied[common, 0] = 3
        assert winners(rare_first(tied), 0).tolist() == [common, rare, rare, rare, -1]
    student = XGBClassifier(n_estimators=3)
    sites = [
        cg.Site(f"site{i}", X, y) for i, (X, y) in enumerate(cancer.split.sites[:2])
    ]  # two: they tie where not one
    votes = [
        cancer.run(cg.FedKT(teacher=TREE, student=student, ties=ties, share=share), sites=sites).labels.codes
        for ties, share in (("random", "votes"), ("rare", "votes"), ("rare", "models"))
    ]
    differ = votes[0] != votes[1]
    assert len(set(votes[1][differ])) == 1  # some ties were drawn otherwise, and all go to one class now
    np.testing.assert_array_equal(votes[1], votes[2])


def test_dawid_skene_may_weigh_the_parties(digits) -> None:
    run = digits.run(cg.FedKT(subsets=2, consensus=cg.DawidSkene()), RandomForestClassifier(10))
    assert set(run.metrics.query("metric == 'reliability'")["party"]) == {f"site{i}" for i in range(5)}


# One round


def test_one_round_and_what_it_costs(cancer) -> None:
    run = cancer.run(cg.FedKT(), TREE)
    costs = run.one_shot
    assert list(costs.index) == [*(f"site{i}" for i in range(5)), "coordinator"]
    assert set(costs["rounds"].iloc[:5]) == {1}
    assert (costs[["bytes_up", "bytes_down", "seconds_teachers", "seconds_students"]].iloc[:5] > 0).all(axis=None)
    assert costs.loc["coordinator", "seconds_final"] > 0
    assert len(run.releases) == 5
    assert run.releases["bytes"].max() < 200  # one of three symbols for each of 370 samples


def test_a_run_that_was_killed_goes_on_without_training_again(cancer, tmp_path, monkeypatch) -> None:
    algorithm = cg.FedKT(student=TREE)
    whole = cancer.run(algorithm, sites=recorders(cancer))
    fits = sum(map(len, FITTED.values()))
    FITTED.clear()
    announce = Federation.announce

    def die(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "announce", die)
    with pytest.raises(KeyboardInterrupt):
        cancer.run(algorithm, sites=recorders(cancer), out=tmp_path / "run")
    monkeypatch.setattr(Federation, "announce", announce)
    resumed = cancer.run(algorithm, sites=recorders(cancer), out=tmp_path / "run", resume=True, alone=False)
    assert resumed.labels == whole.labels
    assert sum(map(len, FITTED.values())) == fits
    assert len(read_ledger(tmp_path / "run" / "ledger.db")) == 5


@pytest.mark.parametrize(
    "settings", [{}, {"level": "L1", "gamma": 1.0}, {"level": "L2", "gamma": 1.0, "partitions": 2}]
)
def test_it_does_not_matter_who_answers_first(cancer, settings: dict[str, Any]) -> None:
    algorithm = cg.FedKT(teacher=TREE, student=RandomForestClassifier(5), **settings)
    usual = cancer.run(algorithm)
    with last_comes_first():
        assert cancer.run(algorithm).labels == usual.labels


def test_it_is_the_start_of_a_method_that_averages(cancer) -> None:
    net = cg.TorchClassifier("linear", epochs=1)
    first = cancer.run(cg.FedKT(subsets=2, teacher=TREE, student=net), net)
    weights = sharing.weights_of(first.global_model)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}
    assert "weights" in repr(cg.FedProx(rounds=1, start=first.global_model))
    with pytest.raises(ConfigError, match="no weights"):
        sharing.weights_of(cancer.run(cg.FedKT(), TREE).global_model)


# Privacy levels

EXACT_148 = 4.188304  # exact composition of 148 queries at gamma = .04
DATA_INDEPENDENT_148 = 5.144185


def test_l2_charges_each_party_for_records_and_everything_after_is_free(cancer) -> None:
    algorithm = cg.FedKT(partitions=1, subsets=25, level="L2", gamma=0.04, queries=148, delta=1e-5)
    run = cancer.run(algorithm, TREE)
    table = run.privacy
    assert len(table) == 6
    assert set(table["kind"]) == {"dp"}
    assert set(table["unit"]) == {"record"}
    assert set(table["relation"]) == {"add_remove"}
    assert table["epsilon"].tolist() == pytest.approx([EXACT_148] * 6, abs=1e-6)
    assert table["publishable"].all()
    assert "parallel" in table["assumptions"].iloc[-1]
    assert cg.privacy.fedkt_epsilon(gamma=0.04, queries=148) == pytest.approx(DATA_INDEPENDENT_148, abs=1e-6)
    assert run.releases["protected"].all()
    assert run.labels.coverage == 1.0  # the student labels every public sample, not only the queries


def test_l2_composes_over_partitions(cancer) -> None:
    run = cancer.run(cg.FedKT(partitions=2, subsets=5, level="L2", gamma=0.04, queries=74), TREE)
    assert run.privacy["epsilon"].tolist() == pytest.approx([EXACT_148] * 6, abs=1e-6)


@pytest.mark.parametrize(("partitions", "gamma"), [(1, 0.04), (2, 0.02)])
def test_l1_claims_for_whole_parties_and_leaves_the_votes_unprotected(cancer, partitions, gamma) -> None:
    run = cancer.run(cg.FedKT(partitions=partitions, level="L1", gamma=gamma, queries=148), TREE)
    final = run.privacy[run.privacy["party"] == "coordinator"]
    assert final["epsilon"].tolist() == pytest.approx([EXACT_148], abs=1e-6)
    assert final[["kind", "unit", "relation"]].to_numpy().tolist() == [["dp", "party", "replace"]]
    assert set(run.privacy["kind"].iloc[:5]) == {"unprotected"}
    assert run.labels.known.sum() == 148


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("level", ["L1", "L2"])
def test_epsilon_instead_of_gamma_is_what_is_claimed(cancer, level, noise) -> None:
    run = cancer.run(cg.FedKT(level=level, epsilon=2.0, queries=50, noise=noise), TREE)
    assert run.privacy["epsilon"].iloc[-1] == pytest.approx(2.0, rel=1e-6)


def test_with_little_noise_l2_is_as_good_as_l0(digits) -> None:
    run = digits.run(cg.FedKT(level="L2", gamma=50.0, subsets=2, teacher=TREE), RandomForestClassifier(20))
    assert run.metrics.query("metric == 'global_accuracy'")["value"].item() > 0.6


def test_confident_noise_answers_some_queries(cancer) -> None:
    noise = cg.ConfidentNoisyMax(threshold=4, sigma1=1.0, sigma2=0.5)
    run = cancer.run(cg.FedKT(level="L1", partitions=1, mechanism=noise), TREE)
    assert 0 < run.labels.coverage < 1
    assert run.privacy["kind"].iloc[-1] == "dp"


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_a_mechanisms_own_delta_is_what_is_claimed(cancer, level) -> None:
    noise = cg.LaplaceNoisyMax(0.05, delta=1e-8)
    run = cancer.run(cg.FedKT(level=level, partitions=1, mechanism=noise, queries=74), TREE)
    final = run.privacy.iloc[-1]
    assert final["delta"] == 1e-8
    assert final["epsilon"] == pytest.approx(cg.privacy.compose(0.1, 74, 1e-8), rel=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("level", ["L1", "L2"])
def test_data_dependent_accounting_is_not_for_publication(cancer, level, noise) -> None:
    settings = {"partitions": 1, "subsets": 10, "gamma": 0.5, "queries": 50, "noise": noise}
    run = cancer.run(cg.FedKT(level=level, accounting="data_dependent", **settings), TREE)
    row = 0 if level == "L2" else -1
    assert not run.privacy["publishable"].iloc[row]
    assert 0 < run.privacy["epsilon"].iloc[row] < np.inf
    assert cancer.run(cg.FedKT(level=level, **settings), TREE).privacy["publishable"].all()


def test_data_dependent_accounting_gains_where_voters_agree() -> None:
    X = np.linspace(0, 1, 4000)[:, None]
    sites = [cg.Site("a", X, X[:, 0] > 0.5, learner=TREE), cg.Site("b", X, X[:, 0] > 0.5, learner=TREE)]
    settings = {"partitions": 1, "subsets": 100, "level": "L2", "gamma": 0.2, "queries": 100}
    epsilons = [
        cg.run(cg.FedKT(accounting=how, **settings), sites=sites, public=X[::20]).privacy["epsilon"].iloc[0]
        for how in ("data_dependent", "data_independent")
    ]
    assert epsilons[0] < 0.5 * epsilons[1]


@pytest.mark.parametrize(("level", "subsets"), [("L1", 2), ("L2", 10)])
def test_data_dependent_accounting_never_claims_more_and_is_not_for_publication_then_either(
    cancer, level, subsets
) -> None:
    settings = {"partitions": 1, "subsets": subsets, "level": level, "gamma": 0.05, "queries": 74}
    beforehand, hindsight = (
        cancer.run(cg.FedKT(accounting=how, **settings), TREE).privacy.iloc[0 if level == "L2" else -1]
        for how in ("data_independent", "data_dependent")
    )
    assert hindsight["epsilon"] <= beforehand["epsilon"] == pytest.approx(3.586130, abs=1e-6)
    assert beforehand["publishable"]
    assert not hindsight["publishable"]


def test_a_record_is_assigned_by_its_own_hash() -> None:
    X = np.random.default_rng(0).normal(size=(300, 4))
    with_one_more = np.vstack([X, np.ones((1, 4))])
    for partition in range(2):
        before, after = hashed_subsets(X, 5, partition), hashed_subsets(with_one_more, 5, partition)
        changed = [i for i in range(5) if list(before[i]) != list(after[i])]
        assert len(changed) == 1
        assert list(after[changed[0]]) == [*before[changed[0]], 300]
        assert min(map(len, before)) > 30
    first, second = (np.argsort(np.concatenate(hashed_subsets(X, 5, j)), kind="stable") for j in range(2))
    assert not np.array_equal(first, second)


def test_l2_keeps_the_number_of_subsets_whatever_the_number_of_records(cancer) -> None:
    assert len(hashed_subsets(cancer.split.sites[0][0][:3], 25)) == 25
    run = cancer.run(cg.FedKT(partitions=1, subsets=25, level="L2", gamma=1.0), TREE)
    assert run.metrics.query("metric == 'teachers'")["value"].between(1, 17).all()


def site_of(rows: int = 40, learner: Any = TREE) -> ActiveSite:
    X = np.random.default_rng(0).normal(size=(rows, 3))
    active = ActiveSite(
        cg.Site("a", X, X[:, 0] > 0, learner=learner), np.array([False, True]), PublicSet(X[:10]), 0, simulation=True
    )
    active.begin(1)
    return active


def test_a_budget_is_asked_before_anything_is_trained() -> None:
    site = site_of(learner=Recorder("a"))
    asked = []

    def refuse(charge: Any) -> None:
        asked.append(charge)
        raise Refused("budget-exhausted", "no")

    site.before_private_fit = refuse
    with pytest.raises(Refused):
        ask_teachers(site, 2, 4, 10, None, cg.LaplaceNoisyMax(0.1))
    assert asked[0].events[0].count == 20
    assert not FITTED["a"]
    assert not site.exposure.unpaid
    assert not site.exposure.read


def test_without_noise_the_rows_count_as_read_and_with_noise_they_are_charged() -> None:
    site = site_of()
    ask_teachers(site, 1, 4, 10)
    assert site.exposure.read
    site = site_of()
    (answers,) = ask_teachers(site, 1, 4, 6, None, cg.GaussianNoisyMax(0.1))
    assert not site.exposure.read
    assert answers.known.sum() == 6
    assert isinstance(site.noise, SeededNoise)
    assert "simulated noise" in site.exposure.unpaid[0].assumptions[0]


class Moody(DecisionTreeClassifier):
    """Fails on some private rows, and works on others."""

    def fit(self, X, y, **options):
        if (np.asarray(X) > 2).any():
            raise RuntimeError("SECRET")
        return super().fit(X, y, **options)


def test_under_noise_a_teacher_that_fails_tells_nothing_and_stops_nobody() -> None:
    site = site_of(400, Moody())
    with pytest.raises(RuntimeError):
        ask_teachers(site, 1, 4, 10)
    site = site_of(400, Moody())
    assert len(ask_teachers(site, 1, 4, 10, None, cg.LaplaceNoisyMax(1.0))) == 1


def test_a_budget_lasts_over_runs_and_then_the_next_one_is_refused_before_it_trains(cancer, tmp_path) -> None:
    algorithm = cg.FedKT(partitions=1, subsets=5, level="L2", epsilon=1.0, queries=50)
    sites = [
        cg.Site(site.name, site.X, site.y, learner=TREE, budget=cg.Budget(1.2, 1e-5, tmp_path / f"{site.name}.db"))
        for site in cancer.sites()
    ]
    assert cancer.run(algorithm, sites=sites).refusals.empty
    with pytest.raises(SiteError, match="budget"):
        cancer.run(algorithm, sites=sites)


def test_a_site_that_requires_differential_privacy_takes_part_under_l2_only(cancer) -> None:
    sites = cancer.sites(TREE, policy=cg.Policy(requires="dp"))
    assert cancer.run(cg.FedKT(level="L2", gamma=1.0), sites=sites).refusals.empty
    for settings in ({}, {"level": "L1", "gamma": 1.0}):
        with pytest.raises(SiteError, match="differential privacy"):
            cancer.run(cg.FedKT(**settings), sites=sites)


# Models


@pytest.mark.parametrize(
    "student", [XGBClassifier(n_estimators=5), LGBMClassifier(n_estimators=5, verbose=-1), cg.TorchClassifier("linear")]
)
def test_models_and_votes_give_the_same_labels(digits, student) -> None:
    settings = {"subsets": 2, "teacher": TREE, "student": student}
    votes = digits.run(cg.FedKT(**settings), TREE, global_learner=TREE)
    models = digits.run(cg.FedKT(share="models", **settings), TREE, global_learner=TREE)
    assert models.labels == votes.labels
    assert set(models.releases["kind"]) == {"SharedModels"}
    assert models.releases["bytes"].min() > votes.releases["bytes"].max()


def test_students_of_one_class_are_sent_as_such(cancer) -> None:
    sites = cancer.sites(TREE)
    sites[0] = cg.Site("site0", sites[0].X, np.full(len(sites[0]), "benign"), learner=TREE)
    settings = {"subsets": 2, "teacher": TREE, "student": XGBClassifier(n_estimators=5)}
    votes, models = (cancer.run(cg.FedKT(share=s, **settings), sites=sites) for s in ("votes", "models"))
    assert votes.labels == models.labels


@pytest.mark.parametrize("student", [DecisionTreeClassifier(), "decision_tree"])
def test_learners_without_a_safe_format_are_refused_before_the_run(student) -> None:
    with pytest.raises(ConfigError, match=r"DecisionTreeClassifier.*pickle.*votes"):
        cg.FedKT(share="models", student=student)
    with pytest.raises(ConfigError, match="student="):
        cg.FedKT(share="models")


@pytest.mark.parametrize(
    "parts", [{}, {"text": np.frombuffer(b"{broken", np.uint8)}, {"text": np.frombuffer(b"binf\x00", np.uint8)}]
)
def test_a_model_that_cannot_be_read_is_no_crash(parts) -> None:
    shared = SharedModels("xgboost", [{"codes": np.array([0, 1]), "parts": parts}])
    with pytest.raises(WireError):
        sharing.predictions(shared, {"name": "xgboost", "settings": {}}, np.zeros((2, 3)), 2)
    other = SharedModels("lightgbm", shared.models)
    with pytest.raises(WireError, match="format"):
        sharing.predictions(other, {"name": "xgboost", "settings": {}}, np.zeros((2, 3)), 2)


# Settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partitions": 0}, "partitions"),
        ({"subsets": 0}, "subsets"),
        ({"level": "L3"}, "level"),
        ({"share": "everything"}, "share"),
        ({"level": "L1"}, "L1 needs noise"),
        ({"level": "L2"}, "L2 needs noise"),
        ({"gamma": 0.1}, "L0 has no noise"),
        ({"level": "L2", "gamma": 0}, "gamma"),
        ({"level": "L2", "gamma": -0.1}, "gamma"),
        ({"level": "L2", "epsilon": 0}, "epsilon"),
        ({"level": "L2", "epsilon": 1, "gamma": 1}, "give one"),
        ({"level": "L2", "gamma": 1, "delta": 0}, "delta"),
        ({"level": "L2", "gamma": 1, "queries": 0}, "queries"),
        ({"level": "L2", "gamma": 1, "noise": "pink"}, "noise"),
        ({"level": "L2", "gamma": 1, "accounting": "creative"}, "accounting"),
        ({"level": "L2", "mechanism": cg.RandomizedResponse(1)}, "mechanism"),
        ({"level": "L2", "mechanism": cg.LaplaceNoisyMax(1, delta=1e-8), "delta": 1e-5}, "delta.*give one"),
        ({"level": "L2", "mechanism": cg.ConfidentNoisyMax(3, 1, 1), "accounting": "data_dependent"}, "FedKT: Confid"),
        ({"level": "L2", "gamma": 1, "subsets": 25, "partitions": 20}, "hash"),
        ({"consensus": "majority"}, "consensus"),
        ({"ties": "rare", "consensus": cg.DawidSkene()}, "ties='rare'"),
        ({"ties": "rare", "level": "L1", "gamma": 1}, "ties='rare'"),
        ({"consensus": cg.DawidSkene(), "level": "L1", "gamma": 1}, "consensus"),
        ({"teacher": Recorder()}, "no registered name"),
        ({"teacher": "decision_tre"}, "teacher.*Did you mean 'decision_tree'"),
        ({"student": "nope"}, "student.*no learner 'nope'"),
    ],
)
def test_settings_that_make_no_sense_are_an_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cg.FedKT(**settings)


def test_a_private_learner_is_no_teacher(cancer) -> None:
    sites = cancer.sites(cg.PrivateVoting(TREE, teachers=3))
    with pytest.raises(SiteError, match="private"):
        cancer.run(cg.FedKT(), sites=sites)
    assert cancer.run(cg.FedKT(teacher=TREE, student=TREE), sites=sites).refusals.empty


@pytest.mark.parametrize("settings", [{}, {"level": "L1", "gamma": 1.0}, {"level": "L2", "gamma": 1.0}])
def test_more_queries_than_public_samples_are_an_error_before_training(cancer, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"queries must be at most 370.* not 371"):
        cancer.run(cg.FedKT(queries=371, **settings), sites=recorders(cancer))
    assert not FITTED


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_noise_on_votes_for_one_class_is_an_error_before_training(cancer, level) -> None:
    sites = [cg.Site(site.name, site.X, ["benign"] * len(site), learner=site.learner) for site in recorders(cancer)]
    with pytest.raises(ConfigError, match="FedKT: noise on votes needs at least two classes, not 1"):
        cancer.run(cg.FedKT(level=level, gamma=1.0), sites=sites, test=None)
    assert not FITTED
    assert set(cancer.run(cg.FedKT(), sites=sites, test=None).labels.codes) == {0}


def test_numbers_of_numpy_are_as_good_as_plain_ones(cancer, tmp_path) -> None:
    plain = cg.FedKT(partitions=1, subsets=3, level="L2", gamma=0.5, queries=10, delta=1e-5)
    numpys = cg.FedKT(
        partitions=np.int64(1),
        subsets=np.int8(3),
        level="L2",
        gamma=np.float32(0.5),
        queries=np.int64(10),
        delta=np.float64(1e-5),
    )
    assert repr(numpys) == repr(plain)  # this is what a record is compared by
    run = cancer.run(numpys, TREE, out=tmp_path / "run")
    assert run.privacy.equals(cancer.run(plain, TREE).privacy)
    assert len(read_ledger(tmp_path / "run" / "ledger.db")) == 5


def study(**learners: Any) -> cg.Study:
    return cg.Study.from_dict(
        {
            "name": "one-shot",
            "data": {"source": "breast_cancer", "public": 200, "test": 100},
            "partition": {"name": "iid", "sites": 4},
            "algorithm": {"name": "fedkt", "subsets": 3, **learners},
            "sites": [{"learner": {"name": "random_forest", "n_estimators": 5}}],
        }
    )


def test_a_study_file_names_its_learners() -> None:
    run = study(teacher={"name": "decision_tree", "max_depth": 3}, student="decision_tree").run()
    assert type(run.global_model.estimator) is DecisionTreeClassifier


@pytest.mark.parametrize("named", ["nope", {"name": "nope"}])
def test_a_study_file_that_names_no_learner_is_an_error_when_it_is_read(named) -> None:
    with pytest.raises(ConfigError, match=r"algorithm.*teacher.*no learner 'nope'"):
        study(teacher=named)
