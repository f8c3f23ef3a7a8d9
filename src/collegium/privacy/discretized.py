"""The privacy loss distribution of a mix of events, on one grid, by Google's dp-accounting.

Rounding to the grid only increases the cost, so a coarse grid gives a valid but looser bound. The grid is as fine as a
bounded number of cells allows: time and memory do not grow with what was spent.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from collegium.errors import ConfigError
from collegium.privacy.events import Event, Gaussian, Laplace, RandomizedResponse, Renyi, SampledGaussian
from collegium.privacy.losses import Losses, randomized_response_losses

FINEST: Final = 1e-4
COARSEST: Final = 100.0
"""Its exponential does not overflow."""
MOST_CELLS: Final = 2_000_000
MOST_CELLS_OF_ONE: Final = 100_000
"""One use of Gaussian noise takes dp-accounting a few microseconds per cell."""
NEGLIGIBLE: Final = 1e-16
"""Probability mass that may be moved to an infinite loss."""
TOLERATED: Final = 0.05
"""How far numerical errors may change the total probability: dp-accounting errs upwards."""


@lru_cache(maxsize=2)
def distribution(events: tuple[Event, ...]) -> Any | None:
    """dp-accounting's `PrivacyLossDistribution` of all `events` together; None if no grid suits them.

    That happens with events known by Renyi divergences alone, and with millions of uses of negligible cost each: too
    fine a grid drowns their losses in numerical errors, too coarse a one makes them look far more costly than they are.
    """
    interval = None if any(isinstance(event, Renyi) for event in events) else grid(events)
    if interval is None:
        return None
    total = None
    for event in events:
        part = _part(event, interval)
        if part is None:
            return None
        total = part if total is None else total.compose(part)
    return total


def grid(events: tuple[Event, ...]) -> float | None:
    """The spacing of the grid; None if it would need too many cells.

    It is fine compared with the loss of one use, because rounding errors add up over uses, but never so fine that the
    sum of all uses would spread over too many cells.
    """
    finest, coarsest, extent, of_one = FINEST, COARSEST, 0.0, 0.0
    for event in events:
        match event:
            case RandomizedResponse():  # composed exactly, then rounded once
                extent += event.epsilon * min(2 * event.count, 20 * math.sqrt(event.count))
                continue
            case Gaussian():  # one use, after merging
                widest = 22 / event.noise_multiplier + event.noise_multiplier**-2
                extent, of_one = extent + widest, max(of_one, widest)
                continue
            case Laplace():
                deviation = 1 / event.noise_multiplier
                widest = 2 * deviation
            case SampledGaussian():
                far = 11 / event.noise_multiplier + 0.5 / event.noise_multiplier**2
                widest = _sampled_loss(event.sampling, far) - _sampled_loss(event.sampling, -far)
                deviation = min(widest, event.sampling * math.sqrt(math.expm1(min(event.noise_multiplier**-2, 700.0))))
            case _:
                raise ConfigError(f"The privacy loss distribution is not known for {event!r}.")
        extent, of_one = extent + _extent(event.count, widest, deviation), max(of_one, widest)
        finest, coarsest = min(finest, deviation / 10), min(coarsest, deviation / 2)
    interval = max(finest, extent / MOST_CELLS, of_one / MOST_CELLS_OF_ONE)
    return interval if interval <= coarsest else None


def _sampled_loss(sampling: float, loss: float) -> float:
    """The loss of a mechanism on a sample where it would be `loss` without sampling."""
    return float(np.logaddexp(math.log1p(-sampling), math.log(sampling) + loss))


def _extent(count: int, widest: float, deviation: float) -> float:
    """How wide dp-accounting makes the sum of `count` losses: its tail bounds use these 20 exponents."""
    exponents = np.arange(1, 21) / widest
    bounds = 2 * math.log(2 / 1e-15) / exponents + count * deviation**2 * exponents
    return min(count * widest, float(bounds.min()))


def _part(event: Event, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    match event:
        case RandomizedResponse():
            losses = randomized_response_losses(event.count, event.epsilon, event.outcomes, NEGLIGIBLE)
            return _on_grid(losses, interval)
        case Gaussian():
            return pld.from_gaussian_mechanism(event.noise_multiplier, value_discretization_interval=interval)
        case Laplace():
            one = pld.from_laplace_mechanism(event.noise_multiplier, value_discretization_interval=interval)
        case SampledGaussian():
            one = pld.from_gaussian_mechanism(
                event.noise_multiplier, value_discretization_interval=interval, sampling_prob=event.sampling
            )
    mass = float(one.get_delta_for_epsilon(-1e9))  # the delta at -infinity is the total probability
    return one.self_compose(event.count) if abs(mass - 1) * event.count < TOLERATED else None


def _on_grid(losses: Losses, interval: float) -> Any:
    """Each loss, split between its two neighbors on the grid so that both data sets keep their total probability.

    Merging the two halves gives back the original, so their cost is at least as high.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    above = np.cumsum(losses.weights[::-1])[::-1]
    kept = slice(
        int(np.argmax(above < 1 - NEGLIGIBLE)) if above[-1] < 1 - NEGLIGIBLE else 0, int(np.sum(above > NEGLIGIBLE))
    )
    weights, values = losses.weights[kept].copy(), losses.values[kept]
    weights[0] += losses.weights[: kept.start].sum()
    cells = np.floor(values / interval)
    upper = weights * np.expm1(cells * interval - values) / math.expm1(-interval)
    first = int(cells[0])
    index = (cells - first).astype(np.int64)
    size = int(index[-1]) + 2
    table = np.bincount(index, weights - upper, size) + np.bincount(index + 1, upper, size)
    lost = float(losses.weights[kept.stop :].sum())
    return pld.PrivacyLossDistribution(pld_pmf.DensePLDPmf(interval, first, np.maximum(table, 0.0), lost, True))
