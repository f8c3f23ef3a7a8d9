"""Guarded: any rule, of which each site takes only as much as helps it.

What helps is measured at the site, on rows of its own, and stays there: `algorithms/_guard.py` says how. The labels are
those of the rule inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collegium.consensus.base import Consensus
from collegium.consensus.informed import Informed
from collegium.core import Federation, HardLabels, Labels, Order


@dataclass(frozen=True)
class Guarded(Consensus):
    """The labels of `rule`, of which each site takes only as much as helps it on rows of its own, out of fold."""

    guards: ClassVar[bool] = True
    rule: Consensus = field(default_factory=Informed)
    """How the sites' labels become one labeling."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Of the instance: it takes what the rule inside takes.
        object.__setattr__(self, "takes", self.rule.takes)
        object.__setattr__(self, "counts_only", self.rule.counts_only)
        object.__setattr__(self, "weighs_opinion", self.rule.weighs_opinion)

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        return self.rule(fed, order, parties)
