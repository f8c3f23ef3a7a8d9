"""What may be claimed about the privacy of a release, a site or a run, and the assumptions behind it.

A `Charge` is what a release costs, as data; a `PrivacyClaim` is a statement about it. There are three kinds, which are
never added up:

- ``dp``: differential privacy, by construction. It holds for any data and any learner.
- ``conditional``: it holds under an assumption that nobody has verified.
- ``nominal``: a diagnostic number. It guarantees nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, get_args

from collegium.errors import ConfigError
from collegium.privacy.events import Event, two_steps

Kind = Literal["dp", "conditional", "nominal"]
Unit = Literal["record", "party"]
Relation = Literal["replace", "add_remove", "any"]
UNPROTECTED: Final = "unprotected"
NOT_PUBLISHED: Final = "not for publication"
"""In the words of a claim whose number depends on private data."""
SEEDED_NOISE: Final = (
    "simulated noise: drawn from the run's seed, so that it can be repeated; in a real federation it comes from "
    "the operating system's secure generator"
)


@dataclass(frozen=True)
class PrivacyClaim:
    """A statement about privacy, with all its assumptions."""

    kind: Kind
    unit: Unit
    relation: Relation
    epsilon: float
    delta: float
    rounds: int
    """How many releases or fits it covers."""
    accountant: str
    """How they were composed."""
    assumptions: tuple[str, ...] = ()
    publishable: bool = True
    """False if the number itself depends on private data."""

    def __post_init__(self) -> None:
        _check(self.kind, self.unit, self.relation)
        # It holds for both; replacing a record is the one that needs no known number of them.
        if self.relation == "any":
            object.__setattr__(self, "relation", "replace")
        if not self.epsilon >= 0 or not 0 <= self.delta <= 1:
            raise ConfigError(
                f"A claim's epsilon must be at least 0 and its delta in [0, 1], not {self.epsilon}, {self.delta}."
            )

    def __str__(self) -> str:
        words = {"dp": "differentially private", "conditional": "conditional", "nominal": "nominal, no guarantee"}
        each = {"replace": "replacing", "add_remove": "adding or removing"}
        holds = f"{words[self.kind]}; {each[self.relation]} one {self.unit}"
        text = f"epsilon {self.epsilon:.6g} at delta {self.delta:.3g} ({holds})"
        return text if self.publishable else f"{text}; depends on private data: {NOT_PUBLISHED}"

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None  # JSON knows no infinity
        return asdict(self) | {"epsilon": epsilon, "assumptions": list(self.assumptions)}


@dataclass(frozen=True)
class Charge:
    """What one release or one private fit costs: the events, and what the claim about them states."""

    events: tuple[Event, ...]
    kind: Kind = "dp"
    unit: Unit = "record"
    relation: Relation = "any"
    """The neighbour relation the events hold for; ``any``: both."""
    delta: float = 1e-5
    """The delta at which it is reported."""
    assumptions: tuple[str, ...] = ()
    publishable: bool = True
    beforehand: tuple[Event, ...] = ()
    """Where `events` are what it cost in hindsight: what it cost by all that was known beforehand."""

    def __post_init__(self) -> None:
        _check(self.kind, self.unit, self.relation)
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, not {self.delta}.")

    @property
    def group(self) -> tuple[str, str]:
        """Only charges of the same group may be composed."""
        return self.kind, self.unit

    def as_known_beforehand(self) -> Charge:
        """What budgets count and others may see: no hindsight, which depends on private data."""
        if not self.beforehand:
            return self
        return replace(self, events=self.beforehand, beforehand=(), publishable=True)

    def for_records(self) -> Charge:
        """What it costs a single record: a party's whole data covers every record in it, however that changes.

        A party whose record changes is another one. Where parties are added or removed, that is two steps.
        """
        if self.unit == "record":
            return self
        covered = replace(self, unit="record", relation="any")
        if self.relation != "add_remove":
            return covered
        events, beforehand = (tuple(map(two_steps, several)) for several in (self.events, self.beforehand))
        return replace(covered, events=events, beforehand=beforehand)

    def assuming(self, *assumptions: str) -> Charge:
        """The same with further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *(a for a in assumptions if a not in self.assumptions)))

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind, "unit": self.unit, "relation": self.relation, "delta": self.delta,
            "assumptions": list(self.assumptions), "publishable": self.publishable,
            "events": [event.to_plain() for event in self.events],
        } | ({"beforehand": [event.to_plain() for event in self.beforehand]} if self.beforehand else {})  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Charge:
        """From plain data; anything unexpected is an error."""
        try:
            if not isinstance(plain["assumptions"], list) or not isinstance(plain["publishable"], bool):
                raise TypeError
            events, beforehand = (
                tuple(Event.from_plain(each) for each in several)
                for several in (plain["events"], plain.get("beforehand", []))
            )
            return cls(
                events, plain["kind"], plain["unit"], plain["relation"], float(plain["delta"]),
                tuple(str(each) for each in plain["assumptions"]), plain["publishable"], beforehand,
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"This is not a privacy charge: {type(error).__name__}.") from None


@dataclass(frozen=True)
class Account:
    """Charges of one party; claims are computed on request."""

    charges: tuple[Charge, ...] = ()

    def claims(self, delta: float | None = None) -> list[PrivacyClaim]:
        """One claim per kind and unit; what is charged for a whole party counts for its records, too.

        Charges for different neighbours are not composed either: each claim then states what it leaves out.
        """
        from collegium.privacy import accountant

        groups: dict[tuple[str, str], list[Charge]] = {}
        for charge in self.charges:
            groups.setdefault(charge.group, []).append(charge)
        for kind, unit in list(groups):
            if unit == "party" and (kind, "record") in groups:
                groups[kind, "record"] += [charge.for_records() for charge in groups[kind, "party"]]
        claims = []
        for members in groups.values():
            named = {charge.relation for charge in members} - {"any"}
            for relation in sorted(named) or ["any"]:
                fitting = [charge for charge in members if charge.relation in (relation, "any")]
                claim = accountant.claim(fitting, delta=delta, relation=relation)
                if len(fitting) < len(members):
                    left_out = f"of {len(members)} charges, {len(members) - len(fitting)} for other neighbours left out"
                    claim = replace(claim, assumptions=(*claim.assumptions, left_out))
                claims.append(claim)
        return claims


def add_up(charges: Iterable[Charge]) -> Account:
    """An account of charges."""
    return Account(tuple(charges))


def _check(kind: str, unit: str, relation: str) -> None:
    for name, value, known in (("kind", kind, Kind), ("unit", unit, Unit), ("relation", relation, Relation)):
        if value not in get_args(known):
            raise ConfigError(f"A claim's {name} must be one of {', '.join(get_args(known))}, not {value!r}.")
