"""Steps: named functions, installed at a site, that the coordinator may ask for."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from collegium.core.releases import KINDS, Release
from collegium.core.sensitivity import Sensitivity
from collegium.core.step_sources import digest_of_sources
from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite
    from collegium.privacy.mechanisms.base import Mechanism
    from collegium.wire.orders import Mask

P = ParamSpec("P")
R_co = TypeVar("R_co", bound=Release, covariant=True)

DeclaredSensitivity: TypeAlias = Sensitivity | Callable[[Mapping[str, Any]], Sensitivity]
INSTALLED: dict[str, Step[Any, Any]] = {}


@dataclass(frozen=True)
class Order(Generic[R_co]):
    """What an algorithm writes to have one installed step run, with plain-data arguments."""

    step: str
    digest: str
    args: dict[str, Any]
    mechanism: dict[str, Any] | None = None
    """The noise that the site's gate puts on the release, as plain data."""
    gives: str | None = None
    """The kind of release that the noise turns the step's own into."""
    secret: str | None = None
    """How sites mask their answers so that only their sum can be seen: the order can then only be totalled."""
    mask: Mask | None = None
    """What a site's gate needs for masking its release; `Federation.total` fills it in."""

    def through(self, mechanism: Mechanism | None) -> Order[Any]:
        """The same order, answered through a privacy mechanism."""
        if mechanism is None:
            return self
        return replace(self, mechanism=mechanism.to_plain(), gives=mechanism.gives.kind)

    def secretly(self, protocol: str = "secret_votes") -> Order[R_co]:
        """The same order, masked by a registered protocol so that the coordinator sees the total only."""
        return replace(self, secret=protocol)

    @property
    def answer(self) -> type[Release]:
        """The kind of release that answers this order."""
        return INSTALLED[self.step].releases if self.gives is None else KINDS[self.gives]


class Step(Generic[P, R_co]):
    """A function that runs at a site. Calling it does not run it: it writes an order."""

    def __init__(
        self, function: Callable[Concatenate[ActiveSite, P], R_co], sensitivity: DeclaredSensitivity | None = None
    ) -> None:
        self.function = function
        self._sensitivity = sensitivity
        self.name = f"{function.__module__.rpartition('.')[2].lstrip('_')}.{function.__name__}"
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)
        self.releases = _declared_release(self.name, function)
        known = INSTALLED.get(self.name)
        if known is not None and known.function.__module__ != function.__module__:
            raise TypeError(
                f"Step {self.name} is already installed by module {known.function.__module__}: rename the function "
                f"or the module {function.__module__}."
            )
        INSTALLED[self.name] = self

    @cached_property
    def digest(self) -> str:
        """Identifies what would run: its module, and what that imports of its own package and of Collegium."""
        return _digest(self.function)

    def __getstate__(self) -> dict[str, Any]:
        # Where a script's own step is sent to, there is no source to read.
        return self.__dict__ | {"digest": self.digest}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Order[R_co]:
        bound = self._signature.bind(None, *args, **kwargs)  # None stands for the site
        bound.apply_defaults()
        return Order(self.name, self.digest, dict(list(bound.arguments.items())[1:]))

    def run(self, site: ActiveSite, args: dict[str, Any]) -> R_co:
        """Run at the site. Only a gate calls this."""
        return self.function(site, **args)  # type: ignore[call-arg]

    def sensitivity(self, args: Mapping[str, Any]) -> Sensitivity | None:
        """What one record may change in the answer to these arguments; None if the step does not say."""
        if not callable(self._sensitivity):
            return self._sensitivity
        try:
            return self._sensitivity(args)
        except KeyError as error:
            raise ConfigError(
                f"The sensitivity of step {self.name!r} depends on {error}, which is not given."
            ) from None


Steps: TypeAlias = tuple[Step[..., Any], ...]


@overload
def step(function: Callable[Concatenate[ActiveSite, P], R_co]) -> Step[P, R_co]: ...


@overload
def step(
    *, sensitivity: DeclaredSensitivity | None = None
) -> Callable[[Callable[Concatenate[ActiveSite, P], R_co]], Step[P, R_co]]: ...


def step(function: Callable[..., Any] | None = None, *, sensitivity: DeclaredSensitivity | None = None) -> Any:
    """Install a function as a step: ``@step def label(site: ActiveSite) -> HardLabels: ...``.

    ``@step(sensitivity=Sensitivity(l2=1.0))`` declares what one record may change in its numbers or votes, or a
    function of the order's arguments that returns it. Only such a step is answered through noise on numbers or votes.
    """
    if function is None:
        return lambda function: Step(function, sensitivity)
    return Step(function)


def _declared_release(name: str, function: Callable[..., Any]) -> type[Release]:
    """The kind of release in a step's annotation; its name is enough, since kinds have names of their own."""
    hint = function.__annotations__.get("return")
    if hint is None:
        raise TypeError(f"Step {name} does not say what it releases: annotate its return type with a Release.")
    declared = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    kind = KINDS.get(declared.rpartition(".")[2])
    if kind is None:
        raise TypeError(f"Step {name} declares {declared}, which is not a kind of Release.")
    return kind


def _digest(function: Callable[..., Any]) -> str:
    module = None if function.__module__ == "__main__" else sys.modules.get(function.__module__)
    found = None if module is None else digest_of_sources(function.__module__)
    if found is None:
        try:
            code = inspect.getsource(module or function).encode()
        except (OSError, TypeError):  # typed at a prompt: there is no source to read
            code = function.__code__.co_code
        found = hashlib.sha256(code).hexdigest()
    return found[:16]
