"""What every algorithm is: settings, and one method that runs at the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from collegium.core.scores import measure, score
from collegium.core.settings import Settings
from collegium.core.steps import Step, Steps
from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import Site
    from collegium.privacy.claims import Charge
    from collegium.privacy.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Asking(Settings):
    """An algorithm, or a rule among its settings: it declares the steps for which it asks sites."""

    asks_for: ClassVar[Steps]
    """Every step that it may ask or tell sites to run. What is not declared here cannot be asked for."""

    def unasked(self) -> Steps:
        """Those of `asks_for` that it never asks for, as it is set."""
        return ()

    def dispensable(self) -> Steps:
        """Steps whose answers it can do without: a site whose policy refuses them takes part all the same."""
        parts = (getattr(self, field.name) for field in fields(self))
        return tuple(step for part in parts if isinstance(part, Asking) for step in part.dispensable())

    def noise_on(self, step: Step[..., Any]) -> Mechanism | None:
        """The mechanism through which sites answer a step, if any: its own, or that of a rule among its settings."""
        parts = (getattr(self, field.name) for field in fields(self))
        found = (part.noise_on(step) for part in parts if isinstance(part, Asking))
        return next((mechanism for mechanism in found if mechanism is not None), None)

    def all_steps(self) -> dict[str, Step[Any, Any]]:
        """What it may ask sites for as it is set, by name, with what the rules among its settings may ask for."""
        if not hasattr(self, "asks_for"):
            me = type(self).__name__
            raise ConfigError(
                f"{me} does not declare which steps it asks sites for: add the class variable asks_for, such as "
                "asks_for: ClassVar = (train, label). Sites agree to these steps only."
            )
        never = self.unasked()
        steps = {each.name: each for each in self.asks_for if each not in never}
        for field in fields(self):
            part = getattr(self, field.name)
            if isinstance(part, Asking):
                steps |= part.all_steps()
        return steps


@dataclass(frozen=True)
class Algorithm(Asking, ABC):
    """A frozen dataclass of settings with the paper's loop in `coordinate`."""

    needs_public: ClassVar[bool] = True
    learns_public_labels: ClassVar[bool] = False
    """Whether it learns from labels of its public set, ``public=(X, y)``."""
    needs_labels: ClassVar[bool] = True
    """Whether every site must have labeled rows."""
    needs_learner: ClassVar[bool] = True
    """Whether every site must bring a learner."""
    trains_sites: ClassVar[bool] = True
    """Whether it gives every site a model, which can be scored."""
    makes_public: ClassVar[bool] = False
    """Whether its result is a public set, `run.made`, and no models."""
    labels_own_points: ClassVar[bool] = False
    """Whether it labels the sites' own unlabeled points, for their owners only: `run.labels` is then by site."""
    fresh_secrets: ClassVar[bool] = False
    """Whether releases are encrypted or masked with fresh keys: the same result, in other bytes each time."""
    simulation_only: ClassVar[bool] = False
    needs: ClassVar[Mapping[str, str]] = {}
    """What a site's learner must be able to do, by capability, and what for: ``{"weights": "averages weights"}``."""

    def protection(self) -> Mechanism | None:
        """The mechanism through which sites answer, if any: known before anything runs."""
        return None

    def noise_on(self, step: Step[..., Any]) -> Mechanism | None:
        protection = self.protection()
        on_this = protection is not None and step.releases is protection.takes
        return protection if on_this else super().noise_on(step)

    def site_charge(self, public_size: int) -> Charge | None:
        """What its steps charge each site for their noise on private data; None if they add none."""
        return None

    @property
    def most_rounds(self) -> int:
        """How many rounds it takes at most, where no rehearsal can tell."""
        return int(getattr(self, "rounds", 1))

    def all_steps(self) -> dict[str, Step[Any, Any]]:
        # A federation may ask any model that was trained how well it does.
        return super().all_steps() | ({each.name: each for each in (score, measure)} if self.trains_sites else {})

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        """Arguments of its steps, by step and name, that protect a site.

        A site that agreed to a plan takes these and no others, whatever a coordinator says.
        """
        return {}

    def learns(self) -> dict[str, str]:
        """What each party learns, where cryptography hides part of what is sent."""
        return {}

    def check_site(self, site: Site) -> None:
        """Refuse data or a learner that this method cannot use, before anything runs (ConfigError)."""

    def advice(self, sites: Sequence[Site]) -> str | None:
        """What a user should consider before a simulation of these sites, in words; None where there is nothing."""
        return None

    def learners(self, site: Site) -> Sequence[Any]:
        """What trains at a site: its own learner, where the method names no others."""
        return [site.learner]

    def final_learner(self) -> Any:
        """The learner of the global model if the user chose none (None: the first site's)."""
        return None

    @abstractmethod
    def coordinate(self, fed: Federation) -> None:
        """The coordinator's side, in direct style."""
