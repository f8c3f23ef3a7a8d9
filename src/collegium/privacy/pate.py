"""The cost of noisy votes: the Laplace votes of FedKT and PATE, and Gaussian noisy-max (GNMax).

`partitions` is FedKT's s: how many of the counted votes belong to one party. Replacing a party moves that many votes
from one class to another.

Costs that use the counts themselves (`noisy_max_error` and whatever is derived from it) are private data and must not
be published. `fedkt_epsilon` uses no counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import ArrayLike, NDArray
from pydantic import AllowInfNan
from scipy.special import log_ndtr, logsumexp

from collegium.core.settings import NonNegativeFloat, OpenProbability, PositiveFloat, check, checked
from collegium.errors import ConfigError
from collegium.privacy.composition import Uses


@checked
def fedkt_epsilon(
    gamma: PositiveFloat,
    queries: Uses,
    partitions: Uses = 1,
    delta: OpenProbability = 1e-5,
    orders: Sequence[Uses] | None = None,
) -> float:
    """The epsilon at `delta` of `queries` votes with Laplace noise of scale 1 / gamma on every count.

    It holds for any votes: the minimum, over the moments l = 1, 2, .. (or `orders`), of
    k * 2 s^2 gamma^2 (l + 1) + log(1 / delta) / l, and never above the sum 2 s gamma k. The published default;
    `compose(2 * s * gamma, k, delta)` is tighter.
    """
    slope = 2 * queries * (partitions * gamma) ** 2
    if orders is None:
        best = math.sqrt(-math.log(delta) / slope)
        orders = (max(1, math.floor(best)), math.ceil(best))
    if not orders:
        raise ConfigError("fedkt_epsilon: orders must name at least one moment.")
    bound = min(slope * (order + 1) - math.log(delta) / order for order in orders)
    return min(bound, 2 * partitions * gamma * queries)


def noisy_max_error(counts: ArrayLike, gamma: float) -> float:
    """Upper bound on the probability that Laplace noise of scale 1 / gamma changes the winner (FedKT's Lemma 7)."""
    scaled = check(PositiveFloat, gamma, "noisy_max_error: gamma") * _gaps(counts)
    return min(float(np.sum((2 + scaled) / 4 * np.exp(-scaled))), 1 - 1 / (len(scaled) + 1))


@checked
def fedkt_moment(q: NonNegativeFloat, gamma: PositiveFloat, order: Uses, partitions: Uses = 1) -> float:
    """The log-moment of one query (FedKT's Theorem 2).

    q bounds the probability that the outcome is not the likeliest one, from `noisy_max_error`. It depends on the votes,
    so the result is private.
    """
    epsilon = 2 * partitions * gamma
    always = epsilon**2 / 2 * order * (order + 1)
    if not q < 1 / (math.exp(min(epsilon, 700.0)) + 1):  # (e^x - 1) / (e^2x - 1), the theorem's condition
        return always
    kept = (1 + order) * math.log1p(-q) - order * math.log1p(-math.exp(epsilon) * q)
    changed = math.log(q) + epsilon * order if q else -math.inf
    return min(float(np.logaddexp(kept, changed)), always)


def gnmax_log_error(counts: ArrayLike, sigma: float) -> float:
    """The logarithm of an upper bound on the probability that Gaussian noise on every count changes the winner."""
    gaps = _gaps(counts)
    tails = log_ndtr(-gaps / (math.sqrt(2) * check(PositiveFloat, sigma, "gnmax_log_error: sigma")))
    return min(float(logsumexp(tails)), math.log1p(-1 / (len(gaps) + 1)))


@checked
def gnmax_renyi(
    log_error: Annotated[float, Le(0)],
    sigma: PositiveFloat,
    order: Annotated[float, Gt(1), AllowInfNan(False)],
    partitions: Uses = 1,
) -> float:
    """The Renyi divergence of one Gaussian noisy-max for replacing a party (Papernot et al. 2018, Theorem 6).

    `log_error` is from `gnmax_log_error`; 0 uses nothing about the votes and gives order * s^2 / sigma^2.
    """
    variance = (sigma / partitions) ** 2
    always = order / variance
    second = math.sqrt(-variance * log_error)  # the two orders between which the divergence is interpolated
    first = second + 1
    if not (first > order and second > 1 and -log_error > second / variance):
        return always
    limit = (second - 1) * second / variance - second * (math.log1p(1 / (first - 1)) + math.log1p(1 / (second - 1)))
    if log_error > limit:
        return always
    log_kept = _log_one_minus_exp(log_error)
    kept = log_kept - _log_one_minus_exp((log_error + second / variance) * (1 - 1 / second))
    changed = first / variance - log_error / (first - 1)
    terms = log_kept + (order - 1) * kept, log_error + (order - 1) * changed
    return min(always, float(np.logaddexp(*terms)) / (order - 1))


def _gaps(counts: ArrayLike) -> NDArray[np.float64]:
    votes = np.asarray(counts, dtype=np.float64)
    if votes.ndim != 1 or len(votes) < 2 or not np.all(np.isfinite(votes)) or np.any(votes < 0):
        raise ConfigError("counts must be the votes of each class: at least two nonnegative numbers.")
    winner = int(votes.argmax())
    return np.delete(votes[winner] - votes, winner)


def _log_one_minus_exp(x: float) -> float:
    return math.log1p(-math.exp(x)) if x < -1 else math.log(-math.expm1(x))
