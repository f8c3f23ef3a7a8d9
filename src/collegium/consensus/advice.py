"""Which rule to take, said before a run where the sites' rows show that plain votes are likely to do harm.

What is said follows from `benchmarks/consensus.py`; the default stays the majority, which needs nothing but labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from collegium.consensus.base import Consensus
from collegium.consensus.majority import Majority, QualifiedMajority
from collegium.consensus.weighted import WeightedMajority

if TYPE_CHECKING:
    from collegium.core.site import Site

SKEWED: Final = 0.2
"""Balanced Dirichlet partitions with alpha .5 are above it, iid ones of 30 rows or more below."""
VERY_SKEWED: Final = 0.35
"""From here on it helped that sites abstain where they know nothing."""


def skew_of(sites: Sequence[Site]) -> float:
    """How far the sites' class frequencies are from those of all rows: the mean total variation, 0 to 1."""
    labelled = [site.y for site in sites if len(site)]
    if len(labelled) < 2:
        return 0.0
    classes, codes = np.unique(np.concatenate(labelled), return_inverse=True)
    parts = np.split(codes, np.cumsum([len(y) for y in labelled])[:-1])
    shares = np.stack([np.bincount(part, minlength=len(classes)) / len(part) for part in parts])
    overall = np.bincount(codes, minlength=len(classes)) / len(codes)
    return float(np.abs(shares - overall).sum(axis=1).mean() / 2)


def advice_on(rule: Consensus, sites: Sequence[Site], instead: str) -> str | None:
    """A sentence for who counts votes although the sites' classes differ; None where that is no matter."""
    if not isinstance(rule, Majority | QualifiedMajority | WeightedMajority) or (skew := skew_of(sites)) <= SKEWED:
        return None
    return (
        f"The sites' classes differ much in frequency (by {skew:.0%} on average), and {type(rule).__name__} counts "
        "every vote, also on classes that a site does not know: sites may end up worse than alone. Consider "
        f"{instead}; docs/consensus.md says what that releases."
    )
