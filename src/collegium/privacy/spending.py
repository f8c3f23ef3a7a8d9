"""The privacy spent, according to a ledger file."""

from __future__ import annotations

from pathlib import Path

from collegium.privacy.budget import read_charges, spent_claim
from collegium.privacy.claims import Charge
from collegium.site.ledger import read_ledger, verify_ledger


def spent(ledger: str | Path, delta: float = 1e-5) -> dict[str, float]:
    """The epsilon that each party in a ledger file has spent so far, at `delta`. Its hash chain is verified first."""
    charges: dict[str, list[Charge]] = {party: [] for party in verify_ledger(ledger)}
    for row in read_ledger(ledger):
        charges[row["party"]] += read_charges(row["event"])[0]
    claims = {party: spent_claim(each, delta) for party, each in charges.items()}
    return {party: 0.0 if claim is None else claim.epsilon for party, claim in claims.items()}
