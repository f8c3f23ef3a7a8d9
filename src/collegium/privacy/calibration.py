"""Calibrates a mechanism on labels to a total (epsilon, delta) over all rounds."""

from __future__ import annotations

import inspect
import math
from typing import Any

from scipy.optimize import brentq

from collegium import registry
from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, TwoOrMore, checked
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.labels import LabelMechanism


@checked
def calibrated(
    name: str,
    *,
    epsilon: PositiveFloat,
    delta: OpenProbability,
    rounds: PositiveInt = 1,
    public_size: PositiveInt = 1,
    n_classes: TwoOrMore = 2,
) -> LabelMechanism:
    """The mechanism called `name` with as little noise as a total of (epsilon, delta) allows, every label changing."""
    cls = registry.lookup("mechanism", name)
    if not issubclass(cls, LabelMechanism):
        raise ConfigError(f"{name} is not for labels: use a mechanism that is, such as randomized_response.")
    parameter = next(iter(inspect.signature(cls).parameters))

    def make(log_noise: float) -> Any:
        return cls(**{parameter: math.exp(log_noise), "delta": delta})

    def excess(log_noise: float) -> float:
        total = make(log_noise).epsilon(public_size=public_size, n_classes=n_classes, rounds=rounds, delta=delta)
        return math.log(max(total, 1e-300)) - math.log(epsilon)

    # One value alone may cost all of epsilon and a little more; basic composition is the most that any number costs.
    low, high = math.log(epsilon / (4.0 * public_size * rounds)), math.log(epsilon + 1.0)
    while excess(high) < 0:
        high += 1.0
    found = brentq(excess, low, high, xtol=1e-10, rtol=1e-10)
    while excess(found) > 0:  # the root is found from either side: the budget is kept from below
        found -= 1e-9
    mechanism: LabelMechanism = make(found)
    return mechanism


def label_kept(mechanism: Any, n_classes: int) -> float:
    """The probability that a site's label (or its bit) is released unchanged."""
    if hasattr(mechanism, "keep_probability"):
        return float(mechanism.keep_probability(n_classes))
    flip = mechanism.flip_probability
    return 1.0 - float(flip(n_classes) if callable(flip) else flip)
