"""Plausible: the labels of another rule, without those that the model of the public rows contradicts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.consensus.meetings import Meetings, say

import collegium as cg
from collegium.core.building import build
from collegium.errors import ConfigError

VOTES = [[0, 1, 2, -1, 0], [0, 1, 2, -1, 0]]
OPINION = np.array([[0.9, 0.05, 0.05], [0.85, 0.1, 0.05], [0.5, 0.46, 0.04], [1.0, 0.0, 0.0], [0.05, 0.9, 0.05]])


@pytest.mark.parametrize(
    ("odds", "expected"), [(10.0, [0, 1, -1, -1, -1]), (20.0, [0, 1, 2, -1, 0]), (1.0, [0, -1, -1, -1, -1])]
)
def test_a_label_is_left_out_where_another_class_is_so_many_times_as_probable(
    meeting: Meetings, odds: float, expected: list[int]
) -> None:
    fed = meeting(VOTES)
    fed.opinion = OPINION
    labels = cg.Plausible(cg.Majority(), odds=odds)(fed, say())
    assert labels.codes.tolist() == expected
    noted = [row["value"] for row in fed.observed.metrics if row["metric"] == "implausible"]
    assert noted == [pytest.approx(sum(code == -1 for code in expected[:3] + expected[4:]) / 4)]


def test_where_nothing_is_known_of_the_rows_it_is_the_rule_inside(meeting: Meetings) -> None:
    fed = meeting(VOTES)
    assert cg.Plausible(cg.Majority())(fed, say()).codes.tolist() == [0, 1, 2, -1, 0]
    assert not [row for row in fed.observed.metrics if row["metric"] == "implausible"]


def test_where_nobody_votes_nothing_is_left_out(meeting: Meetings) -> None:
    fed = meeting([[-1, -1], [-1, -1]])
    fed.opinion = OPINION[:2]
    assert cg.Plausible(cg.Majority())(fed, say()).codes.tolist() == [-1, -1]
    assert [row["value"] for row in fed.observed.metrics if row["metric"] == "implausible"] == [0.0]


def test_it_can_be_written_in_a_study() -> None:
    table = {"name": "plausible", "odds": 5, "rule": {"name": "qualified_majority", "quorum": 0.8}}
    assert build("consensus", table, "algorithm.consensus") == cg.Plausible(cg.QualifiedMajority(0.8), odds=5)
    assert cg.Plausible() == cg.Plausible(cg.Informed())
    with pytest.raises(ConfigError, match="odds"):
        cg.Plausible(odds=0.0)


def test_it_takes_what_the_rule_inside_takes() -> None:
    assert cg.FedCT(consensus=cg.Plausible(cg.Majority()), votes="secret").consensus.counts_only
    with pytest.raises(ConfigError, match="Plausible compares the votes of single sites"):
        cg.FedCT(consensus=cg.Plausible(), votes="secret")
    assert cg.Plausible(cg.Guarded()).guards
    assert not cg.Plausible().guards
