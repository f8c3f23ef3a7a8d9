"""What the coordinator notes while a run goes on: the rows of the result tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge

COST_COLUMNS = (
    "bytes_up", "bytes_down", "seconds_fit", "seconds_predict", "seconds_consensus", "seconds_wire", "seconds_total",
)  # fmt: skip


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
    on_round: Callable[[int, int], None] | None = None
    """Called as (round, rounds in all) when a round begins: for progress bars."""
    on_round_end: Callable[[int, int], bool] | None = None
    """Called as (round, rounds in all) when a round ends; True stops the run: for callbacks."""
    round: int = 0
    _open: tuple[int, int] | None = None

    def begin_round(self, number: int, of: int) -> None:
        """A round begins."""
        self.end_round()
        self.round, self._open = number, (number, of)
        if self.on_round is not None:
            self.on_round(number, of)

    def end_round(self) -> bool:
        """The open round ends, if there is one; True if no other shall begin."""
        ended, self._open = self._open, None
        return ended is not None and self.on_round_end is not None and self.on_round_end(*ended)

    def metric(self, number: int, party: str, split: str, name: str, value: float) -> None:
        """One number about a party, or about the consensus."""
        self.metrics.append({"round": number, "party": party, "split": split, "metric": name, "value": float(value)})

    def refusal(self, number: int, party: str, step: str, code: str) -> None:
        """A party refused, failed or was missing."""
        self.refusals.append({"round": number, "party": party, "step": step, "code": code})

    def cost(self, number: int, party: str, **amounts: float) -> None:
        """Add to what a party cost in a round."""
        row = self.costs.setdefault((number, party), dict.fromkeys(COST_COLUMNS, 0.0))
        for name, amount in amounts.items():
            row[name] = row.get(name, 0.0) + amount

    @contextmanager
    def watch(self, activity: str) -> Iterator[None]:
        """Add the time of a block to the coordinator's costs."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.cost(self.round, "coordinator", **{f"seconds_{activity}": time.perf_counter() - start})

    def sent(self, number: int, party: str, steps: list[str], size: int, seconds: float) -> None:
        """A frame with orders was written for a party."""
        self.orders.append({"round": number, "party": party, "steps": " ".join(steps), "bytes": size})
        self.cost(number, party, bytes_down=size, seconds_wire=seconds)

    def exchanged(self, number: int, seconds: float) -> None:
        """An exchange ended."""
        self.cost(number, "coordinator", seconds_total=seconds)

    def noted(self, number: int, party: str, notes: Mapping[str, Any]) -> None:
        """What a simulated site noted beside its reply: seconds by activity, numbers, its accuracy on the test set."""
        spent = {f"seconds_{activity}": seconds for activity, seconds in notes.get("seconds", {}).items()}
        self.cost(number, party, seconds_total=notes.get("busy", 0.0), **spent)
        for name, value in notes.get("noted", {}).items():
            self.metric(number, party, "private", name, value)
        if "accuracy" in notes:
            self.metric(number, party, "test", "accuracy", notes["accuracy"])

    def released(self, number: int, party: str, step: str, header: Mapping[str, Any], wire_bytes: int) -> None:
        """A release came from a party."""
        charges, _ = read_charges(header.get("privacy"))
        # A conditional or nominal claim protects nothing that anybody could rely on.
        protected = bool(charges) and all(charge.kind == "dp" for charge in charges)
        row = {"party": party, "round": number, "step": step, "wire_bytes": wire_bytes, "protected": protected}
        row |= {name: header[name] for name in ("kind", "bytes", "sha256", "entry")}
        row["privacy"] = header.get("privacy")
        self.releases.append(row)
