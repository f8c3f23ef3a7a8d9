"""What an attack's outcome proves, with confidence: intervals of AUC and rates, and lower bounds on epsilon.

Every bound holds with probability 1 - alpha whatever the attack was, as long as its guesses were fixed before the coins
were looked at. Numbers of one run are never mixed with those of another as if they were independent.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import beta, binom, rankdata

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]
_LARGEST_EPSILON: Final = 50.0
_RESAMPLES: Final = 400


def clopper_pearson(right: int, of: int, alpha: float = 0.05) -> tuple[float, float]:
    """The exact interval of a probability of which `right` successes out of `of` were seen."""
    low = 0.0 if right == 0 else float(beta.ppf(alpha / 2, right, of - right + 1))
    high = 1.0 if right == of else float(beta.ppf(1 - alpha / 2, right + 1, of - right))
    return low, high


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float = 0.05) -> float:
    """The largest epsilon that one run refutes, at confidence 1 - alpha; 0 if it refutes none.

    Of `canaries` that were each in or out by a fair coin, `guesses` were guessed and `right` of these guesses were
    right. Steinke, Nasr, Jagielski: "Privacy Auditing with One (1) Training Run", NeurIPS 2023, Theorem 5.2.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} right of {guesses} guesses of {canaries} canaries is impossible.")
    if not guesses or _p_value(canaries, guesses, right, 0.0, delta) > alpha:
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _p_value(canaries, guesses, right, middle, delta) < alpha else (low, middle)
    return low


def _p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are, at most, if the run is (epsilon, delta)-differentially private."""
    chance = float(expit(epsilon))
    beyond = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return beyond
    nearly = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    return min(1.0, beyond + float((nearly / np.arange(1, right + 1)).max()) * 2 * canaries * delta)


def auc(scores: Floats, coins: Coins) -> float:
    """How often a member scores above a non-member; ties count one half."""
    members, others = int(coins.sum()), int((~coins).sum())
    if not members or not others:
        return math.nan
    ranks = rankdata(scores)
    return float((ranks[coins].sum() - members * (members + 1) / 2) / (members * others))


def auc_interval(scores: Floats, coins: Coins, alpha: float = 0.05) -> tuple[float, float]:
    """An interval of the AUC of one run (DeLong's variance, on the logit scale so that it stays within 0 and 1)."""
    members, others = scores[coins], scores[~coins]
    if len(members) < 2 or len(others) < 2:
        return 0.0, 1.0
    found = auc(scores, coins)
    above = (rankdata(np.concatenate([members, others]))[: len(members)] - rankdata(members)) / len(others)
    below = 1 - (rankdata(np.concatenate([others, members]))[: len(others)] - rankdata(others)) / len(members)
    error = math.sqrt(above.var(ddof=1) / len(members) + below.var(ddof=1) / len(others))
    if not 0 < found < 1:  # perfect separation has no variance; nothing is known beyond the number of records
        return (0.0, 1.0 - _least(alpha, members)) if found <= 0 else (_least(alpha, members), 1.0)
    reach = float(ndtri(1 - alpha / 2)) * error / (found * (1 - found))
    return float(expit(logit(found) - reach)), float(expit(logit(found) + reach))


def _least(alpha: float, members: Floats) -> float:
    return float((alpha / 2) ** (1 / len(members)))


def tpr_at(scores: Floats, coins: Coins, fpr: float) -> float:
    """The share of members found by the threshold that lets at most a share `fpr` of non-members pass."""
    others = np.sort(scores[~coins])[::-1]
    if not len(others) or not coins.any():
        return 0.0
    allowed = math.floor(fpr * len(others) + 1e-9)
    threshold = others[allowed] if allowed < len(others) else -math.inf
    return float(np.mean(scores[coins] > threshold))


def roc(scores: Floats, coins: Coins, points: int = 200) -> tuple[Floats, Floats]:
    """False and true positive rates over all thresholds, thinned to about so many points."""
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], coins[order]
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    true = np.concatenate([[0], np.cumsum(hits)[last]]) / max(1, int(coins.sum()))
    false = np.concatenate([[0], np.cumsum(~hits)[last]]) / max(1, int((~coins).sum()))
    kept = np.unique(np.concatenate([np.arange(min(points, len(true))), np.linspace(0, len(true) - 1, points)]).round())
    places = kept.astype(np.intp)
    return false[places], true[places]


def over_runs(
    scores: Floats, coins: Coins, fprs: tuple[float, ...], alpha: float, seed: int
) -> tuple[float, tuple[float, float], dict[float, float], dict[float, tuple[float, float]]]:
    """AUC and TPR of several runs of the same canaries, arrays of shape (runs, canaries), with intervals.

    The AUC is the mean over runs. Runs share their canaries, so canaries, not pairs of run and canary, are drawn again
    for the intervals.
    """
    runs, canaries = scores.shape
    if runs == 1:
        one, truth = scores[0], coins[0]
        bounds = {
            fpr: clopper_pearson(round(tpr_at(one, truth, fpr) * truth.sum()), int(truth.sum()), alpha) for fpr in fprs
        }
        return auc(one, truth), auc_interval(one, truth, alpha), {fpr: tpr_at(one, truth, fpr) for fpr in fprs}, bounds

    def measured(columns: NDArray[np.intp]) -> list[float]:
        part, truth = scores[:, columns], coins[:, columns]
        mean = float(np.nanmean([auc(part[run], truth[run]) for run in range(runs)]))
        return [mean, *(tpr_at(part.ravel(), truth.ravel(), fpr) for fpr in fprs)]

    rng = np.random.default_rng(seed)
    found = measured(np.arange(canaries))
    resamples = min(_RESAMPLES, max(50, 4_000_000 // scores.size))
    drawn = np.array([measured(np.asarray(rng.integers(canaries, size=canaries))) for _ in range(resamples)])
    low, high = np.quantile(drawn, [alpha / 2, 1 - alpha / 2], axis=0)
    rates = {fpr: found[1 + place] for place, fpr in enumerate(fprs)}
    bounds = {fpr: (float(low[1 + place]), float(high[1 + place])) for place, fpr in enumerate(fprs)}
    return found[0], (float(low[0]), float(high[0])), rates, bounds
