from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from collegium.auditing import statistics


@pytest.mark.parametrize(
    ("counts", "bound"),
    [((1000, 100, 90), 1.626144), ((1000, 1000, 600), 0.297227), ((200, 100, 100), 3.487464)],
)
def test_the_one_run_bound_is_the_published_one(counts: tuple[int, int, int], bound: float) -> None:
    assert statistics.one_run_epsilon(*counts, 1e-5, 0.05) == pytest.approx(bound, abs=1e-6)


def test_guesses_that_are_no_better_than_coins_refute_nothing() -> None:
    assert statistics.one_run_epsilon(1000, 200, 100, 1e-5) == 0
    assert statistics.one_run_epsilon(1000, 0, 0, 1e-5) == 0
    with pytest.raises(ValueError, match="impossible"):
        statistics.one_run_epsilon(10, 20, 5, 1e-5)


def test_the_one_run_bound_of_randomized_response_is_below_its_epsilon_in_all_but_alpha_of_the_runs() -> None:
    rng, epsilon, flagged = np.random.default_rng(0), 1.0, 0
    for _ in range(400):
        coins = rng.random(500) < 0.5
        told = coins ^ (rng.random(500) > np.exp(epsilon) / (1 + np.exp(epsilon)))
        right = int((told == coins)[:200].sum())
        flagged += statistics.one_run_epsilon(500, 200, right, 0.0, 0.05) > epsilon
    assert flagged <= 32  # 5% of 400, and three standard deviations


def test_auc_counts_ties_one_half() -> None:
    rng = np.random.default_rng(0)
    coins, scores = rng.random(300) < 0.5, rng.integers(0, 4, 300).astype(float)
    assert statistics.auc(scores, coins) == pytest.approx(roc_auc_score(coins, scores))


def test_the_interval_of_the_auc_holds_the_truth_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(0), 0
    truth = norm.cdf(1 / np.sqrt(2))
    for _ in range(400):
        coins = rng.random(150) < 0.5
        low, high = statistics.auc_interval(rng.normal(size=150) + coins, coins, alpha=0.1)
        held += low <= truth <= high
    assert 0.85 <= held / 400 <= 0.95


def test_perfect_separation_leaves_an_interval_below_one() -> None:
    coins = np.arange(40) < 20
    low, high = statistics.auc_interval(coins.astype(float), coins)
    assert 0.8 < low < 1 == high
    assert statistics.auc_interval(1.0 - coins, coins)[0] == 0


def test_members_found_at_few_false_alarms() -> None:
    scores = np.array([9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    coins = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 1], dtype=bool)
    assert statistics.tpr_at(scores, coins, 0.001) == 0.5  # two members stand above every other
    assert statistics.tpr_at(scores, coins, 0.2) == 0.75
    assert statistics.tpr_at(scores, ~np.zeros(10, bool), 0.1) == 0


def test_several_runs_of_the_same_canaries_are_not_taken_for_more_canaries() -> None:
    rng = np.random.default_rng(0)
    coins = np.tile(rng.random(60) < 0.5, (40, 1))
    scores = np.tile(rng.normal(size=60) + coins[0], (40, 1))  # forty times the same run
    one = statistics.over_runs(scores[:1], coins[:1], (0.01,), 0.05, 0)
    many = statistics.over_runs(scores, coins, (0.01,), 0.05, 0)
    assert many[0] == pytest.approx(one[0])
    width = many[1][1] - many[1][0]
    assert width > 0.5 * (one[1][1] - one[1][0])


def test_roc_rises_from_none_to_all() -> None:
    rng = np.random.default_rng(0)
    coins = rng.random(2000) < 0.5
    false, true = statistics.roc(rng.normal(size=2000) + coins, coins)
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert len(false) < 450


def test_clopper_pearson_is_exact() -> None:
    assert statistics.clopper_pearson(0, 10) == (0.0, pytest.approx(0.3084971))
    assert statistics.clopper_pearson(10, 10)[1] == 1.0
