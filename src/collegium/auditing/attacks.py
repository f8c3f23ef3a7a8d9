"""Membership attacks: from what was read about each canary to a score, larger for those that are more likely there.

Steinke, Nasr, Jagielski 2023 (one run, no shadows); Carlini et al. 2022 (LiRA; on labels, Bernoulli ratios over rounds
and rows, as Choquette-Choo et al. 2021 use labels alone); Zarifzadeh, Liu, Shokri 2024 (RMIA); Bertran et al. 2023
(quantile regression); Shokri et al. 2017 (shadow models), which FedCT and AIMHI report as VUL.

A run is scored with the other runs as its shadows, never with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from collegium.auditing.evidence import Evidence
from collegium.auditing.statistics import auc
from collegium.errors import ConfigError
from collegium.links.hosting import threads_per_site

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]
Attack = Literal["one_run", "lira", "rmia", "quantile", "shokri"]
FEW_SHADOWS: Final = 16
"""With fewer, RMIA tells more than LiRA."""
_MARGIN: Final = 1e-3
RMIA_OFFLINE: Final = 0.33
"""What an IN model gives beyond an OUT model, as RMIA's paper has it: P_in = a P_out + 1 - a."""
_OFFLINE_CHOICES: Final = tuple(place / 10 for place in range(11))
_TUNED_ON: Final = 4
"""So many other runs choose among these; with fewer, the paper's value is better than their choice."""
_FOLDS: Final = 4


@dataclass(frozen=True, eq=False)
class Seen:
    """What all runs of a game told: arrays of shape (runs, targets, features)."""

    hard: Floats
    soft: Floats
    canaries: int
    coins: Coins
    """Of shape (runs, canaries)."""
    expected_hard: Floats
    expected_soft: Floats
    """What a model without any canary says in the place of each feature of the first run."""
    codes: NDArray[np.int64]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.coins)


def gather(evidence: Sequence[Evidence], coins: Coins, codes: NDArray[np.int64], *, own_row: bool) -> Seen:
    """Line up what the runs told. Only what all of them told is compared.

    At a canary's own row there is more to see than at its neighbours', in which it would drown: those are left out.
    """
    values: dict[bool, list[Floats]] = {True: [], False: []}
    beside: dict[bool, list[Floats]] = {True: [], False: []}
    for name, first in evidence[0].readings.items():
        readings = [each.readings[name] for each in evidence if name in each.readings]
        if len(readings) < len(evidence):
            continue
        is_hard = all(each.hard for each in readings)
        columns = 1 if own_row and "again/" not in name else min(each.values.shape[1] for each in readings)
        values[is_hard].append(np.stack([_padded(each.values[:, :columns], len(codes)) for each in readings]))
        expected = np.full((1, columns), 0.5) if first.expected is None else first.expected[:, :columns]
        beside[is_hard].append(_padded(np.broadcast_to(expected, (len(first.values), columns)), len(codes)))
    none = np.zeros((len(evidence), len(codes), 0))
    hard, soft = (np.concatenate([none, *values[kind]], axis=2) for kind in (True, False))
    expected_hard, expected_soft = (np.concatenate([none[0], *beside[kind]], axis=1) for kind in (True, False))
    return Seen(hard, soft, coins.shape[1], coins, expected_hard, expected_soft, codes)


def _padded(values: Floats, rows: int) -> Floats:
    """Public rows say nothing of the population: its rows are NaN there."""
    return np.concatenate([values, np.full((rows - len(values), values.shape[1]), np.nan)])


def score(seen: Seen, attack: Attack, seed: int) -> Floats:
    """A score for every run and canary, of shape (runs, canaries)."""
    if seen.runs == 1 and attack not in ("one_run", "quantile"):
        raise ConfigError(f"audit: {attack} compares with shadow runs: pass shadows=16 or more, or attack='one_run'.")
    with threads_per_site():  # many small fits: threads would only wait for each other
        return _ATTACKS[attack](seen, seed)


def _by_reference(seen: Seen, seed: int) -> Floats:
    """How much more the run agrees with a canary's label than a model without any canary does."""
    said = (seen.hard - seen.expected_hard)[:, : seen.canaries].sum(axis=2)
    soft = (_logit(seen.soft) - _logit(seen.expected_soft))[:, : seen.canaries].sum(axis=2)
    return np.asarray(said + soft)


def _likelihood_ratio(seen: Seen, seed: int) -> Floats:
    """LiRA: how much likelier what was seen is with the canary than without it, by all other runs."""
    inside = seen.coins[:, :, None].astype(np.float64)
    ratio = np.zeros(seen.coins.shape)
    if seen.hard.shape[2]:
        said = seen.hard[:, : seen.canaries]
        (n_in, n_out), (said_in, said_out) = _others(np.ones_like(said), inside), _others(said, inside)
        p_in, p_out = (said_in + 0.5) / (n_in + 1), (said_out + 0.5) / (n_out + 1)
        ratio += (said * np.log(p_in / p_out) + (1 - said) * np.log((1 - p_in) / (1 - p_out))).sum(axis=2)
    if seen.soft.shape[2]:
        value = _logit(seen.soft[:, : seen.canaries])
        (n_in, n_out), (sum_in, sum_out) = _others(np.ones_like(value), inside), _others(value, inside)
        mean_in, mean_out = (_ratio(total, n) for total, n in ((sum_in, n_in), (sum_out, n_out)))
        both = (value.std(axis=(0, 1), keepdims=True) + 1e-3) ** 2
        spread_in, spread_out = (
            # Few shadows say little about a spread: that of all canaries counts as four more of them.
            (_ratio(squares, n) - mean**2).clip(0) * n / (n + 4) + both * 4 / (n + 4)
            for squares, mean, n in zip(_others(value**2, inside), (mean_in, mean_out), (n_in, n_out), strict=True)
        )
        ratio += (
            ((value - mean_out) ** 2 / spread_out - (value - mean_in) ** 2 / spread_in) / 2
            + np.log(spread_out / spread_in) / 2
        ).sum(axis=2)
    return ratio


def _others(values: Floats, inside: Floats) -> tuple[Floats, Floats]:
    """Sums over the other runs, with and without the canary."""
    with_it, without = values * inside, values * (1 - inside)
    return with_it.sum(axis=0) - with_it, without.sum(axis=0) - without


def _ratio(total: Floats, n: Floats) -> Floats:
    return np.asarray(total / np.maximum(n, 1.0))


def _relative_membership(seen: Seen, seed: int) -> Floats:
    """RMIA (offline): how probable the label is to this run, over how probable it is to runs without the canary.

    Compared with the same ratio of records that are nobody's, where the view shows any.
    """
    likely = np.clip(np.concatenate([seen.hard, seen.soft], axis=2).mean(axis=2), _MARGIN, 1.0)
    outside = np.ones(likely.shape, dtype=np.bool_)
    outside[:, : seen.canaries] = ~seen.coins
    every = set(range(seen.runs))
    return np.stack(
        [
            _relative(likely, outside, seen.canaries, run, every - {run}, _offline(likely, outside, seen.coins, run))
            for run in range(seen.runs)
        ]
    )


def _offline(likely: Floats, outside: Coins, coins: Coins, run: int) -> float:
    """The a of RMIA that finds most in other runs: the attacker threw their coins, and this run has no part in it."""
    runs, every = len(coins), set(range(len(coins)))
    if runs <= _TUNED_ON:
        return RMIA_OFFLINE
    others = [(run + step) % runs for step in range(1, 1 + _TUNED_ON)]

    def found(a: float) -> float:
        scores = {o: _relative(likely, outside, coins.shape[1], o, every - {run, o}, a) for o in others}
        return float(np.mean([auc(scores[other], coins[other]) for other in others]))

    return max(_OFFLINE_CHOICES, key=found)


def _relative(likely: Floats, outside: Coins, canaries: int, run: int, others: Collection[int], a: float) -> Floats:
    """The scores of one run's canaries, by the other runs given."""
    known, without = np.nan_to_num(likely[list(others)], nan=0.5), outside[list(others)]
    n_out = without.sum(axis=0)
    p_out = _ratio((known * without).sum(axis=0), n_out)
    # A canary that was in all of them: P_in = a P_out + 1 - a says what it would be without.
    p_out = np.where(n_out > 0, p_out, np.clip((known.mean(axis=0) + a - 1) / (a or RMIA_OFFLINE), 0, 1))
    ratios = likely[run] / ((1 + a) / 2 * p_out + (1 - a) / 2)
    own, population = ratios[:canaries], ratios[canaries:]
    if not len(population) or np.isnan(population).all():
        return np.asarray(own)
    # Which share of the population the canary beats; ties keep the order of the ratios themselves.
    return np.asarray(np.searchsorted(np.sort(population), own, side="right") / len(population) + 1e-9 * own)


def _quantile(seen: Seen, seed: int) -> Floats:
    """Whether a score is above what a regression expects of records that are nobody's."""
    population = slice(seen.canaries, None)
    if not seen.soft.shape[2] or not len(seen.codes[population]) or np.isnan(seen.soft[:, population]).all():
        raise ConfigError(
            "audit: quantile regression needs a view that gives any record a score: view='model' or 'weights', and a "
            "second site. Use attack='one_run' here."
        )
    values = _logit(np.nanmean(seen.soft, axis=2))
    known = np.stack([_logit(seen.expected_soft.mean(axis=1)), seen.codes.astype(np.float64)], axis=1)
    scores = []
    for run in range(seen.runs):
        low, high = (
            HistGradientBoostingRegressor(loss="quantile", quantile=share, max_iter=50, random_state=seed)
            .fit(known[population], values[run, population])
            .predict(known[: seen.canaries])
            for share in (0.25, 0.75)
        )
        scores.append((values[run, : seen.canaries] - (high + low) / 2) / np.maximum((high - low) / 2, 0.05))
    return np.stack(scores)


def _shadow_models(seen: Seen, seed: int) -> Floats:
    """Shokri's attack: a classifier learns from other runs what members look like, whichever canary they are."""
    every = np.concatenate([seen.hard, seen.soft], axis=2)[:, : seen.canaries]
    labels = np.broadcast_to(seen.codes[None, : seen.canaries, None], (*every.shape[:2], 1)).astype(np.float64)
    features = np.concatenate([every, labels], axis=2)
    folds, scores = np.arange(seen.runs) % min(_FOLDS, seen.runs), np.zeros(seen.coins.shape)
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=seed)
        model.fit(features[train].reshape(-1, features.shape[2]), seen.coins[train].ravel())
        likely = model.predict_proba(features[test].reshape(-1, features.shape[2]))[:, 1]
        scores[test] = likely.reshape(int(test.sum()), -1)
    return scores


def _logit(values: Any) -> Floats:
    return np.asarray(logit(np.clip(values, _MARGIN, 1 - _MARGIN)))


_ATTACKS: Final[dict[str, Callable[[Seen, int], Floats]]] = {
    "one_run": _by_reference,
    "lira": _likelihood_ratio,
    "rmia": _relative_membership,
    "quantile": _quantile,
    "shokri": _shadow_models,
}
