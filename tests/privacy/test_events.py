"""Events as data: what they accept, and that they survive JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from collegium.errors import ConfigError
from collegium.privacy.events import (
    EVENTS,
    Event,
    Failure,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Renyi,
    SampledGaussian,
    two_steps,
)

ALL = [
    RandomizedResponse(3, 0.5, 10),
    Pure(2, 0.1),
    Gaussian(1, 4.0),
    Laplace(7, 12.5),
    SampledGaussian(100, 1.1, 0.01),
    Renyi(2, (2.0, 3.5), (0.1, 0.0)),
    Failure(3, 1e-7),
]


def test_every_kind_is_tested() -> None:
    assert {type(event) for event in ALL} == set(EVENTS.values())


@pytest.mark.parametrize("event", ALL)
def test_json_round_trip(event: Event) -> None:
    assert Event.from_plain(json.loads(json.dumps(event.to_plain()))) == event
    assert hash(event) == hash(Event.from_plain(event.to_plain()))


def test_times() -> None:
    assert Pure(2, 0.1).times(5) == Pure(10, 0.1)
    assert Renyi(2, (2.0,), (0.1,)).times(3).count == 6


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2", None])
def test_bad_count(count: Any) -> None:
    with pytest.raises(ConfigError, match="count must be an integer"):
        Pure(count, 0.1)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "1", None])
@pytest.mark.parametrize("kind", [Pure, Gaussian, Laplace, SampledGaussian, RandomizedResponse])
def test_bad_value(kind: Any, value: Any) -> None:
    with pytest.raises(ConfigError, match="finite number above 0"):
        kind(1, value)


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="outcomes"):
        RandomizedResponse(1, 0.5, 1)
    with pytest.raises(ConfigError, match="outcomes"):
        RandomizedResponse(1, 0.5, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at most 1"):
        SampledGaussian(1, 1.0, 1.5)


@pytest.mark.parametrize(
    ("orders", "divergences"),
    [
        ((), ()),
        ((2.0,), (0.1, 0.2)),
        ((1.0,), (0.1,)),
        ((math.inf,), (0.1,)),
        ((math.nan,), (0.1,)),
        ((2.0,), (-0.1,)),
        ((2.0,), (math.nan,)),
        (("2",), (0.1,)),
        (2.0, 0.1),
        ((2.0,), (None,)),
    ],
)
def test_bad_divergences(orders: Any, divergences: Any) -> None:
    with pytest.raises(ConfigError, match="Renyi"):
        Renyi(1, orders, divergences)


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"event": "Event", "count": 1},
        {"event": "__init__", "count": 1},
        {"event": "Pure", "count": 1},
        {"event": "Pure", "count": 1, "epsilon": 0.1, "more": 2},
        {"event": "Pure", "count": 1, "epsilon": [0.1]},
    ],
)
def test_what_is_no_event(plain: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Event.from_plain(plain)


def test_two_changes_cost_no_less_than_one_and_as_much_as_is_known() -> None:
    assert two_steps(Gaussian(3, 4.0)) == Gaussian(3, 2.0)
    assert two_steps(Laplace(3, 4.0)) == Laplace(3, 2.0)
    assert two_steps(SampledGaussian(3, 4.0, 0.1)) == Gaussian(3, 2.0)
    assert two_steps(RandomizedResponse(2, 0.5, 10)) == two_steps(Pure(2, 0.5)) == Pure(2, 1.0)
    assert two_steps(Renyi(1, (2.0, 4.0, 8.0), (0.1, 0.2, 0.3))) == Renyi(1, (2.0, 4.0), (3 * 0.2, 3 * 0.3))
    assert two_steps(Failure(3, 1e-6)) == Failure(6, 1e-6)
    with pytest.raises(ConfigError, match="not known"):
        two_steps(Renyi(1, (2.0,), (0.1,)))
