"""The base of mechanisms: noise on one kind of release, with events that describe its cost.

The site's gate applies it, after the step and before anything leaves; a step cannot bypass it. The coordinator sends a
mechanism's name and settings, and the gate builds it from what is installed at the site.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError
from typing import Annotated, Any, ClassVar, Final, NoReturn

from annotated_types import Ge, Lt

from collegium.core.releases import Release
from collegium.core.sensitivity import Sensitivity
from collegium.core.settings import PositiveInt, check
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import Charge
from collegium.privacy.noise import Noise

_DELTA: Final = Annotated[float, Ge(0), Lt(1)]


class Mechanism(ABC):
    """Noise on one kind of release.

    A subclass declares its settings, with types and defaults, in a `checked` ``__init__`` or as dataclass fields, and
    passes their values to `_keep`. Instances are immutable.
    """

    name: ClassVar[str]
    """Its name in study files and orders."""
    takes: ClassVar[type[Release]]
    """The kind of release it protects."""
    gives: ClassVar[type[Release]]
    """The kind of release that leaves instead."""
    neighbours: int | None = None
    """How many neighbours of its data the site samples, to measure how many values change; None: no measurement."""
    _settings: Mapping[str, Any]

    @property
    def independent(self) -> bool:
        """Whether each value of a release gets noise of its own, whatever the other values are."""
        return True

    @abstractmethod
    def apply(self, release: Any, noise: Noise) -> Release:
        """The noisy release of a release of kind `takes`. Only the gate calls this."""

    def for_step(self, declared: Sensitivity | None) -> Mechanism:
        """The mechanism as a gate uses it: charged by what the step declares that one record may change.

        Settings that promise something else are a ConfigError, and so is a step that declares nothing. Noise on labels
        is charged for every label, whatever a step declares.
        """
        return self

    def _with(self, **declared: Any) -> Mechanism:
        """The same noise with the step's own settings; a ConfigError if other ones were promised."""
        given = self.settings()
        for name, value in declared.items():
            if given.get(name, value) != value:
                raise ConfigError(
                    f"{type(self).__name__}: {name} is {given[name]!r}, but the step declares {value!r}. Leave it out: "
                    "a site charges what its own step declares."
                )
        return type(self)(**given | declared)

    @abstractmethod
    def charge(
        self, release_size: int, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        """What one use costs.

        Parameters
        ----------
        release_size, n_classes:
            The number of samples or queries in the release, and the number of classes.
        records:
            The number of the site's private records.
        observed:
            How many values were seen to change at once, for a mechanism that has the site measure that.
        """

    def settings(self) -> dict[str, Any]:
        """Plain data from which the site builds the same mechanism: all settings that differ from their defaults."""
        parameters = inspect.signature(type(self)).parameters
        return {name: value for name, value in self._settings.items() if value != parameters[name].default}

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for an order."""
        return {"name": self.name, **self.settings()}

    def _keep(self, settings: Mapping[str, Any], **attributes: Any) -> None:
        """Store settings (as `settings` will show them) and attributes; for ``__init__``."""
        for name, value in {**attributes, "_settings": dict(settings)}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"{type(self).__name__} is immutable: cannot set {name}. Make a new one.")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"{type(self).__name__} is immutable: cannot delete {name}.")

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def total_epsilon(used: Iterable[events.Event], rounds: int, delta: float) -> float:
    """The epsilon of events that happen `rounds` times; with delta = 0 the sum, or infinity if there is none."""
    rounds, delta = check(PositiveInt, rounds, "epsilon: rounds"), check(_DELTA, delta, "epsilon: delta")
    repeated = [event.times(rounds) for event in used]
    if delta == 0:
        return sum((_pure_epsilon(event) for event in repeated), 0.0)
    from collegium.privacy.accountant import epsilon_of

    return epsilon_of(repeated, delta)[0]


def _pure_epsilon(event: events.Event) -> float:
    match event:
        case events.Pure(count, epsilon) | events.RandomizedResponse(count, epsilon):
            return count * epsilon
        case events.Laplace(count, noise_multiplier):
            return count / noise_multiplier
    return math.inf
