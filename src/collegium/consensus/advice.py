"""Which rule to take, said before a run where the sites' rows show that plain votes are likely to do harm.

What is said follows from `benchmarks/consensus.py`. The default is the papers' majority, which needs nothing but labels
and is no better than other rules even where sites are alike: so whoever has chosen no rule is told of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.pipeline import Pipeline

from collegium.consensus.base import Consensus
from collegium.consensus.majority import Majority, QualifiedMajority
from collegium.consensus.weighted import WeightedMajority
from collegium.core.labels import plain_spelling

if TYPE_CHECKING:
    from collegium.core.site import Site

SKEWED: Final = 0.2
"""Balanced Dirichlet partitions with alpha .5 are above it, iid ones of 30 rows or more below."""


UNCHOSEN: Final = Majority()
"""The rule where none was chosen. One that is equal to it, but not this one, was: `consensus=Majority()`."""


def unchosen() -> Majority:
    """For fields of dataclasses."""
    return UNCHOSEN


def skew_of(sites: Sequence[Site]) -> float:
    """How far the sites' class frequencies are from those of all rows: the mean total variation, 0 to 1."""
    labelled = [site.y for site in sites if len(site)]
    if len(labelled) < 2:
        return 0.0
    values, codes = np.unique(np.concatenate(labelled), return_inverse=True)
    # Another spelling of a class is no other class.
    classes, same = np.unique([plain_spelling(value) for value in values.tolist()], return_inverse=True)
    codes = same[codes]
    parts = np.split(codes, np.cumsum([len(y) for y in labelled])[:-1])
    shares = np.stack([np.bincount(part, minlength=len(classes)) / len(part) for part in parts])
    overall = np.bincount(codes, minlength=len(classes)) / len(codes)
    return float(np.abs(shares - overall).sum(axis=1).mean() / 2)


def advice_on(
    rule: Consensus,
    sites: Sequence[Site],
    instead: str | None = None,
    safe: str | None = None,
    better: str | None = None,
) -> str | None:
    """A sentence for who counts votes although classes or learners differ, or no rule was chosen; None otherwise.

    `instead` is what to take where classes differ; `safe`, where learners do, and `better`, where neither is known
    (None: nothing is said of these).
    """
    if not isinstance(rule, Majority | QualifiedMajority | WeightedMajority):
        return None
    counts = f"{type(rule).__name__} counts every vote"
    if instead is not None and (skew := skew_of(sites)) > SKEWED:
        why = f"The sites' classes differ much in frequency (by {skew:.0%} on average), and {counts}, also on classes"
        why += f" that a site does not know: sites may end up worse than alone. Consider {instead}"
    elif safe is not None and len({_kind(site.learner) for site in sites}) > 1:
        why = f"The sites bring different learners, and {counts}, those of the weakest, too: sites with a better one"
        why += f" may end up worse than alone. Consider {safe}"
    elif better is not None and rule is UNCHOSEN and not any(hasattr(site.learner, "update") for site in sites):
        why = f"No rule was chosen, so {counts}, those of sites whose labels are wrong, too. Consider {better}, or"
        why += ' choose Majority (in a study: consensus = "majority") to hear no more of this'
    else:
        return None
    return f"{why}; docs/consensus.md says what that releases."


def _kind(learner: Any) -> str:
    """What a learner is, whatever is in front of it."""
    return type(learner[-1] if isinstance(learner, Pipeline) else learner).__name__
