"""Build what a study names: ``{name = "qualified_majority", quorum = 0.9}`` becomes ``QualifiedMajority(0.9)``.

Every error says where in the study it is, and the nearest right name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from collegium import registry
from collegium.core import own_files
from collegium.core.settings import Learner, check, hints_of, options_of
from collegium.errors import ConfigError, MissingExtra

Table = Mapping[str, Any]
# By name, so that a study without such a setting does not import what it would take.
_NESTED = {
    ("collegium.core.algorithm", "Algorithm"): "algorithm",
    ("collegium.consensus.base", "Consensus"): "consensus",
    ("collegium.consensus.base", "Voters"): "voters",
    ("collegium.privacy.mechanisms.base", "Mechanism"): "mechanism",
    ("collegium.core.pretraining", "Pretraining"): "pretraining",
}


def build(kind: str, table: Table | str, path: str) -> Any:
    """Build the component of `kind` that a table (or just a name) describes; `path` is where it stands in the study."""
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise ConfigError(f'{path}: expected a name, such as {{name = "{registry.names(kind)[0]}"}}.')
    try:
        cls = _class(kind, table["name"])
    except MissingExtra as error:
        raise MissingExtra(error.extra, f"{path}.name") from None
    except ConfigError as error:
        raise ConfigError(f"{path}.name: {error}") from None
    settings = {key: value for key, value in table.items() if key != "name"}
    arguments = {key: _argument(cls, key, value, f"{path}.{key}") for key, value in settings.items()}
    try:
        component = cls(**arguments)
        if hasattr(component, "_parameter_constraints"):  # scikit-learn would check only when it fits
            component._validate_params()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (TypeError, ValueError) as error:
        first_line, _, _ = str(error).strip().partition("\n")
        raise ConfigError(f"{path}: {first_line or type(error).__name__}") from None
    return component


def _class(kind: str, name: str) -> Any:
    if ":" not in name:
        return registry.lookup(kind, name)
    own_files.load(kind, name)
    cls = registry.lookup(kind, name)
    fits = hasattr(cls, "fit") and hasattr(cls, "predict") if kind == "learner" else nested_kind(cls) == kind
    if not isinstance(cls, type) or not fits:
        needed = "a class with fit and predict" if kind == "learner" else f"a subclass of cg.{kind.capitalize()}"
        raise ConfigError(f"{name!r} is not a valid {kind}: it must be {needed}.")
    return cls


def settings_of(cls: Any) -> dict[str, Any]:
    """The names of a component's settings and their types (Any where none is declared)."""
    return dict(_settings(cls)[0])


def needed_of(cls: Any) -> list[str]:
    """The settings that have no default."""
    defaults = {name: each.default for name, each in inspect.signature(cls).parameters.items()}
    return [name for name in settings_of(cls) if defaults.get(name) is inspect.Parameter.empty]


@cache
def _settings(cls: Any) -> tuple[tuple[tuple[str, Any], ...], bool]:
    parameters = list(inspect.signature(cls).parameters.values())
    own = hints_of(cls) if hasattr(cls, "__dataclass_fields__") else {}
    hints = hints_of(cls.__init__) | own
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if open_ended and hasattr(cls, "get_params"):  # XGBoost and LightGBM list theirs elsewhere
        names = [*names, *(name for name in cls().get_params() if name not in names)]
    return tuple((name, hints.get(name, Any)) for name in names), open_ended


def _argument(cls: Any, key: str, value: Any, path: str) -> Any:
    known, open_ended = _settings(cls)
    hints = dict(known)
    if key not in hints:
        if open_ended:
            return value
        raise ConfigError(
            f"{path}: {cls.__name__} has no setting {key!r}.{registry.nearest(key, hints)} Known: {', '.join(hints)}."
        )
    nested = nested_kind(hints[key])
    if isinstance(value, Mapping) and "name" in value:
        return build(nested or "learner", value, path)
    if nested is not None and isinstance(value, str):
        return build(nested, value, path)
    return check(hints[key], value, path)


def nested_kind(hint: Any) -> str | None:
    """The registry that a setting's type belongs to, if it is itself a component."""
    if hint == Learner:
        return "learner"
    for option in options_of(hint) or (hint,):
        for parent in getattr(option, "__mro__", ()):
            kind = _NESTED.get((parent.__module__, parent.__name__))
            if kind is not None:
                return kind
    return None
