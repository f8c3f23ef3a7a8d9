"""How a site's privacy budget was used up over time, from its ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from collegium.errors import Refused
from collegium.flare.agreement.forecast import times
from collegium.flare.site.desk import Desk
from collegium.flare.site.overview import ledger_of
from collegium.privacy.budget import spent_claim
from collegium.privacy.claims import Charge

DELTA: Final = 1e-5
"""At which epsilon is shown where a site has no budget."""
MOST_POINTS: Final = 40


@dataclass(frozen=True)
class Point:
    """Epsilon of all that had been released by then."""

    time: str
    epsilon: float


@dataclass(frozen=True)
class Spending:
    """What a site has spent, and may spend."""

    points: tuple[Point, ...]
    """At most `MOST_POINTS` and the last, oldest first."""
    delta: float
    limit: float | None
    """The budget's epsilon; None where the site has no budget."""
    charges: tuple[Charge, ...]
    """All of them, equal ones as one."""
    problem: str = ""
    """Why they cannot be added up."""

    @property
    def spent(self) -> float:
        """Epsilon of all that has left."""
        return self.points[-1].epsilon if self.points else 0.0

    @property
    def left(self) -> float | None:
        """Of the budget, if there is one."""
        return None if self.limit is None else max(0.0, self.limit - self.spent)


@dataclass
class SpendingReader:
    """Adds up a ledger's charges. Sums that were found once are kept: a ledger only grows."""

    desk: Desk
    _known: dict[int, float] = field(default_factory=dict)
    _last: tuple[tuple[int, int], Spending] | None = None

    def read(self) -> Spending:
        """What was spent until now."""
        ledger = ledger_of(self.desk)
        end = ledger.end()
        if self._last is None or self._last[0] != end:
            self._last = end, self._added_up()
        return self._last[1]

    def _added_up(self) -> Spending:
        budget = self.desk.file.budget
        delta, limit = (DELTA, None) if budget is None else (budget.delta, budget.epsilon)
        charged = [(time, charges) for time, charges in ledger_of(self.desk).charged() if _costs(charges)]
        every = 1
        while len(charged) // every > MOST_POINTS:  # by powers of two, so that longer ledgers ask for sums known before
            every *= 2
        counts: Counter[Charge] = Counter()
        points: list[Point] = []
        try:
            for number, (time, charges) in enumerate(charged, start=1):
                counts.update(charge for charge in charges if charge.kind == "dp" and charge.events)
                if number % every == 0 or number == len(charged):
                    points.append(Point(time, self._epsilon(number, counts, delta)))
        except Refused as refusal:
            return Spending(tuple(points), delta, limit, _together(counts), str(refusal))
        return Spending(tuple(points), delta, limit, _together(counts))

    def _epsilon(self, number: int, counts: Counter[Charge], delta: float) -> float:
        if number not in self._known:
            claim = spent_claim(_together(counts), delta)
            self._known[number] = 0.0 if claim is None else claim.epsilon
        return self._known[number]


def _costs(charges: list[Charge]) -> bool:
    return any(charge.kind == "dp" and charge.events for charge in charges)


def _together(counts: Counter[Charge]) -> tuple[Charge, ...]:
    return tuple(times(charge, count) for charge, count in counts.items())
