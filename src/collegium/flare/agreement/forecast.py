"""What is left of a site's privacy budget, and what would be after runs of a plan: for its owner, before signing.

What a plan costs may depend on how many rows a site has. They are to be counted in a process of their own, out of which
nothing but the costs comes: whoever asks never holds a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.errors import CollegiumError
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.review import planned_charges
from collegium.flare.site.file import load_site
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


def cost_of(kit: Path, plan: Plan) -> Cost:
    """What one run of a plan costs the site of this kit at most, by the noise that the plan names and the learner.

    It loads the site's rows: call it in a process that does nothing else.
    """
    from collegium.privacy import accountant

    try:
        algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
        found = planned_charges(plan, algorithm, load_site(kit), at_most=True)
        claims = tuple((step, str(accountant.claim([charge]))) for step, charge, _ in found if step and charge.events)
        return Cost(tuple((charge, times) for _, charge, times in found), claims=claims)
    except CollegiumError as error:
        return Cost(problem=str(error))
    except Exception as error:  # settings that somebody else chose meet code that did not expect them
        return Cost(problem=f"it cannot be computed ({type(error).__name__})")


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
