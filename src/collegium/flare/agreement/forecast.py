"""What is left of a site's privacy budget, and what would be after runs of a plan: for its owner, before signing.

What one run of a plan costs is found out elsewhere (`costing`), by a process that has the site's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from collegium.privacy.budget import Budget, spent_claim
from collegium.privacy.claims import Charge

Costs: TypeAlias = tuple[tuple[Charge, int], ...]


@dataclass(frozen=True)
class Cost:
    """What one run of a plan costs a site."""

    costs: Costs = ()
    problem: str = ""
    """Why that is not known."""
    claims: tuple[tuple[str, str], ...] = ()
    """What may be claimed for one answer to a step, by step."""

    @property
    def protected(self) -> bool:
        """Does any of it have differential privacy?"""
        return any(charge.kind == "dp" and charge.events for charge, _ in self.costs)


@dataclass(frozen=True)
class Forecast:
    """Epsilon at one delta: spent so far, and after so many runs that use all that the plan allows."""

    spent: float
    after: float
    limit: float | None
    """All that the site may ever spend; None where it has no budget."""
    delta: float

    @property
    def enough(self) -> bool:
        """Is there enough left for all of it? Else the site stops answering when its budget is used up."""
        return self.limit is None or Budget(self.limit, self.delta).covers(self.after)


def forecast(
    spent: Sequence[Charge], cost: Cost, runs: int, limit: tuple[float, float] | None, delta: float = 1e-5
) -> Forecast:
    """What is left of a budget (epsilon, delta) after so many runs; Refused where charges cannot be added up."""
    at = delta if limit is None else limit[1]
    more = [times(charge, count * runs) for charge, count in cost.costs]
    before, after = (spent_claim(charges, at) for charges in (spent, [*spent, *more]))
    now, then = (0.0 if claim is None else claim.epsilon for claim in (before, after))
    return Forecast(now, then, None if limit is None else limit[0], at)


def times(charge: Charge, count: int) -> Charge:
    """The same charge so many times over, as one."""
    events, beforehand = (tuple(each.times(count) for each in part) for part in (charge.events, charge.beforehand))
    return replace(charge, events=events, beforehand=beforehand)
