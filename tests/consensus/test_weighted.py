"""Weighted majority: by mapping, by samples, by agreement."""

from __future__ import annotations

import numpy as np
import pytest
from tests.consensus.meetings import Meetings, say

import collegium as cg
from collegium.consensus.weighted import log_odds
from collegium.core import Labels
from collegium.errors import ConfigError


def test_the_largest_sum_of_weights_wins(meeting: Meetings) -> None:
    votes = [[0, 0, 0, -1], [1, 1, 0, -1], [1, 2, 1, -1]]
    fed = meeting(votes)
    assert cg.WeightedMajority({"s0": 3, "s1": 1, "s2": 1})(fed, say()).codes.tolist() == [0, 0, 0, -1]
    assert cg.WeightedMajority({"s0": 1, "s1": 1, "s2": 5})(fed, say()).codes.tolist() == [1, 2, 1, -1]


def test_a_site_without_a_weight_counts_one(meeting: Meetings) -> None:
    fed = meeting([[0], [1], [1]])
    assert cg.WeightedMajority({"s0": 1.5})(fed, say()).codes.tolist() == [1]
    assert cg.WeightedMajority({"s0": 2.5})(fed, say()).codes.tolist() == [0]


def test_equal_weights_are_the_plain_majority_ties_included(meeting: Meetings) -> None:
    votes = np.random.default_rng(0).integers(-1, 3, size=(6, 2000))
    fed = meeting(votes)
    plain = cg.Majority()(fed, say())
    assert cg.WeightedMajority({f"s{i}": 2.0 for i in range(6)})(fed, say()) == plain
    assert cg.WeightedMajority({})(fed, say()) == plain


def test_a_weight_of_zero_silences_a_site(meeting: Meetings) -> None:
    fed = meeting([[0, 0], [1, -1]])
    assert cg.WeightedMajority({"s0": 0})(fed, say()).codes.tolist() == [1, -1]


def test_by_samples_a_site_counts_as_much_as_it_has(meeting: Meetings) -> None:
    fed = meeting([[0, 0], [1, 1], [1, 2]], samples=[10, 4, 5])
    assert cg.WeightedMajority("samples")(fed, say()).codes.tolist() == [0, 0]
    fed = meeting([[0, 0], [1, 1], [1, 2]], samples=[8, 4, 5])
    assert cg.WeightedMajority()(fed, say()).codes.tolist() == [1, 0]


def test_by_samples_each_site_releases_its_count_beside_its_labels(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=2, consensus=cg.WeightedMajority("samples")))
    assert run.releases.groupby(["party", "kind"]).size().to_dict() == {
        (f"site{i}", kind): 2 for i in range(5) for kind in ("Count", "HardLabels")
    }
    by_hand = cancer.run(cg.FedCT(rounds=2, consensus=cg.WeightedMajority({})))
    assert set(by_hand.releases["kind"]) == {"HardLabels"}


def test_run_weighs_the_votes_of_the_models(cancer) -> None:
    weights = {"site0": 1.0, "site1": 10.0, "site2": 2.0, "site3": 3.0, "site4": 3.5}
    run = cancer.run(cg.FedCT(rounds=1, consensus=cg.WeightedMajority(weights)))
    dictator = run.models["site1"].predict(cancer.split.public)
    np.testing.assert_array_equal(run.classes[run.labels.codes], dictator)
    assert run.labels != cancer.run(cg.FedCT(rounds=1)).labels


def test_by_agreement_sites_that_guess_do_not_outvote_the_others(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    good = [np.where(rng.random(3000) < 0.9, truth, rng.integers(3, size=3000)) for _ in range(3)]
    guesses = [rng.integers(3, size=3000) for _ in range(4)]
    fed = meeting([*good, *guesses])
    weighted = np.mean(cg.WeightedMajority("agreement")(fed, say()).codes == truth)
    plain = np.mean(cg.Majority()(fed, say()).codes == truth)
    assert weighted > plain + 0.04


def test_log_odds_are_zero_for_guessing_and_grow_with_agreement() -> None:
    majority = np.arange(3000) % 3
    half_right = Labels(np.where(np.arange(3000) % 2, majority, (majority + 1) % 3), 3)
    assert log_odds(Labels(majority, 3), majority, 3) > log_odds(half_right, majority, 3) > 0
    assert log_odds(half_right, majority, 3) == pytest.approx(np.log(1 * 2), abs=0.01)  # p = 1/2 of three classes
    assert log_odds(Labels(np.zeros(3000, dtype=int), 3), majority, 3) == pytest.approx(0, abs=1e-9)
    assert log_odds(Labels((majority + 1) % 3, 3), majority, 3) == 0  # never against a site
    assert log_odds(Labels(np.full(3000, -1), 3), majority, 3) == 0  # said nothing


def test_by_agreement_all_who_agree_count_alike(meeting: Meetings) -> None:
    fed = meeting([[0, 1, 2, -1]] * 3)
    assert cg.WeightedMajority("agreement")(fed, say()).codes.tolist() == [0, 1, 2, -1]


@pytest.mark.parametrize(
    ("quorum", "label"), [(0.0, 0), (0.5, 0), (0.75, 0), (0.76, -1), (1.0, -1)]
)  # site 0 has 3 of the 4 votes cast
def test_the_quorum_is_a_share_of_the_weight_cast(meeting: Meetings, quorum: float, label: int) -> None:
    fed = meeting([[0], [1], [-1]])
    rule = cg.WeightedMajority({"s0": 3, "s1": 1, "s2": 50}, quorum=quorum)
    assert rule(fed, say()).codes.tolist() == [label]


@pytest.mark.parametrize("weights", [{"a": -1}, {"a": float("nan")}, {"a": float("inf")}, "size", ""])
def test_bad_weights_are_an_error(weights) -> None:
    with pytest.raises(ConfigError, match="weights"):
        cg.WeightedMajority(weights)


@pytest.mark.parametrize("quorum", [-0.1, 1.1, float("nan")])
def test_a_bad_quorum_is_an_error(quorum: float) -> None:
    with pytest.raises(ConfigError, match="quorum"):
        cg.WeightedMajority(quorum=quorum)


def test_the_order_in_which_sites_answer_changes_nothing(meeting: Meetings) -> None:
    outcomes = set()
    for order in ("s0 s1 s2 s3", "s2 s1 s0 s3", "s3 s1 s0 s2", "s1 s2 s3 s0"):
        fed = meeting([[0], [0], [0], [1]])
        link = fed._correspondence._link
        exchange = link.exchange

        def reordered(orders, deadline, exchange=exchange, order=order):
            replies = {answer.party: answer for answer in exchange(orders, deadline)}
            yield from (replies[party] for party in order.split())

        link.exchange = reordered
        rule = cg.WeightedMajority({"s0": 0.1, "s1": 0.2, "s2": 0.3, "s3": 0.6})
        outcomes.add(int(rule(fed, say()).codes[0]))
    assert len(outcomes) == 1


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e-16])
@pytest.mark.parametrize("share", [0.51, 0.53, 0.55, 0.57, 0.6, 0.7, 0.9])
def test_a_share_of_exactly_the_quorum_is_enough_whatever_the_scale(
    meeting: Meetings, scale: float, share: float
) -> None:
    fed = meeting([[0], [1]])
    heavy = cg.WeightedMajority({"s0": share * scale, "s1": (1 - share) * scale}, quorum=share)
    assert heavy(fed, say()) == Labels(np.array([0]), 3)
    even = cg.WeightedMajority({"s0": scale, "s1": scale}, quorum=0.9)
    assert even(meeting([[0], [1]]), say()) == Labels(np.array([-1]), 3)


@pytest.mark.parametrize("weights", [{"a": "x"}, 3, None, "size", {"a": -1}, {"a": float("inf")}])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(cg.ConfigError, match="weights"):
        cg.WeightedMajority(weights)


def test_a_weight_for_a_site_that_is_not_there_is_refused(digits):
    with pytest.raises(cg.ConfigError, match="no site 'sitO'"):
        digits.run(cg.FedCT(rounds=1, consensus=cg.WeightedMajority({"sitO": 2.0})))
