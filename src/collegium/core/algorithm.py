"""What every algorithm is: settings, and one method that runs at the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from collegium.core.settings import Settings

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import Site
    from collegium.privacy.claims import Charge
    from collegium.privacy.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Algorithm(Settings, ABC):
    """A frozen dataclass of settings with the paper's loop in `coordinate`."""

    needs_public: ClassVar[bool] = True
    learns_public_labels: ClassVar[bool] = False
    """Whether its public set is labelled, ``public=(X, y)``, and those labels are learned from."""
    needs_labels: ClassVar[bool] = True
    """Whether every site must have labelled rows."""
    needs_learner: ClassVar[bool] = True
    """Whether every site must bring a learner."""
    trains_sites: ClassVar[bool] = True
    """Whether sites come to a model, which can be scored."""
    labels_own_points: ClassVar[bool] = False
    """Whether it labels the sites' own unlabelled points, for their owners only: `run.labels` is then by site."""
    fresh_secrets: ClassVar[bool] = False
    """Whether releases are encrypted or masked with fresh keys: the same result, in other bytes each time."""
    simulation_only: ClassVar[bool] = False
    needs: ClassVar[Mapping[str, str]] = {}
    """What a site's learner must be able to do, by capability, and what for: ``{"weights": "averages weights"}``."""

    def protection(self) -> Mechanism | None:
        """The mechanism through which sites answer, where there is one: known before anything runs."""
        return None

    def site_charge(self, public_size: int) -> Charge | None:
        """What its steps charge each site for their noise on private data; None where they put none on."""
        return None

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any] | None]:
        """Arguments of its steps, by step and name, that protect a site; None: this method never asks for that step.

        A site that agreed to a plan takes these and no others, whatever a coordinator says.
        """
        return {}

    def learns(self) -> dict[str, str]:
        """What each party gets to know, where cryptography sees to it that it is less than what is sent."""
        return {}

    def check_site(self, site: Site) -> None:
        """Refuse data or a learner that this method can do nothing with, before anything runs (ConfigError)."""

    def learners(self, site: Site) -> Sequence[Any]:
        """What trains at a site: its own learner, where the method names no others."""
        return [site.learner]

    def final_learner(self) -> Any:
        """The learner of the global model, where the user chose none (None: the first site's)."""
        return None

    @abstractmethod
    def coordinate(self, fed: Federation) -> None:
        """The coordinator's side, in direct style."""
