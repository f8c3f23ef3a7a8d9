"""The links of a simulation: one interface, chosen by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from collegium import registry
from collegium.core.attendance import Attendance
from collegium.core.link import Answer
from collegium.errors import ConfigError
from collegium.graphs import Labelled
from collegium.learners.base import SiteModel
from collegium.links.hosting import Hosting

AUTO: Final = "auto"
Kept = tuple[SiteModel | None, Labelled | None, list[str]]
"""What a site has at the end: its model, the labels of its own unlabeled points, its log."""


class Collected(NamedTuple):
    """What the sites have at the end, and who of them was trained with whom."""

    sites: dict[str, Kept]
    attendance: Attendance


class SimulatedLink(ABC):
    """A link to sites that it hosts itself: a simulation can read their models, labels and logs at the end."""

    has_cluster: ClassVar[bool] = False

    def __init__(self, hosting: Hosting, workers: int = 0, address: str | None = None, gpus: float = 0.0) -> None:
        """Host the sites with so many workers (0: as many as there are cores), on the cluster at an address.

        They share so many GPUs of the cluster, each GPU for some of them.
        """
        me = type(self).__name__
        if address is not None and not self.has_cluster:
            raise ConfigError(f"{me} runs on this machine only: address is for a cluster, as in link='ray'.")
        if gpus and not self.has_cluster:
            raise ConfigError(f"{me} spreads nothing over GPUs: gpus is for link='ray'. One GPU is device='cuda'.")
        self.parties = tuple(site.name for site in hosting.sites)

    @abstractmethod
    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come."""

    @property
    @abstractmethod
    def _collected(self) -> Collected:
        """What the sites have at the end; a site that is gone may be left out."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that was started."""

    @property
    def models(self) -> dict[str, SiteModel]:
        """The sites' models, in the order of the sites."""
        return {party: model for party, (model, _, _) in self._in_order() if model is not None}

    @property
    def found_labels(self) -> dict[str, Labelled]:
        """The labels that sites found for their own unlabeled points: nobody else sees them outside a simulation."""
        return {party: found for party, (_, found, _) in self._in_order() if found is not None}

    @property
    def logs(self) -> dict[str, list[str]]:
        """The sites' logs."""
        return {party: lines for party, (_, _, lines) in self._in_order()}

    @property
    def attendance(self) -> Attendance:
        """Who was trained with whom."""
        return self._collected.attendance

    def _in_order(self) -> list[tuple[str, Kept]]:
        collected = self._collected.sites
        return [(party, collected[party]) for party in self.parties if party in collected]


def link_class(name: str, workers: int) -> tuple[str, type[SimulatedLink]]:
    """The link of this name; 'auto' means worker processes if any are wanted, and this process otherwise."""
    chosen = ("workers" if workers else "local") if name == AUTO else name
    cls: type[SimulatedLink] = registry.lookup("link", chosen)
    return chosen, cls
