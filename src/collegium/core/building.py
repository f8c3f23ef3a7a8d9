"""Build what a study names: ``{name = "qualified_majority", quorum = 0.9}`` becomes ``QualifiedMajority(0.9)``.

Every error says where in the study it is, and the nearest right name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
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
_METHODS = {"learner": ("fit", "predict"), "transformer": ("fit", "transform")}


def build(kind: str, table: Table | str | Sequence[Any], path: str) -> Any:
    """Build the component of `kind` that a table (or just a name) describes; `path` is where it stands in the study.

    A list of transformers that ends with a learner is a Pipeline.
    """
    if kind == "learner" and isinstance(table, list):
        return _pipeline(table, path)
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


def _pipeline(steps: list[Any], path: str) -> Any:
    """Transformers and, last, a learner. Those with `columns` stand first, and work side by side."""
    from sklearn.pipeline import make_pipeline

    if not steps:
        raise ConfigError(
            f'{path}: the list is empty: name transformers and then a learner, such as ["scaler", "svm"].'
        )
    *before, last = steps
    of_columns: list[tuple[Any, str | list[str]]] = []
    of_all: list[Any] = []
    for number, step in enumerate(before):
        columns, transformer = _transformer(step, f"{path}[{number}]")
        if columns is None:
            of_all.append(transformer)
        elif of_all:
            raise ConfigError(f"{path}[{number}].columns: steps with columns must come first: later ones see no names.")
        else:
            of_columns.append((transformer, columns))
    first = [_side_by_side(of_columns)] if of_columns else []
    return make_pipeline(*first, *of_all, build("learner", last, f"{path}[{len(before)}]"))


def _transformer(step: Any, path: str) -> tuple[str | list[str] | None, Any]:
    table = {"name": step} if isinstance(step, str) else step
    if not isinstance(table, Mapping) or "columns" not in table:
        return None, build("transformer", table, path)
    columns = check(str | list[str], table["columns"], f"{path}.columns")
    return columns, build("transformer", {key: table[key] for key in table if key != "columns"}, path)


def _side_by_side(parts: list[tuple[Any, str | list[str]]]) -> Any:
    """Each transformer at its columns, those of the same columns one after the other; the rest stays as it is."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline

    chains: dict[str, tuple[list[Any], str | list[str]]] = {}
    for transformer, columns in parts:
        chains.setdefault(repr(columns), ([], columns))[0].append(transformer)
    made = [(each[0] if len(each) == 1 else make_pipeline(*each), columns) for each, columns in chains.values()]
    return make_column_transformer(*made, remainder="passthrough", verbose_feature_names_out=False)


def _class(kind: str, name: str) -> Any:
    if ":" not in name:
        return registry.lookup(kind, name)
    own_files.load(kind, name)
    cls = registry.lookup(kind, name)
    methods = _METHODS.get(kind)
    fits = all(hasattr(cls, name) for name in methods) if methods else nested_kind(cls) == kind
    if not isinstance(cls, type) or not fits:
        needed = f"a class with {' and '.join(methods)}" if methods else f"a subclass of cg.{kind.capitalize()}"
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
    if nested is not None and (isinstance(value, str) or (nested == "learner" and isinstance(value, list))):
        return build(nested, value, path)
    if isinstance(value, list) and tuple in getattr(cls, "_parameter_constraints", {}).get(key, ()):
        return tuple(value)  # which TOML does not have
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
