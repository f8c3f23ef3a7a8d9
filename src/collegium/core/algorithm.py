"""What every algorithm is: settings, and one method that runs at the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.core.federation import Federation


@dataclass(frozen=True)
class Algorithm(ABC):
    """A frozen dataclass of settings with the paper's loop in `coordinate`."""

    needs_public: ClassVar[bool] = True
    simulation_only: ClassVar[bool] = False

    def at_least_one(self, *names: str) -> None:
        """Check settings that count something; None means 'not set'."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{type(self).__name__}: {name} must be at least 1, not {value}.")

    @abstractmethod
    def coordinate(self, fed: Federation) -> None:
        """The coordinator's side, in direct style."""
