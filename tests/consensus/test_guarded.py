"""Guarded: the labels of another rule, and a site that takes only what helps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collegium as cg
from collegium.core.building import build
from collegium.errors import ConfigError


@pytest.mark.parametrize("rule", [cg.Majority(), cg.Informed()])
def test_it_is_the_rule_with_a_guard(cancer: Any, rule: cg.Consensus) -> None:
    wrapped = cancer.run(cg.FedCT(rounds=2, consensus=cg.Guarded(rule)))
    set_apart = cancer.run(cg.FedCT(rounds=2, consensus=rule, guard=True))
    assert "consensus_share" in set(wrapped.metrics["metric"])
    np.testing.assert_array_equal(wrapped.labels.codes, set_apart.labels.codes)
    assert wrapped.accuracy.equals(set_apart.accuracy)
    assert set(wrapped.releases["kind"]) == set(set_apart.releases["kind"])


def test_it_can_be_written_in_a_study() -> None:
    table = {"name": "guarded", "rule": {"name": "qualified_majority", "quorum": 0.8}}
    assert build("consensus", table, "algorithm.consensus") == cg.Guarded(cg.QualifiedMajority(0.8))
    assert cg.Guarded() == cg.Guarded(cg.Informed())


def test_secret_votes_are_for_what_is_inside() -> None:
    assert cg.FedCT(consensus=cg.Guarded(cg.Majority()), votes="secret").consensus.counts_only
    with pytest.raises(ConfigError, match="Guarded compares the votes of single sites"):
        cg.FedCT(consensus=cg.Guarded(cg.DawidSkene()), votes="secret")


def test_noise_that_the_rule_inside_cannot_count_is_refused() -> None:
    bits = cg.UnaryEncoding(epsilon=2.0)
    assert cg.FedCT(consensus=cg.Guarded(cg.Majority()), mechanism=bits).mechanism == bits
    with pytest.raises(ConfigError, match="cannot count ApprovalBits"):
        cg.FedCT(consensus=cg.Guarded(cg.DawidSkene()), mechanism=bits)


def test_a_method_whose_sites_learn_nothing_from_the_consensus_says_so() -> None:
    with pytest.raises(ConfigError, match="nothing to guard"):
        cg.FedKT(consensus=cg.Guarded())


def test_a_rule_inside_asks_and_adds_noise_as_it_does_alone() -> None:
    rule = cg.Informed(epsilon=1.0)
    steps = rule.all_steps()
    assert cg.Guarded(rule).all_steps() == steps
    assert [cg.Guarded(rule).noise_on(each) for each in steps.values()] == [rule.noise_on(s) for s in steps.values()]
