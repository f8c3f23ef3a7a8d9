"""Local: every site trains alone. Nothing leaves; the lower bound that sharing must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from collegium.algorithms._starting import Started, begin_from
from collegium.core import ActiveSite, Federation, Nothing, Steps, step
from collegium.core.settings import PositiveInt


@step
def train(site: ActiveSite, epochs: int | None, steps: int | None) -> Nothing:
    """h_i <- A_i(D_i)"""
    site.fit(site.data, epochs=epochs, steps=steps)
    return Nothing()


@dataclass(frozen=True)
class Local(Started):
    """No communication at all."""

    asks_for: ClassVar[Steps] = (begin_from, train)
    needs_public: ClassVar[bool] = False
    rounds: PositiveInt = 1
    """More than one only helps learners that go on from their weights."""
    epochs: PositiveInt | None = None
    steps: PositiveInt | None = None
    start: Any = None
    """Weights that all sites start from, such as another run's `global_model` (None: their learners' own)."""

    def coordinate(self, fed: Federation) -> None:
        self.begin(fed)
        for _ in fed.rounds(self.rounds):
            fed.tell(train(self.epochs, self.steps))
            fed.flush()
