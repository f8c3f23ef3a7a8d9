"""Centralized: all private data in one place. Simulation only; an upper bound.

Every site hands over its records (the ledger shows what that means in bytes) and each site's own learner is fitted on
the pool, so that each model of a mixed federation has its own upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collegium.core import ActiveSite, Algorithm, Federation, LabelledData, Nothing, RawRecords, Steps, step
from collegium.core.labels import Codes, code_dtype
from collegium.core.settings import PositiveInt
from collegium.wire import tables


@step
def hand_over(site: ActiveSite) -> RawRecords:
    """D_i itself."""
    header, columns = tables.to_arrays(site.data.X)
    return RawRecords(header, columns, site.data.codes)


@step
def receive(site: ActiveSite, header: dict[str, Any], columns: dict[str, Any], codes: Any) -> Nothing:
    """D <- D_1 u ... u D_m"""
    site.state["pool"] = LabelledData(tables.from_arrays(header, columns), codes)
    return Nothing()


@step
def train(site: ActiveSite, epochs: int | None, steps: int | None) -> Nothing:
    """h <- A_i(D)"""
    site.fit(site.state["pool"], epochs=epochs, steps=steps)
    return Nothing()


def pooled(fed: Federation) -> tuple[Any, Codes]:
    """The records of all sites, and their classes."""
    parts = fed.ask(hand_over()).values()
    codes = np.concatenate([part.codes for part in parts]).astype(code_dtype(fed.n_classes))
    return tables.stack([tables.from_arrays(part.header, part.columns) for part in parts]), codes


@dataclass(frozen=True)
class Centralized(Algorithm):
    """Pooled data."""

    asks_for: ClassVar[Steps] = (hand_over, receive, train)
    needs_public: ClassVar[bool] = False
    simulation_only: ClassVar[bool] = True
    rounds: PositiveInt = 1
    """More than one only helps learners that go on from their weights."""
    epochs: PositiveInt | None = None
    steps: PositiveInt | None = None

    def coordinate(self, fed: Federation) -> None:
        X, codes = pooled(fed)
        fed.tell(receive(*tables.to_arrays(X), codes))
        for _ in fed.rounds(self.rounds):
            fed.tell(train(self.epochs, self.steps))
            fed.flush()
