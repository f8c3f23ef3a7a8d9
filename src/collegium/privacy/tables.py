"""A run's privacy as a table: what may be claimed about each site, and on what assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Final

import pandas as pd

from collegium.core.releases import KINDS
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import UNPROTECTED, Account, Charge, PrivacyClaim

COORDINATOR: Final = "coordinator"
COLUMNS: Final = ("party", *(field.name for field in fields(PrivacyClaim)), "covers")


def privacy_table(
    releases: pd.DataFrame, parties: Sequence[str], made_public: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row per party and kind of claim; then what the coordinator publishes with its own noise."""
    rows = []
    for party in parties:
        rows += _rows_of(party, releases[releases["party"] == party])
    for what, privacy in (made_public or {}).items():
        claims = Account(tuple(read_charges(privacy)[0])).claims()
        rows += [_row(COORDINATOR, claim, [], []) | {"covers": what} for claim in claims]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows_of(party: str, releases: pd.DataFrame) -> list[dict[str, object]]:
    bare = [kind for kind, privacy in zip(releases["kind"], releases["privacy"], strict=True) if not _has(privacy)]
    charged: list[tuple[str, Charge]] = [
        (kind, charge)
        for kind, privacy in zip(releases["kind"], releases["privacy"], strict=True)
        if _has(privacy)
        for charge in read_charges(privacy)[0]
    ]
    if bare and not any(charge.events for _, charge in charged):
        charged = []  # that some releases used no private data would only distract from those that did
    rows: list[dict[str, object]] = []
    for claim in Account(tuple(charge for _, charge in charged)).claims():
        covered = [kind for kind, charge in charged if charge.kind == claim.kind and charge.unit == claim.unit]
        rows.append(_row(party, claim, covered, bare))
    if bare:
        rows.append(_unprotected(party, bare))
    if not rows:
        rows.append(_row(party, PrivacyClaim("dp", "record", "any", 0.0, 0.0, 0, "nothing to add up"), [], []))
    return rows


def _row(party: str, claim: PrivacyClaim, covered: list[str], bare: list[str]) -> dict[str, object]:
    words = list(claim.assumptions)
    if bare:
        words.append(
            f"it does not cover {_counted(bare)}, which left unprotected: the site as a whole has no guarantee"
        )
    told = {"assumptions": "; ".join(words), "covers": _counted(covered) or "nothing was released"}
    return {"party": party, **asdict(claim), **told}


def _unprotected(party: str, bare: list[str]) -> dict[str, object]:
    return {
        "party": party, "kind": UNPROTECTED, "unit": "record", "relation": "replace",
        "epsilon": math.inf, "delta": math.nan, "rounds": len(bare), "accountant": "none",
        "assumptions": _what_is_learned(list(dict.fromkeys(bare))),
        "publishable": True, "covers": _counted(bare),
    }  # fmt: skip


def _what_is_learned(kinds: list[str]) -> str:
    """Cryptography may hide a release from the coordinator; that is not differential privacy, and the text says so."""
    hidden = {kind: KINDS[kind].coordinator_learns for kind in kinds if kind in KINDS}
    texts = [f"from {kind} the coordinator learns {text}" for kind, text in hidden.items() if text is not None]
    words = []
    if len(texts) < len(kinds):
        words.append("nothing protects these releases: whoever sees them may learn about single records")
    if texts:
        words.append("confidential against parties that do not collude, which is not differential privacy")
    return "; ".join(words + texts)


def _counted(kinds: list[str]) -> str:
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def _has(privacy: object) -> bool:
    return isinstance(privacy, str)  # a missing value comes back from a file as None or NaN
