"""The links of a simulation: one interface, chosen by name."""

from __future__ import annotations

from typing import Final, Protocol, Self

from collegium import registry
from collegium.core.federation import Link
from collegium.errors import ConfigError
from collegium.graphs import Labelled
from collegium.learners.base import SiteModel
from collegium.links.hosting import Hosting

AUTO: Final = "auto"


class SimulatedLink(Link, Protocol):
    """A link to sites that it hosts itself: in a simulation their models, labels and logs can be had at the end."""

    @classmethod
    def open(cls, hosting: Hosting, workers: int, address: str | None) -> Self:
        """Host the sites with so many workers (0: as many as there are cores), on the cluster at an address."""
        ...

    @property
    def models(self) -> dict[str, SiteModel]:
        """The sites' models, in the order of the sites."""
        ...

    @property
    def found_labels(self) -> dict[str, Labelled]:
        """What the sites found of their own unlabeled points."""
        ...

    @property
    def logs(self) -> dict[str, list[str]]:
        """The sites' logs."""
        ...

    def close(self) -> None:
        """Let go of all that was started."""
        ...


def link_class(name: str, workers: int) -> tuple[str, type[SimulatedLink]]:
    """The link of this name; 'auto' is worker processes if there are to be any, and this process otherwise."""
    chosen = ("workers" if workers else "local") if name == AUTO else name
    cls: type[SimulatedLink] = registry.lookup("link", chosen)
    return chosen, cls


def no_address(link: str, address: str | None) -> None:
    """Links of one machine have no cluster to go to."""
    if address is not None:
        raise ConfigError(f"The link {link!r} stays on this machine: address is for a cluster, as in link='ray'.")
