"""Privacy events: what one use of private data costs, as data. The accountant composes them.

An event describes how a mechanism's output may differ between neighbouring data sets, by one well-studied mechanism
that it is (or is dominated by), and how often that was used. Events travel and are stored as plain JSON; a name in
received data selects from the classes of this file, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge, Gt
from pydantic import AllowInfNan

from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, Settings, Share, TwoOrMore
from collegium.errors import ConfigError

EVENTS: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class Event(Settings):
    """`count` uses of one mechanism."""

    kind: ClassVar[str]
    count: PositiveInt = 1

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__
        EVENTS[cls.kind] = cls

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
            raise ConfigError(f"Unknown privacy event {plain.get('event')!r}.")
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

    epsilon: PositiveFloat = 1.0
    outcomes: TwoOrMore = 2


@dataclass(frozen=True)
class Pure(Event):
    """Any (epsilon, 0)-differentially private mechanism about which nothing more is known."""

    epsilon: PositiveFloat = 1.0


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise; `noise_multiplier` is its standard deviation over the L2 sensitivity."""

    noise_multiplier: PositiveFloat = 1.0


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise; `noise_multiplier` is its scale over the L1 sensitivity."""

    noise_multiplier: PositiveFloat = 1.0


@dataclass(frozen=True)
class SampledGaussian(Event):
    """Gaussian noise on a sum over a Poisson sample: one step of DP-SGD. It holds for adding or removing a record."""

    noise_multiplier: PositiveFloat = 1.0
    sampling: Share = 1.0


@dataclass(frozen=True)
class Renyi(Event):
    """Known by its Renyi divergences alone: `divergences[i]` of order `orders[i]` for each use."""

    orders: tuple[Annotated[float, Gt(1), AllowInfNan(False)], ...] = (2.0,)
    divergences: tuple[Annotated[float, Ge(0)], ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.orders) != len(self.divergences) or not self.orders:
            raise ConfigError("Renyi: give as many divergences as orders, and at least one.")


@dataclass(frozen=True)
class Failure(Event):
    """What tells nothing of a record, but for a failure with a probability of at most `delta` in each use."""

    delta: OpenProbability = 1e-6


def two_steps(event: Event) -> Event:
    """What an event costs between data sets that are two changes apart, or an event that is no cheaper."""
    match event:
        case Gaussian() | Laplace():
            return replace(event, noise_multiplier=event.noise_multiplier / 2)
        case SampledGaussian():
            return Gaussian(event.count, event.noise_multiplier / 2)
        case RandomizedResponse() | Pure():
            return Pure(event.count, 2 * event.epsilon)
        case Failure():
            return event.times(2)
        case Renyi():  # Mironov: "Renyi Differential Privacy", arXiv 1702.07476, Proposition 2
            known = [(a / 2, 3 * d) for a, d in zip(event.orders, event.divergences, strict=True) if a >= 4]
            if known:
                return Renyi(event.count, *(tuple(each) for each in zip(*known, strict=True)))
    raise ConfigError(f"The cost of {event.kind} for two changes is not known.")
