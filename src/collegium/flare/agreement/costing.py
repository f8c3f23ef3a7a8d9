"""What one run of a plan costs a site.

That may depend on how many rows the site has. They are to be counted in a process of their own, out of which nothing
but the costs comes: whoever asks never holds a row.
"""

from __future__ import annotations

from pathlib import Path

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.errors import CollegiumError
from collegium.flare.agreement.forecast import Cost
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.review import planned_charges
from collegium.flare.site.setup import load_site
from collegium.privacy import accountant


def cost_of(kit: Path, plan: Plan) -> Cost:
    """What one run of a plan costs the site of this kit at most, by the noise that the plan names and the learner.

    It loads the site's rows: call it in a process that does nothing else.
    """
    try:
        algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
        found = planned_charges(plan, algorithm, load_site(kit), at_most=True)
        claims = tuple((step, str(accountant.claim([charge]))) for step, charge, _ in found if step and charge.events)
        return Cost(tuple((charge, times) for _, charge, times in found), claims=claims)
    except CollegiumError as error:
        return Cost(problem=str(error))
    except Exception as error:  # settings that somebody else chose meet code that did not expect them
        return Cost(problem=f"it cannot be computed ({type(error).__name__})")
