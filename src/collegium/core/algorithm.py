"""What every algorithm is: settings, and one method that runs at the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.core.federation import Federation


@dataclass(frozen=True)
class Algorithm(ABC):
    """A frozen dataclass of settings with the paper's loop in `coordinate`."""

    needs_public: ClassVar[bool] = True
    simulation_only: ClassVar[bool] = False

    def at_least_one(self, *names: str) -> None:
        """Check settings that count something; None is allowed where it is the default."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            value = getattr(self, name)
            if value is None and defaults[name] is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ConfigError(f"{type(self).__name__}: {name} must be at least 1, a whole number, not {value!r}.")

    @abstractmethod
    def coordinate(self, fed: Federation) -> None:
        """The coordinator's side, in direct style."""
