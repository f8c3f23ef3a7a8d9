"""A learner as plain data: its registered name and its settings. The coordinator may send that; never an object.

The site builds it from what is installed there, so a coordinator can ask for a decision tree of depth 6 and cannot
bring any code along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collegium import registry
from collegium.core.building import build
from collegium.errors import ConfigError

Recipe = dict[str, Any]


def named_learner(learner: Any, where: str) -> Any:
    """The learner that a name, or a table with one, describes, as in a study file; any other is returned as it is."""
    return build("learner", learner, where) if isinstance(learner, str | Mapping) else learner


def describe(learner: Any, where: str) -> Recipe | None:
    """A learner's recipe (None for None: every site's own learner); a ConfigError if it has no registered name."""
    if learner is None:
        return None
    cls: Any = type(learner)
    alike = (each for each in registry.names("learner") if registry.class_name("learner", each) == cls.__name__)
    name = next((each for each in alike if registry.lookup("learner", each) is cls), None)
    if name is None:
        raise ConfigError(
            f"{where}: {cls.__name__} has no registered name, so a site cannot be asked for it. Use one of "
            f"{', '.join(registry.names('learner'))}, or give it to every site as its own learner."
        )
    try:
        defaults = cls().get_params(deep=False)
    except TypeError:  # it has settings without a default
        defaults = {}
    settings = {
        key: _plain(value, f"{where}: {key}")
        for key, value in learner.get_params(deep=False).items()
        if key not in defaults or not _same(value, defaults[key])
    }
    return {"name": name, "settings": settings}


def build_learner(recipe: Mapping[str, Any]) -> Any:
    """The learner that a recipe describes, from what is installed here."""
    try:
        name, settings = str(recipe["name"]), dict(recipe["settings"])
    except (KeyError, TypeError, ValueError):
        raise ConfigError("A learner's recipe must have a name and settings.") from None
    for key, value in settings.items():
        _refuse_path(value, f"The learner {name!r}: {key}")
    cls = registry.lookup("learner", name)
    arguments = {
        key: build_learner(value) if isinstance(value, Mapping) and set(value) == {"name", "settings"} else value
        for key, value in settings.items()
    }
    try:
        return cls(**arguments)
    except TypeError:
        raise ConfigError(f"The learner {name!r} does not take the settings {sorted(settings)}.") from None


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(np.all(value == default)))


def _refuse_path(value: Any, where: str) -> None:
    """A coordinator does not choose which files a site opens."""
    if isinstance(value, str) and (value.startswith(("/", "~")) or "\\" in value or ".." in value.split("/")):
        raise ConfigError(
            f"{where} is a path, which is another one at every site: give the learner to every site as its own."
        )


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        _refuse_path(value, where)
        return value
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(each, where) for each in value]
    if hasattr(value, "get_params"):
        return describe(value, where)
    raise ConfigError(f"{where} is a {type(value).__name__}, not plain data: it cannot be sent to a site.")
