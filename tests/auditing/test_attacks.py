from __future__ import annotations

import numpy as np
import pytest

from collegium.auditing import attacks, statistics
from collegium.auditing.evidence import Evidence, Reading
from collegium.errors import ConfigError


def seen(hard: bool, *, runs: int = 40, canaries: int = 120, population: int = 80, signal: float = 0.5):
    """Runs in which members have a larger number on average; canaries differ in how hard they are."""
    rng = np.random.default_rng(0)
    coins = rng.random((runs, canaries)) < 0.5
    easy = rng.uniform(0.1, 0.6, canaries + population)
    evidence = []
    for run in range(runs):
        likely = easy + np.append(signal * coins[run] * 0.7, np.zeros(population)) + rng.normal(size=len(easy)) * 0.02
        values = (rng.random(len(easy)) < likely).astype(float) if hard else np.clip(likely, 0, 1)
        evidence.append(Evidence({"a#0": Reading(values[:, None], hard, easy[:, None])}))
    codes = rng.integers(0, 2, canaries + population)
    return attacks.gather(evidence, coins, codes, own_row=False), coins


@pytest.mark.parametrize("attack", ["one_run", "lira", "rmia", "shokri"])
@pytest.mark.parametrize("hard", [True, False])
def test_every_attack_tells_members_from_others(attack: str, hard: bool) -> None:
    what, coins = seen(hard)
    scores = attacks.score(what, attack, 0)
    assert scores.shape == coins.shape
    found = np.mean([statistics.auc(s, c) for s, c in zip(scores, coins, strict=True)])
    assert found > (0.62 if hard else 0.8)


@pytest.mark.parametrize("attack", ["one_run", "lira", "rmia", "shokri"])
def test_no_attack_finds_what_is_not_there(attack: str) -> None:
    what, coins = seen(False, signal=0.0)
    scores = attacks.score(what, attack, 0)
    found = np.mean([statistics.auc(s, c) for s, c in zip(scores, coins, strict=True)])
    assert abs(found - 0.5) < 0.02


def test_a_run_is_never_scored_with_itself() -> None:
    what, _ = seen(False, runs=6)
    before = attacks.score(what, "lira", 0)
    other = attacks.Seen(
        what.hard,
        what.soft.copy(),
        what.canaries,
        what.coins.copy(),
        what.expected_hard,
        what.expected_soft,
        what.codes,
    )
    other.coins[0] ^= True  # what the first run's coins were is what the attack must not use for it
    assert attacks.score(other, "lira", 0)[0] == pytest.approx(before[0])
    assert attacks.score(other, "rmia", 0)[0] == pytest.approx(attacks.score(what, "rmia", 0)[0])


def test_quantile_regression_needs_scores_and_no_shadows() -> None:
    what, coins = seen(False, runs=1, population=300)
    assert statistics.auc(attacks.score(what, "quantile", 0)[0], coins[0]) > 0.8
    with pytest.raises(ConfigError, match="needs a view that gives any record a score"):
        attacks.score(seen(True, runs=1)[0], "quantile", 0)


def test_likelihood_ratios_need_shadows() -> None:
    with pytest.raises(ConfigError, match="pass shadows=16"):
        attacks.score(seen(True, runs=1)[0], "lira", 0)


def test_only_what_all_runs_told_is_compared() -> None:
    told, more = Reading(np.ones((3, 1)), True), Reading(np.zeros((3, 2)), False)
    evidence = [Evidence({"a#0": told, "b#0": more}), Evidence({"a#0": told})]
    what = attacks.gather(evidence, np.ones((2, 3), bool), np.zeros(3, np.int64), own_row=False)
    assert what.hard.shape == (2, 3, 1)
    assert what.soft.shape == (2, 3, 0)


def likelihoods(a: float, coins: np.ndarray, spread: float = 0.02) -> attacks.Seen:
    """Records of all degrees of difficulty p, of which a member has a p + 1 - a; none is nobody's."""
    rng = np.random.default_rng(1)
    hardness = rng.uniform(0.05, 0.95, coins.shape[1])
    likely = np.where(coins, a * hardness + 1 - a, hardness) + spread * rng.normal(size=coins.shape)
    none = np.zeros((*coins.shape, 0))
    codes = np.zeros(coins.shape[1], np.int64)
    return attacks.Seen(none, likely[:, :, None], len(codes), coins, none[0], np.full((len(codes), 1), 0.5), codes)


def test_rmia_learns_from_other_runs_how_much_surer_models_are_of_members() -> None:
    coins = np.random.default_rng(0).random((8, 400)) < 0.5
    what = likelihoods(0.9, coins)
    likely = what.soft[:, :, 0]

    def mean_auc(scores: list[np.ndarray]) -> float:
        return float(np.mean([statistics.auc(s, c) for s, c in zip(scores, coins, strict=True)]))

    others = [set(range(8)) - {run} for run in range(8)]
    fixed = [attacks._relative(likely, ~coins, 400, run, others[run], attacks.RMIA_OFFLINE) for run in range(8)]
    assert mean_auc(list(attacks.score(what, "rmia", 0))) > mean_auc(fixed) + 0.05


def test_rmia_does_not_mistake_a_canary_that_was_in_the_only_shadow() -> None:
    coins = np.zeros((2, 400), dtype=bool)
    coins[1, :200] = True
    scores = attacks.score(likelihoods(attacks.RMIA_OFFLINE, coins, spread=0.0), "rmia", 0)[0]
    assert scores[:200].mean() == pytest.approx(scores[200:].mean(), rel=0.1)
