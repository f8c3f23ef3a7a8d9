"""Composition in closed form: pure mechanisms, and Gaussian noise.

Every eps-differentially private mechanism is dominated by randomized response on one bit, so composing the latter
exactly (a binomial sum) composes any of them, and no bound that uses epsilon alone can be better.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

import numpy as np
from annotated_types import Ge, Le
from scipy.optimize import brentq
from scipy.special import log_ndtr

from collegium.core.settings import NonNegativeFloat, OpenProbability, PositiveFloat, checked
from collegium.privacy.losses import LARGEST_COUNT, randomized_response_losses

How = Literal["basic", "advanced", "rdp", "exact"]
Uses = Annotated[int, Ge(1), Le(LARGEST_COUNT)]
"""How often a mechanism was used."""
RENYI_ORDERS: Final = (*(1 + x / 100 for x in range(2, 1000)), *range(11, 2000))


@checked
def compose(epsilon: PositiveFloat, rounds: Uses, delta: OpenProbability, how: How = "exact") -> float:
    """The epsilon at `delta` of `rounds` releases that are each (epsilon, 0)-differentially private.

    ``exact`` is the smallest that holds for all such mechanisms. The others are upper bounds, for comparison: ``basic``
    (the sum), ``advanced`` (Dwork, Rothblum and Vadhan) and ``rdp`` (the Renyi divergences of randomized response).
    """
    if how == "basic":
        return epsilon * rounds
    if how == "advanced":
        return math.sqrt(2 * rounds * math.log(1 / delta)) * epsilon + rounds * epsilon * _expm1(epsilon)
    if how == "rdp":
        return _renyi(epsilon, rounds, delta)
    return randomized_response_losses(rounds, epsilon, delta=delta).epsilon(delta)


@checked
def per_round(epsilon: PositiveFloat, delta: OpenProbability, rounds: Uses, how: How = "exact") -> float:
    """The largest epsilon of each of `rounds` pure releases that stay within (epsilon, delta): see `compose`."""
    if how == "basic":
        return epsilon / rounds

    def excess(each: float) -> float:
        if each <= 0:
            return -1.0
        if how == "exact":  # one sum instead of a search for epsilon
            return randomized_response_delta(rounds, each, epsilon) / delta - 1
        return compose(each, rounds, delta, how) / epsilon - 1

    # No bound is below what a single exact release costs, so its epsilon is at the upper end of the search.
    highest = float(np.logaddexp(epsilon, math.log(delta))) - math.log1p(-delta)
    if excess(highest) <= 0:
        return highest
    root = float(brentq(excess, 0.0, highest, xtol=1e-300, rtol=1e-13))
    while excess(root) > 0:  # the search may stop on the wrong side of the last digit
        root *= 1 - 1e-12
    return root


@checked
def randomized_response_delta(rounds: Uses, epsilon: PositiveFloat, total: NonNegativeFloat) -> float:
    """The exact delta at `total` of `rounds` bits of randomized response, each with `epsilon`."""
    return randomized_response_losses(rounds, epsilon).delta(total)


@checked
def gaussian_delta(sigma: PositiveFloat, epsilon: NonNegativeFloat, sensitivity: PositiveFloat = 1.0) -> float:
    """The exact delta at `epsilon` of Gaussian noise with standard deviation `sigma` (Balle and Wang 2018)."""
    return math.exp(_log_gaussian_delta(sensitivity / sigma, epsilon))


@checked
def gaussian_epsilon(sigma: PositiveFloat, delta: OpenProbability, sensitivity: PositiveFloat = 1.0) -> float:
    """The exact epsilon at `delta` of Gaussian noise with standard deviation `sigma`."""
    mu, log_delta = sensitivity / sigma, math.log(delta)
    if _log_gaussian_delta(mu, 0.0) <= log_delta:
        return 0.0
    highest = mu * mu / 2 + mu * math.sqrt(-2 * log_delta)  # where the tail of the privacy loss alone is below delta
    return float(brentq(lambda epsilon: _log_gaussian_delta(mu, epsilon) - log_delta, 0.0, highest, xtol=1e-13))


@checked
def gaussian_sigma(epsilon: PositiveFloat, delta: OpenProbability, sensitivity: PositiveFloat = 1.0) -> float:
    """The smallest standard deviation of Gaussian noise that is (epsilon, delta)-private (Balle and Wang 2018)."""
    log_delta = math.log(delta)
    tail = math.sqrt(-2 * log_delta)
    lowest = 2 * epsilon / (math.sqrt(tail * tail + 2 * epsilon) + tail)  # the mu at which the crude bound holds
    highest = 2 * lowest
    while _log_gaussian_delta(highest, epsilon) <= log_delta:
        highest *= 2
    mu = brentq(lambda mu: _log_gaussian_delta(mu, epsilon) - log_delta, lowest, highest, xtol=1e-300, rtol=1e-14)
    return sensitivity / float(mu)


@checked
def classic_gaussian_sigma(epsilon: PositiveFloat, delta: OpenProbability, sensitivity: PositiveFloat = 1.0) -> float:
    """The textbook formula, for comparison only: too much noise below epsilon 1, and sometimes too little above."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def _renyi(epsilon: float, rounds: int, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    curve = rounds * randomized_response_divergence(np.asarray(RENYI_ORDERS, dtype=np.float64), epsilon, 2)
    return float(compute_epsilon(RENYI_ORDERS, curve, delta)[0])


def randomized_response_divergence(orders: Any, epsilon: float, outcomes: int) -> Any:
    """The Renyi divergences of k-ary randomized response."""
    log_other = -np.logaddexp(epsilon, math.log(outcomes - 1))
    terms = [orders * epsilon, (1 - orders) * epsilon]
    if outcomes > 2:
        terms.append(np.full_like(orders, math.log(outcomes - 2)))
    return np.maximum(0.0, (np.logaddexp.reduce(terms) + log_other) / (orders - 1))


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    above = float(log_ndtr(mu / 2 - epsilon / mu))
    below = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return above + math.log(-math.expm1(below - above)) if below < above else -math.inf


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf
