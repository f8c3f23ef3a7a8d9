"""A consensus rule: one dataclass that asks for labels and returns one labelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collegium.consensus import Consensus
from collegium.core import Federation, HardLabels, Labels, Order
from collegium.errors import ConfigError


@dataclass(frozen=True)
class ClearLead(Consensus):
    """The winner needs `lead` votes more than the runner-up; otherwise the sample gets no label this round."""

    lead: int = 2

    def __post_init__(self) -> None:
        if self.lead < 1:
            raise ConfigError(f"ClearLead: lead must be at least 1, not {self.lead}.")

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        tally = fed.total(order, parties).tally
        second, first = np.sort(tally.counts, axis=0)[-2:]
        return Labels(np.where(first - second >= self.lead, tally.winners(fed.seed), -1), fed.n_classes)
