"""Which installed steps an algorithm can ask for: what it is made of decides that, not what somebody says of it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from collegium.core.steps import INSTALLED, Step


def steps_of(algorithm: Any) -> dict[str, Step[Any, Any]]:
    """The steps beside its own code and that of its rules, and beside whatever these import by name."""
    own = {cls.__module__ for part in _parts(algorithm) for cls in type(part).__mro__}
    used = {_home(value) for name in own if name in sys.modules for value in vars(sys.modules[name]).values()}
    return {name: step for name, step in INSTALLED.items() if step.function.__module__ in own | used}


def _parts(component: Any) -> Iterator[Any]:
    """An algorithm, and the rules and mechanisms among its settings."""
    yield component
    if dataclasses.is_dataclass(component):
        for field in dataclasses.fields(component):
            yield from _parts(getattr(component, field.name))


def _home(value: Any) -> str | None:
    """The module that something in a module's namespace comes from."""
    if isinstance(value, Step):
        return str(value.function.__module__)
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else None
