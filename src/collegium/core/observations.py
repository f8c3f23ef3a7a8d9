"""What the coordinator records during a run: the rows of the result tables."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from collegium.privacy.claims import Charge
from collegium.wire.replies import Row

COORDINATOR: Final = "coordinator"
"""The party whose rows are about the coordinator itself."""
COST_COLUMNS = (
    "bytes_up", "bytes_down", "seconds_fit", "seconds_predict", "seconds_consensus", "seconds_wire", "seconds_total",
)  # fmt: skip
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Notes:
    """What a simulated site records beside its reply. It is not part of the frame: a real site sends none."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent, by activity."""
    noted: dict[str, float] = field(default_factory=dict)
    """Numbers that a step recorded for the run's metrics."""
    busy: float = 0.0
    """Seconds from the order to the reply."""
    accuracy: float | None = None
    """On the simulation's test set."""
    scores: dict[str, float] = field(default_factory=dict)
    """Other metrics on it, by name."""

    def to_json(self) -> str:
        """As text, for a record or another process of the simulation."""
        return _COMPACT.encode(vars(self))

    @classmethod
    def from_json(cls, text: str | None) -> Notes | None:
        """From what this simulation wrote itself."""
        return None if text is None else cls(**json.loads(text))


@dataclass(frozen=True)
class Disclosure:
    """Something that became known during a run."""

    round: int
    to: Literal["coordinator", "sites"]
    """Who learns it."""
    party: str
    """Whose it is; ``sum`` for the sum over several sites of which nobody saw the parts."""
    step: str
    """The step that released it; for a model that the coordinator publishes, a site that has such a net."""
    value: Any
    """A release, the sum of some, a consensus, or a net's weights."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of the order that it answers."""


@dataclass
class Observations:
    """Plain rows; `results` turns them into DataFrames."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    releases: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    claims: dict[str, list[Charge]] = field(default_factory=dict)
    """What the coordinator made public itself, by name, and what that costs."""
    costs: dict[tuple[int, str], dict[str, float]] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    """How often each party has answered, be it with a refusal."""
    on_round: Callable[[int, int], None] | None = None
    """Called as (round, rounds in all) when a round begins: for progress bars."""
    on_round_end: Callable[[int, int], bool] | None = None
    """Called as (round, rounds in all) when a round ends; True stops the run: for callbacks."""
    on_disclosure: Callable[[Disclosure], None] | None = None
    """Called with what becomes known to the coordinator, and to the sites: for callbacks."""
    round: int = 0
    begun: int = 0
    """How many rounds have begun."""
    rounds: int = 0
    """How many there will be, as far as is known."""
    _open: tuple[int, int] | None = None
    _tested: dict[tuple[int, str, str], dict[str, Any]] = field(default_factory=dict)

    def begin_round(self, number: int, of: int) -> None:
        """A round begins."""
        self.end_round()
        self.round, self._open = number, (number, of)
        self.begun, self.rounds = number + 1, of
        if self.on_round is not None:
            self.on_round(number, of)

    @property
    def open_round(self) -> tuple[int, int] | None:
        """The round that has begun and not ended, and how many there are."""
        return self._open

    def end_round(self) -> bool:
        """The open round ends, if there is one; True if the run should stop."""
        ended, self._open = self._open, None
        return ended is not None and self.on_round_end is not None and self.on_round_end(*ended)

    def disclosed(
        self,
        to: Literal["coordinator", "sites"],
        party: str,
        step: str,
        value: Any,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Something became known."""
        if self.on_disclosure is not None:
            self.on_disclosure(Disclosure(self.round, to, party, step, value, args or {}))

    def metric(self, number: int, party: str, split: str, name: str, value: float) -> None:
        """One number about a party, or about the consensus."""
        self.metrics.append({"round": number, "party": party, "split": split, "metric": name, "value": float(value)})

    def refusal(self, number: int, party: str, step: str, code: str) -> None:
        """A party refused, failed or was missing."""
        self.refusals.append({"round": number, "party": party, "step": step, "code": code})

    @property
    def any_answer(self) -> bool:
        """Has a site answered anything at all?"""
        asked, refused = (Counter(row["party"] for row in rows) for rows in (self.orders, self.refusals))
        return any(asked[party] > refused[party] for party in asked)

    def cost(self, number: int, party: str, **amounts: float) -> None:
        """Add to what a party cost in a round."""
        row = self._costs(number, party)
        for name, amount in amounts.items():
            row[name] = row.get(name, 0.0) + amount

    def _costs(self, number: int, party: str) -> dict[str, float]:
        row = self.costs.get((number, party))
        if row is None:
            row = self.costs[number, party] = dict.fromkeys(COST_COLUMNS, 0.0)
        return row

    @contextmanager
    def watch(self, activity: str) -> Iterator[None]:
        """Add the time of a block to the coordinator's costs."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.cost(self.round, "coordinator", **{f"seconds_{activity}": time.perf_counter() - start})

    def sent(self, number: int, party: str, steps: str, size: int, seconds: float) -> None:
        """A frame with orders was written for a party."""
        self.orders.append({"round": number, "party": party, "steps": steps, "bytes": size})
        row = self._costs(number, party)
        row["bytes_down"] += size
        row["seconds_wire"] += seconds

    def received(self, number: int, party: str, size: int, seconds: float) -> None:
        """A frame came from a party."""
        self.answers[party] += 1
        row = self._costs(number, party)
        row["bytes_up"] += size
        row["seconds_wire"] += seconds

    def noted(self, number: int, party: str, notes: Notes) -> None:
        """What a simulated site noted beside its reply."""
        row = self._costs(number, party)
        row["seconds_total"] += notes.busy
        for activity, seconds in notes.seconds.items():
            name = f"seconds_{activity}"
            row[name] = row.get(name, 0.0) + seconds
        for name, value in notes.noted.items():
            self.metric(number, party, "private", name, value)
        if notes.accuracy is not None:
            self._test(number, party, "accuracy", notes.accuracy)
        for name, value in notes.scores.items():
            self._test(number, party, name, value)

    def _test(self, number: int, party: str, name: str, value: float) -> None:
        """What a site's test says. One that answers twice in a round is tested twice, and the last test counts."""
        if (row := self._tested.get((number, party, name))) is not None:
            row["value"] = float(value)
            return
        self.metric(number, party, "test", name, value)
        self._tested[number, party, name] = self.metrics[-1]

    def released(self, number: int, party: str, step: str, row: Row, charges: list[Charge], wire_bytes: int) -> None:
        """A release came from a party, at the cost of these charges."""
        # A conditional or nominal claim protects nothing that anybody could rely on.
        protected = bool(charges) and all(charge.kind == "dp" for charge in charges)
        told = {"party": party, "round": number, "step": step, "wire_bytes": wire_bytes, "protected": protected}
        self.releases.append(told | vars(row))
