"""How a budget is spent: which share of it each sum has, and what all of them cost together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from collegium.errors import ConfigError
from collegium.privacy.claims import Charge, Relation
from collegium.privacy.composition import gaussian_sigma
from collegium.privacy.events import Failure
from collegium.privacy.mechanisms.distributed import DistributedGaussian
from collegium.together import naming

_SHARES: Final = {"values": 0.15, "ranges": 0.15, "histograms": 0.1, "pairs": 0.3}
"""Of the budget (as 1 / noise^2, in which Gaussian noise adds up); the edges get the rest."""
_FAILURE: Final = 0.1
"""The share of delta that is for naming a value which one record alone has."""
_USELESS: Final = 500.0
"""Rows: with more noise than this in a histogram's cells, nothing can be made."""
_ROUNDING: Final = 1e-9
"""So much more noise, so that a claim is never above its epsilon by a rounding error."""


@dataclass(frozen=True)
class Spending:
    """What sums cost, where so many sites at least add their share of the noise."""

    epsilon: float
    delta: float
    fewest: int
    relation: Relation
    sums: tuple[str, ...]
    """The names of all sums that are asked for."""
    times: int = 1
    """In how many sums the edges are counted."""

    @property
    def changed(self) -> int:
        """How many records change: one that is replaced is one that leaves and one that comes."""
        return 2 if self.relation == "replace" else 1

    @property
    def failure(self) -> float:
        """The part of delta that naming values takes."""
        return _FAILURE * self.delta

    @property
    def _multiplier(self) -> float:
        """The noise of all sums together, over their sensitivity."""
        delta = self.delta - self.failure if "values" in self.sums else self.delta
        return gaussian_sigma(self.epsilon, delta) * (1 + _ROUNDING)

    def multiplier(self, asked: str) -> float:
        """The noise of one sum, over its sensitivity."""
        shares = {name: share for name, share in _SHARES.items() if name in self.sums}
        share = shares.get(asked, (1 - sum(shares.values())) / self.times)
        return self._multiplier / math.sqrt(share)

    def noise(self, asked: str) -> DistributedGaussian:
        """Each site's share of the noise of one sum."""
        return self._noise(self.multiplier(asked))

    def cell(self, asked: str, marginals: int) -> float:
        """The noise of each cell where so many marginals are counted."""
        return self.multiplier(asked) * math.sqrt(self.changed * marginals)

    def require_use(self, columns: int) -> None:
        """Refuse a budget that buys nothing, before anything leaves."""
        noise = self.cell("histograms", 1 + columns)
        if noise > _USELESS:
            raise ConfigError(
                f"Together: epsilon {self.epsilon:g} at delta {self.delta:g} is too small to make anything of. Every "
                f"count would carry noise of +-{noise:,.0f} rows, so that only what {10 * noise:,.0f} rows have in "
                f"common would be seen. Spend at least {self._enough(columns):.2g}, or declare fewer columns."
            )

    def _enough(self, columns: int) -> float:
        """About the smallest epsilon that is not refused, never below it."""
        spent = self
        while spent.cell("histograms", 1 + columns) > _USELESS:
            spent = replace(spent, epsilon=spent.epsilon * 1.05)
        step = 10.0 ** (math.floor(math.log10(spent.epsilon)) - 1)
        return math.ceil(spent.epsilon / step) * step

    def charge(self) -> Charge:
        """What all sums cost together."""
        noise = self._noise(self._multiplier)
        charge = replace(noise.charge(0, 0), assumptions=noise.of_sites)
        if "values" not in self.sums:
            return charge
        named = Failure(1, self.failure)
        return replace(charge, events=(*charge.events, named)).assuming(naming.ASSUMPTION)

    def _noise(self, multiplier: float) -> DistributedGaussian:
        return DistributedGaussian(multiplier, fewest=self.fewest, delta=self.delta, relation=self.relation)
