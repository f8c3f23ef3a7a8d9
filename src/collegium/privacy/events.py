"""Privacy events: what one use of private data costs, as data. What they add up to is the accountant's business.

An event says how a mechanism's output may differ between neighbouring data sets, in the terms of one well-studied
mechanism that it is (or is dominated by), and how often that was used. Events travel and are stored as plain JSON;
a name in received data selects from the classes of this file, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

from collegium.errors import ConfigError

EVENTS: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class Event:
    """`count` uses of one mechanism."""

    kind: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ()
    """Which fields are lists of numbers; the others are numbers above 0."""
    count: int = 1

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__
        EVENTS[cls.kind] = cls

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ConfigError(f"{self.kind}: count is a whole number of at least 1, not {self.count!r}.")
        for name, value in asdict(self).items():
            if name == "count" or name in self.lists:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"{self.kind}: {name} is a finite number above 0, not {value!r}.")

    def times(self, count: int) -> Self:
        """The same, `count` times over."""
        return replace(self, count=self.count * count)

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"event": self.kind, **asdict(self)}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Event:
        """From plain data; anything unexpected is an error."""
        cls = EVENTS.get(str(plain.get("event")))
        if cls is None:
            raise ConfigError(f"There is no privacy event {plain.get('event')!r}.")
        values: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in plain.items() if name != "event"
        }
        if set(values) != {field.name for field in fields(cls)}:
            raise ConfigError(f"A {cls.kind} has fields {[field.name for field in fields(cls)]}, not {sorted(values)}.")
        return cls(**values)


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """k-ary randomized response on one value: the truth with probability e^eps / (e^eps + outcomes - 1).

    With two outcomes this dominates every eps-differentially private mechanism.
    """

    epsilon: float = 1.0
    outcomes: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.outcomes, int) or self.outcomes < 2:
            raise ConfigError(f"RandomizedResponse: outcomes is a whole number of at least 2, not {self.outcomes!r}.")


@dataclass(frozen=True)
class Pure(Event):
    """Any mechanism that is (epsilon, 0)-differentially private, and of which nothing more is known."""

    epsilon: float = 1.0


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise; `noise_multiplier` is its standard deviation over the L2 sensitivity."""

    noise_multiplier: float = 1.0


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise; `noise_multiplier` is its scale over the L1 sensitivity."""

    noise_multiplier: float = 1.0


@dataclass(frozen=True)
class SampledGaussian(Event):
    """Gaussian noise on a sum over a Poisson sample: one step of DP-SGD. It holds for adding or removing a record."""

    noise_multiplier: float = 1.0
    sampling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampling <= 1:
            raise ConfigError(f"SampledGaussian: sampling is a share of the records, at most 1, not {self.sampling}.")


@dataclass(frozen=True)
class Renyi(Event):
    """Known by its Renyi divergences alone: `divergences[i]` of order `orders[i]` for each use."""

    lists: ClassVar[tuple[str, ...]] = ("orders", "divergences")
    orders: tuple[float, ...] = (2.0,)
    divergences: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.orders, tuple) or not isinstance(self.divergences, tuple):
            raise ConfigError("Renyi: orders and divergences are lists of numbers.")
        if len(self.orders) != len(self.divergences) or not self.orders:
            raise ConfigError("Renyi: as many divergences as orders, and at least one.")
        if not all(isinstance(value, int | float) for value in (*self.orders, *self.divergences)):
            raise ConfigError("Renyi: orders and divergences are numbers.")
        if not all(1 < order < math.inf for order in self.orders) or not all(d >= 0 for d in self.divergences):
            raise ConfigError("Renyi: orders are finite and above 1, and divergences are not negative.")
