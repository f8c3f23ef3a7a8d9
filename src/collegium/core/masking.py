"""How orders are answered so that the coordinator sees the sum over sites and no single site's release.

The protocols themselves live elsewhere (`collegium.secure`) and are found by name in the registry of kind "masking".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from collegium import registry

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.releases import Release
    from collegium.core.site import ActiveSite
    from collegium.core.steps import Order
    from collegium.privacy.claims import Charge
    from collegium.wire.orders import Mask


class SecretTotals(Protocol):
    """At the coordinator, for one run: asks, and learns the sum only."""

    def total(self, orders: Mapping[str, Order[Any]], deadline: float | None, quorum: float) -> Any:
        """The sum over the parties that answered."""
        ...


class Masking(Protocol):
    """One way of masking: its coordinator's side, and what a site's gate does."""

    def totals(self, fed: Federation) -> SecretTotals:
        """The coordinator's side, for one run."""
        ...

    def masked(self, site: ActiveSite, mask: Mask, release: Release) -> Release:
        """At a gate: the release as it may leave. A `Refused` where it must not."""
        ...

    def keep(self, site: ActiveSite, mask: Mask, release: Release, charges: Sequence[Charge] | None) -> None:
        """At a gate: remember a release that left masked and is paid for, in case it has to be masked again."""
        ...

    def kept(self, site: ActiveSite, mask: Mask) -> tuple[Release, list[Charge] | None]:
        """At a gate: what was kept of the round that the mask names, and what masking it again costs."""
        ...


def masking(name: str) -> Masking:
    """The way of masking that is registered under this name."""
    found: Masking = registry.lookup("masking", name)()
    return found
