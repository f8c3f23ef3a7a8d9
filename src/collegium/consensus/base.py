"""What a consensus rule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collegium.core import Federation, HardLabels, Labels, Order, Steps
from collegium.core.algorithm import Asking


@dataclass(frozen=True)
class Consensus(Asking, ABC):
    """A rule that asks sites for labels and makes one labelling of them.

    A rule that needs only the sum of the votes uses ``fed.total`` and never sees a site's own labels; one that
    weighs sites against each other uses ``fed.ask`` or ``fed.stream``. The verb is the leak.
    """

    asks_for: ClassVar[Steps] = ()
    """Steps of its own; the one that it is given belongs to the algorithm."""

    takes: ClassVar[tuple[str, ...]] = ("HardLabels",)
    """Kinds of release that it can make a labelling of; a privacy mechanism may send another than the step gave."""

    counts_only: ClassVar[bool] = False
    """Whether it needs nothing but the total of the votes, so that they may be secret."""

    guards: ClassVar[bool] = False
    """Whether each site is to take only as much of the labels as helps it; what that means is up to the algorithm."""

    weighs_opinion: ClassVar[bool] = False
    """Whether it uses what the model behind made-up rows says of them."""

    @abstractmethod
    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        """Ask `parties` (all, if None) with `order`; return the consensus, -1 where there is none."""


@dataclass(frozen=True)
class Voters(Asking, ABC):
    """Who votes on which sample: decided at each site, from its own data."""

    @abstractmethod
    def order(self, communication: int) -> Order[HardLabels] | None:
        """The order that asks for votes in the n-th communication; None where everybody votes on everything."""
