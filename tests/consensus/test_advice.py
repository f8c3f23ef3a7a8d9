"""Which rule to take is said before the run, where the sites' rows show it."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import collegium as cg
from collegium.consensus.advice import SKEWED, skew_of

MAJORITY = cg.FedCT(consensus=cg.Majority())


def sites(partition: Any, n: int = 600) -> tuple[list[cg.Site], Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    split = cg.split(X, (X[:, 0] > 0).astype(int), 5, public=100, test=50, partition=partition, seed=0)
    return [cg.Site(f"s{i}", *part, DecisionTreeClassifier()) for i, part in enumerate(split.sites)], split


@pytest.mark.parametrize("most", [30, 40])
def test_skewed_sites_are_told_what_to_take(most: int) -> None:
    rows, split = sites(cg.Iid())
    X = rows[0].X[:40]
    skewed = [
        cg.Site(f"s{i}", X, np.roll([i % 2] * most + [1 - i % 2] * (40 - most), i), rows[0].learner) for i in range(4)
    ]
    assert skew_of(skewed) == pytest.approx(most / 40 - 0.5)
    with pytest.warns(cg.Advice, match=re.escape('consensus = "informed", voters = "familiar"), and guard')):
        cg.run(cg.FedCT(rounds=1), sites=skewed, public=split.public)
    assert 'Consider the rule DawidSkene (in a study: consensus = "dawid_skene");' in cg.FedKT().advice(skewed)
    assert "the voters Familiar" in cg.FedCT(votes="secret").advice(skewed)
    assert "Consider guard = true" in cg.FedCT(mechanism=cg.RandomizedResponse(epsilon=4)).advice(skewed)


def test_nothing_is_said_where_classes_are_alike_or_the_rule_weighs_votes() -> None:
    alike, split = sites(cg.Iid())
    skewed, _ = sites(cg.BalancedDirichlet(0.1))
    assert skew_of(alike) < SKEWED
    with warnings.catch_warnings():
        warnings.simplefilter("error", cg.Advice)
        cg.run(cg.FedCT(rounds=1, consensus=cg.Majority()), sites=alike, public=split.public)
        cg.run(cg.FedKT(consensus=cg.Majority()), sites=alike, public=split.public)
        cg.run(cg.FedCT(rounds=1, consensus=cg.Informed()), sites=skewed, public=split.public)
        cg.run(cg.Local(), sites=skewed)
    assert cg.FedCT(consensus=cg.Majority(), guard=True).advice(skewed) is None
    assert skew_of(alike[:1]) == 0


def test_sites_with_different_learners_are_told_what_to_take() -> None:
    alike, split = sites(cg.Iid())
    mixed = [replace(site, learner=GaussianNB()) if i == 1 else site for i, site in enumerate(alike)]
    with pytest.warns(cg.Advice, match=r"bring different learners.*Informed with the voters Familiar.*guard = true;"):
        cg.run(cg.FedCT(rounds=1), sites=mixed, public=split.public)
    assert 'consensus = "informed"' in cg.FedKT().advice(mixed)
    own = cg.FedKT(consensus=cg.Majority(), teacher=GaussianNB(), student=GaussianNB())
    assert own.advice(mixed) is None  # nobody's own learner is used
    piped = [replace(site, learner=make_pipeline(StandardScaler(), site.learner)) for site in alike]
    assert MAJORITY.advice([alike[0], *piped[1:]]) is None  # the same learner, whatever is in front of it
    nets = [
        replace(site, learner=cg.TorchClassifier(nn.Linear(2, 2), steps=3)) for site in alike
    ]  # whose `steps` are no pipeline's
    assert cg.FedCT().advice(nets) is None


def test_who_has_chosen_no_rule_is_told_of_one_where_sites_are_alike() -> None:
    alike, split = sites(cg.Iid())
    with pytest.warns(cg.Advice, match=r"No rule was chosen.*Informed with the voters Familiar"):
        cg.run(cg.FedCT(rounds=1), sites=alike, public=split.public)
    assert cg.AIMHI().advice(alike) == cg.FedCT().advice(alike)
    assert replace(cg.FedCT(), rounds=3).advice(alike) == cg.FedCT().advice(alike)
    assert cg.FedCT() == MAJORITY  # it is the same rule all the same
    assert MAJORITY.advice(alike) is None
    study: dict[str, Any] = {"name": "a", "data": {"source": "breast_cancer"}, "partition": {"name": "iid", "sites": 3}}
    study["sites"] = [{"learner": "decision_tree"}]
    for named, said in (({}, True), ({"consensus": "majority"}, False)):
        built = cg.Study.from_dict(study | {"algorithm": {"name": "fedct"} | named}).build_algorithm()
        assert (built.advice(alike) is not None) == said


INFORMED = 'Consider the rule Informed (in a study: consensus = "informed")'
WITH_FAMILIAR = "Consider the rule Informed with the voters Familiar"


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (cg.FedKT(), INFORMED.removeprefix("Consider ")),
        (cg.FedKT(teacher=GaussianNB(), student=GaussianNB()), INFORMED.removeprefix("Consider ")),
        (cg.FedCT(voters=cg.Familiar()), INFORMED),
        (cg.FedCT(guard=True), WITH_FAMILIAR),
        (cg.AIMHI(guard=True), WITH_FAMILIAR),
        (cg.FedCT(votes="secret"), 'Consider the voters Familiar (in a study: voters = "familiar") with guard = true'),
    ],
)
def test_it_is_said_of_every_setting_that_leaves_the_rule_open(method: Any, said: str) -> None:
    alike, _ = sites(cg.Iid())
    for rows in (alike, []):  # nothing is known of the rows in a federation
        assert said in method.advice(rows)
    assert replace(method, consensus=cg.Majority()).advice(alike) is None


def test_counts_are_not_advised_to_who_wants_noise_on_records() -> None:
    skewed, _ = sites(cg.BalancedDirichlet(0.1))
    for method in (cg.FedKT(level="L2", gamma=0.1), cg.FedKT(level="L1", gamma=0.1), cg.FedKT(ties="rare")):
        assert method.advice(skewed) is None
    private = [replace(site, learner=cg.PrivateVoting(GaussianNB(), teachers=5, epsilon=4.0)) for site in skewed]
    assert cg.FedCT().advice(private) is None


def test_another_spelling_of_a_class_is_no_skew() -> None:
    alike, _ = sites(cg.Iid())
    words = [replace(site, y=np.where(site.y == 1, "ill", "well")) for site in alike]
    spelled = [replace(site, y=np.char.upper(site.y)) if i else site for i, site in enumerate(words)]
    assert skew_of(spelled) == pytest.approx(skew_of(alike))
