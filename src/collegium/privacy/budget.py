"""A site's privacy budget. What has been spent is recorded in the site's ledger, and nowhere else.

Every charge is a row of the ledger, written in the transaction that checks the budget: concurrent runs cannot spend the
same epsilon, and neither a restart nor a later study resets it. A ledger with a broken hash chain allows no further
spending.
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

# The noise for a total epsilon is found numerically: its epsilon may differ in the last digits.
_SLACK: Final = 1e-6


@dataclass(frozen=True)
class Budget(Settings):
    """All that a site may ever spend: ``Budget(epsilon=4, delta=1e-5, ledger="site.db")``.

    Only differential privacy counts, and a site with a budget releases nothing else (unless its policy lists a kind of
    release as `unprotected`). Without `ledger`, the budget is for one run and kept in that run's ledger. With it, every
    row of that file counts, whatever the site was called when it was written: give each site a file of its own.
    """

    epsilon: PositiveFloat
    delta: OpenProbability = 1e-5
    ledger: str | Path | None = None

    def allows(self, spent: Sequence[Charge], more: Sequence[Charge]) -> bool:
        """Whether enough is left for `more`, after all that was `spent`."""
        return self.covers(self.total([*spent, *more]))

    def covers(self, epsilon: float) -> bool:
        """Whether all charges together may cost that much."""
        return epsilon <= self.epsilon * (1 + _SLACK)

    def total(self, charges: Sequence[Charge]) -> float:
        """The epsilon of all charges at this budget's delta."""
        claim = spent_claim(charges, self.delta)
        return 0.0 if claim is None else claim.epsilon

    def require(self, spent: Sequence[Charge], more: Sequence[Charge]) -> None:
        """Refuse charges that would exceed the budget."""
        if not self.allows(spent, more):
            raise Refused(
                "budget-exhausted",
                f"This would exceed the budget of epsilon {self.epsilon:g} at delta {self.delta:g}: "
                f"{self.total(spent):.6g} is spent, and {self.total([*spent, *more]):.6g} would be.",
            )


def write_charges(charges: Sequence[Charge], budget: Budget | None = None) -> str:
    """Charges as written to the ledger, with the budget they were checked against."""
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
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ConfigError("These are not privacy charges.") from None


def spent_claim(charges: Sequence[Charge], delta: float) -> PrivacyClaim | None:
    """The claim for a ledger's charges of differential privacy, as known beforehand; None if there are none.

    A budget that counted what votes cost in hindsight would tell of the votes by what it refuses.
    """
    from collegium.privacy import accountant

    counted = [charge.as_known_beforehand() for charge in charges if charge.kind == "dp" and charge.events]
    if not counted:
        return None
    if len({charge.unit for charge in counted}) > 1:
        counted = [charge.for_records() for charge in counted]
    relations = {charge.relation for charge in counted} - {"any"}
    if len(relations) > 1:
        raise Refused(
            "budget-relation",
            "Some charges are for adding or removing a record and some for replacing one: they cannot be composed. "
            "Use one relation at this site.",
        )
    return accountant.claim(counted, delta=delta, relation=next(iter(relations), "any"))
