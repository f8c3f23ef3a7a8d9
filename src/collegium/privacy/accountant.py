"""Composes privacy events, and states what may be claimed about them.

The tightest method that the mix of events allows is chosen, and named in the claim:

- randomized response and pure mechanisms of one epsilon, or Gaussian noise: exact, in closed form;
- any other mix: the privacy loss distribution (PLD), rounded upwards, by Google's dp-accounting;
- failures of a known probability take their part of delta, whatever else there is;
- if an event is known by its Renyi divergences alone, delta is tiny or the losses are too diverse for one grid: Renyi
  differential privacy (RDP).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq

from collegium.core.settings import NonNegativeFloat, OpenProbability, PositiveFloat, Share, check, checked
from collegium.errors import ConfigError
from collegium.privacy import discretized
from collegium.privacy.claims import Charge, PrivacyClaim, Relation
from collegium.privacy.composition import (
    Uses,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    randomized_response_divergence,
)
from collegium.privacy.events import (
    Event,
    Failure,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Renyi,
    SampledGaussian,
)
from collegium.privacy.losses import randomized_response_losses

NOTHING: Final = "nothing was used"
EXACT_RESPONSE: Final = "exact (randomized response)"
EXACT_GAUSSIAN: Final = "exact (Gaussian)"
PLD: Final = "PLD (dp-accounting)"
RDP: Final = "RDP (dp-accounting)"
FAILS: Final = "failures are more probable than delta"
SMALLEST_PLD_DELTA: Final = 1e-10
"""Below this, rounding errors of Fourier transforms are no longer negligible compared with delta."""


def epsilon_of(events: Sequence[Event], delta: float) -> tuple[float, str]:
    """The epsilon of all `events` together at `delta`, and how they were composed."""
    rest, lost = _without_failures(events)
    left = check(OpenProbability, delta, "epsilon_of: delta") - lost
    return _epsilon_of(merged(rest), left) if left > 0 else (math.inf, FAILS)


def delta_of(events: Sequence[Event], epsilon: float) -> tuple[float, str]:
    """The delta of all `events` together at `epsilon`, and how they were composed."""
    rest, lost = _without_failures(events)
    delta, how = _delta_of(merged(rest), check(NonNegativeFloat, epsilon, "delta_of: epsilon"))
    return min(1.0, lost + delta), how


def renyi_epsilon(events: Sequence[Event], delta: float) -> float:
    """Like `epsilon_of`, by Renyi divergences: an upper bound for any mix of events."""
    rest, lost = _without_failures(events)
    left = check(OpenProbability, delta, "renyi_epsilon: delta") - lost
    return _renyi_epsilon(merged(rest), left) if left > 0 else math.inf


def _without_failures(events: Sequence[Event]) -> tuple[list[Event], float]:
    """The other events, and how probable a failure of the rest is."""
    lost = math.fsum(event.count * event.delta for event in events if isinstance(event, Failure))
    return [event for event in events if not isinstance(event, Failure)], lost


def claim(charges: Sequence[Charge], delta: float | None = None, relation: Relation = "any") -> PrivacyClaim:
    """The privacy claim for `charges` of one kind and one unit together.

    `delta` is by default the largest of the charges'. `relation` is by default the one the charges share; charges for
    different neighbours share none and are an error.
    """
    if not charges:
        raise ConfigError("There is nothing to claim: pass at least one charge.")
    if len({charge.group for charge in charges}) > 1:
        found = ", ".join(sorted({f"{charge.kind} per {charge.unit}" for charge in charges}))
        raise ConfigError(f"Claims of different kinds are never added up ({found}): make one claim of each.")
    named = sorted({charge.relation for charge in charges} - {"any"} | ({relation} - {"any"}))
    if len(named) > 1:
        raise ConfigError(
            f"Charges for different neighbours ({', '.join(named)}) cannot be added up: make one claim of each."
        )
    delta = max(charge.delta for charge in charges) if delta is None else delta
    epsilon, accountant = epsilon_of([event for charge in charges for event in charge.events], delta)
    return PrivacyClaim(
        kind=charges[0].kind,
        unit=charges[0].unit,
        relation=next((charge.relation for charge in charges if charge.relation != "any"), relation),
        epsilon=epsilon,
        delta=delta,
        rounds=sum(bool(charge.events) for charge in charges),
        accountant=accountant,
        assumptions=tuple(dict.fromkeys(text for charge in charges for text in charge.assumptions)),
        publishable=all(charge.publishable for charge in charges),
    )


@checked
def calibrate(
    make_events: Callable[[float], Sequence[Event]],
    epsilon: PositiveFloat,
    delta: OpenProbability,
    low: PositiveFloat,
    high: PositiveFloat,
    tolerance: PositiveFloat = 1e-6,
) -> float:
    """The least noise in `low` .. `high` that keeps the events within (epsilon, delta), to a relative `tolerance`.

    `make_events` returns the events for a given noise; their epsilon must decrease as the noise grows.
    """

    def excess(log_noise: float) -> float:
        spent = epsilon_of(make_events(math.exp(log_noise)), delta)[0]
        return math.log(max(spent, 1e-300) / epsilon) if spent < math.inf else 1e3

    if excess(math.log(high)) > 0:
        raise ConfigError(f"calibrate: noise of {high:g} is not enough for epsilon {epsilon:g}; set a larger high.")
    if excess(math.log(low)) <= 0:
        return low
    noise = float(brentq(excess, math.log(low), math.log(high), xtol=tolerance / 4, rtol=1e-15))
    while excess(noise) > 0:  # the search may stop on the wrong side
        noise += tolerance / 4
    return math.exp(noise)


@checked
def noise_multiplier(epsilon: PositiveFloat, delta: OpenProbability, count: Uses, sampling: Share = 1.0) -> float:
    """The noise multiplier (standard deviation / sensitivity) of Gaussian noise for `count` uses in (epsilon, delta).

    `sampling` below 1: on Poisson samples of that share of the records, as in DP-SGD.
    """
    unsampled = gaussian_sigma(epsilon, delta) * math.sqrt(count)
    if sampling == 1.0:
        return unsampled
    return calibrate(
        lambda z: [SampledGaussian(count, z, sampling)], epsilon, delta, unsampled * sampling / 100, 2 * unsampled
    )


@checked
def laplace_multiplier(epsilon: PositiveFloat, delta: OpenProbability, count: Uses) -> float:
    """The scale / sensitivity of Laplace noise for `count` uses within (epsilon, delta)."""
    enough = count / epsilon  # what the sum of the epsilons asks for
    return calibrate(lambda scale: [Laplace(count, scale)], epsilon, delta, enough / (2 * count), 2 * enough)


def merged(events: Sequence[Event]) -> tuple[Event, ...]:
    """The same in as few events as possible: equal ones counted, all Gaussian noise merged."""
    counts: dict[tuple[Any, ...], int] = {}
    precision = 0.0
    for event in events:
        match event:
            case Gaussian(count, multiplier) | SampledGaussian(count, multiplier, 1 | 1.0):
                precision += count / multiplier**2
                continue
            case Pure(count, epsilon):
                key: tuple[Any, ...] = (RandomizedResponse, epsilon, 2)
            case RandomizedResponse(count) | Laplace(count) | SampledGaussian(count) | Renyi(count):
                key = (type(event), *(getattr(event, field.name) for field in fields(event)[1:]))
            case _:
                raise ConfigError(f"The accountant has no rule for {event!r}.")
        counts[key] = counts.get(key, 0) + count
    found: list[Event] = [kind(check(Uses, n, "epsilon_of: count"), *each) for (kind, *each), n in counts.items()]
    if precision:
        found.append(Gaussian(1, 1 / math.sqrt(precision)))
    return tuple(sorted(found, key=repr))


@lru_cache(maxsize=4096)
def _epsilon_of(events: tuple[Event, ...], delta: float) -> tuple[float, str]:
    match events:
        case ():
            return 0.0, NOTHING
        case (Gaussian(_, multiplier),):
            return gaussian_epsilon(multiplier, delta), EXACT_GAUSSIAN
        case (RandomizedResponse(count, epsilon, outcomes),) if outcomes == 2 or delta >= SMALLEST_PLD_DELTA:
            return randomized_response_losses(count, epsilon, outcomes, delta).epsilon(delta), EXACT_RESPONSE
    distribution = discretized.distribution(events) if delta >= SMALLEST_PLD_DELTA else None
    by_renyi = _renyi_epsilon(events, delta), RDP
    # Both are true bounds; the distribution gives the smaller one unless huge losses make its grid coarse.
    return by_renyi if distribution is None else min(by_renyi, (_pld_epsilon(distribution, delta), PLD))


@lru_cache(maxsize=4096)
def _delta_of(events: tuple[Event, ...], epsilon: float) -> tuple[float, str]:
    match events:
        case ():
            return 0.0, NOTHING
        case (Gaussian(_, multiplier),):
            return gaussian_delta(multiplier, epsilon), EXACT_GAUSSIAN
        case (RandomizedResponse(count, each, outcomes),):
            return randomized_response_losses(count, each, outcomes).delta(epsilon), EXACT_RESPONSE
    distribution = discretized.distribution(events)
    by_renyi = _renyi_delta(events, epsilon), RDP
    if distribution is None:
        return by_renyi
    return min(by_renyi, (float(distribution.get_delta_for_epsilon(epsilon)), PLD))


def _pld_epsilon(distribution: Any, delta: float) -> float:
    def excess(epsilon: float) -> float:
        return math.log(max(float(distribution.get_delta_for_epsilon(epsilon)), 1e-300) / delta)

    # dp-accounting's own search overflows where losses go below -700, so only its delta is used.
    if excess(0.0) <= 0:
        return 0.0
    highest = 1.0
    while excess(highest) > 0:
        highest *= 2
        if highest > 1e12:
            return math.inf
    return float(brentq(excess, highest / 2 if highest > 1 else 0.0, highest, xtol=1e-9))


def _renyi_epsilon(events: tuple[Event, ...], delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    orders, curve = _renyi_curve(events)
    return float(compute_epsilon(orders, curve, delta)[0])


def _renyi_delta(events: tuple[Event, ...], epsilon: float) -> float:
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    orders, curve = _renyi_curve(events)
    return float(compute_delta(orders, curve, epsilon)[0])


def _renyi_curve(events: tuple[Event, ...]) -> tuple[list[float], list[float]]:
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    known = sorted({float(order) for event in events if isinstance(event, Renyi) for order in event.orders})
    orders = np.array(known or DEFAULT_RDP_ORDERS, dtype=np.float64)
    return list(orders), list(np.sum([event.count * _divergences(event, orders) for event in events], axis=0))


def _divergences(event: Event, orders: Any) -> Any:
    import dp_accounting as dpa

    match event:
        case Renyi():
            # Divergences grow with the order: the next known one is an upper bound.
            known = list(zip(event.orders, event.divergences, strict=True))
            return np.array([min((d for o, d in known if o >= order), default=math.inf) for order in orders])
        case RandomizedResponse():
            return randomized_response_divergence(orders, event.epsilon, event.outcomes)
        case Gaussian():
            return orders / (2 * event.noise_multiplier**2)
        case SampledGaussian():
            one: Any = dpa.PoissonSampledDpEvent(event.sampling, dpa.GaussianDpEvent(event.noise_multiplier))
        case Laplace():
            one = dpa.LaplaceDpEvent(event.noise_multiplier)
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # orders at which the divergence cannot be computed are left out, which is no news
    try:
        return dpa.rdp.RdpAccountant(orders).compose(one).rdp
    finally:
        logger.setLevel(level)
