"""Mechanisms by their registered names, as in orders and plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collegium import registry
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.base import Mechanism


def build_mechanism(plain: Mapping[str, Any]) -> Mechanism:
    """Build the mechanism that an order names: one that is installed here, never code that was sent."""
    settings = dict(plain)
    cls = registry.lookup("mechanism", str(settings.pop("name", "")))
    try:
        mechanism = cls(**settings)
    except TypeError:
        raise ConfigError(f"{cls.__name__} does not take the settings {sorted(settings)}.") from None
    if not isinstance(mechanism, Mechanism):
        raise ConfigError(f"{cls.__name__} is not a mechanism.")
    return mechanism
