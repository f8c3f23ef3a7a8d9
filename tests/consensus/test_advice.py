"""Which rule to take is said before the run, where the sites' rows show it."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.consensus.advice import SKEWED, skew_of


def sites(partition: Any, n: int = 600) -> tuple[list[cg.Site], Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    split = cg.split(X, (X[:, 0] > 0).astype(int), 5, public=100, test=50, partition=partition, seed=0)
    return [cg.Site(f"s{i}", *part, DecisionTreeClassifier()) for i, part in enumerate(split.sites)], split


@pytest.mark.parametrize(("most", "voters"), [(30, ""), (38, ", voters=cg.Familiar()"), (40, ", voters=cg.Familiar()")])
def test_skewed_sites_are_told_what_to_take(most: int, voters: str) -> None:
    rows, split = sites(cg.Iid())
    X = rows[0].X[:40]
    skewed = [
        cg.Site(f"s{i}", X, np.roll([i % 2] * most + [1 - i % 2] * (40 - most), i), rows[0].learner) for i in range(4)
    ]
    assert skew_of(skewed) == pytest.approx(most / 40 - 0.5)
    with pytest.warns(cg.Advice, match=re.escape(f"consensus=cg.Informed(){voters} and guard=True")):
        cg.run(cg.FedCT(rounds=1), sites=skewed, public=split.public)
    assert "consensus=cg.Informed()" in cg.FedKT().advice(skewed)
    assert "Consider guard=True" in cg.FedCT(mechanism=cg.RandomizedResponse(epsilon=4)).advice(skewed)


def test_nothing_is_said_where_classes_are_alike_or_the_rule_weighs_votes() -> None:
    alike, split = sites(cg.Iid())
    skewed, _ = sites(cg.BalancedDirichlet(0.1))
    assert skew_of(alike) < SKEWED
    with warnings.catch_warnings():
        warnings.simplefilter("error", cg.Advice)
        cg.run(cg.FedCT(rounds=1), sites=alike, public=split.public)
        cg.run(cg.FedCT(rounds=1, consensus=cg.Informed()), sites=skewed, public=split.public)
        cg.run(cg.Local(), sites=skewed)
    assert cg.FedCT(guard=True).advice(skewed) is None
    assert skew_of(alike[:1]) == 0
