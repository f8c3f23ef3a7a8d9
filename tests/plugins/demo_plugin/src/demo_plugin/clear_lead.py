"""A consensus rule: one dataclass that asks for labels and returns one labelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collegium.consensus import Consensus
from collegium.core import Federation, HardLabels, Labels, Order
from collegium.core.settings import PositiveInt


@dataclass(frozen=True)
class ClearLead(Consensus):
    """The winner needs `lead` votes more than the runner-up; otherwise the sample gets no label this round."""

    lead: PositiveInt = 2

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        tally = fed.total(order, parties).tally
        second, first = np.sort(tally.counts, axis=0)[-2:]
        return Labels(np.where(first - second >= self.lead, tally.winners(fed.seed), -1), fed.n_classes)
