"""A site's privacy budget: how much of it is spent is in the site's ledger, and nowhere else.

Every charge is a row of the ledger, written in the transaction that checks the budget: two runs at the same time cannot
spend the same epsilon, and neither a restart nor a later study starts from nothing. A ledger whose chain of
hashes is broken spends nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.core.settings import OpenProbability, PositiveFloat, Settings
from collegium.errors import ConfigError, Refused
from collegium.privacy.claims import Charge, PrivacyClaim

# The noise for a total epsilon is found by bisection: what it gives back may differ in the last digits.
_SLACK: Final = 1e-6


@dataclass(frozen=True)
class Budget(Settings):
    """All that a site may ever spend: ``Budget(epsilon=4, delta=1e-5, ledger="site.db")``.

    Only differential privacy is counted, and a site with a budget releases nothing else (unless its policy names a
    kind of release as `unprotected`). Without `ledger` the budget is that of one run: its own ledger keeps it.
    """

    epsilon: PositiveFloat
    delta: OpenProbability = 1e-5
    ledger: str | Path | None = None

    def allows(self, spent: Sequence[Charge], more: Sequence[Charge]) -> bool:
        """Is there enough left for `more`, after all that was `spent`?"""
        return self.total([*spent, *more]) <= self.epsilon * (1 + _SLACK)

    def total(self, charges: Sequence[Charge]) -> float:
        """The epsilon of all charges at this budget's delta."""
        claim = spent_claim(charges, self.delta)
        return 0.0 if claim is None else claim.epsilon

    def require(self, spent: Sequence[Charge], more: Sequence[Charge]) -> None:
        """Refuse what would pass the budget."""
        if not self.allows(spent, more):
            raise Refused(
                "budget-exhausted",
                f"The budget of epsilon {self.epsilon:g} at delta {self.delta:g} would be passed: "
                f"{self.total(spent):.6g} is spent, and {self.total([*spent, *more]):.6g} would be.",
            )


def write_charges(charges: Sequence[Charge], budget: Budget | None = None) -> str:
    """Charges as they stand in the ledger, and the budget they were made against."""
    limit = None if budget is None else [budget.epsilon, budget.delta]
    return json.dumps({"charges": [charge.to_plain() for charge in charges], "budget": limit}, separators=(",", ":"))


def read_charges(text: str | None) -> tuple[list[Charge], Budget | None]:
    """Charges from the ledger or the wire; anything unexpected is an error."""
    if text is None:
        return [], None
    try:
        plain = json.loads(text)
        limit = plain["budget"]
        return [Charge.from_plain(each) for each in plain["charges"]], None if limit is None else Budget(*limit)
    except (KeyError, TypeError, ValueError):
        raise ConfigError("These are no privacy charges.") from None


def spent_claim(charges: Sequence[Charge], delta: float) -> PrivacyClaim | None:
    """What a ledger's charges of differential privacy add up to; None where there are none."""
    from collegium.privacy import accountant

    counted = [charge for charge in charges if charge.kind == "dp" and charge.events]
    if not counted:
        return None
    relations = {charge.relation for charge in counted} - {"any"}
    if len(relations) > 1:
        raise Refused(
            "budget-relation",
            "Some charges hold for adding or removing a record and some for replacing one: they cannot be added up. "
            "Use one relation at this site.",
        )
    return accountant.claim(counted, delta=delta, relation=next(iter(relations), "any"))
