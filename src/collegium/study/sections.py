"""What study files and site files have in common: strict sections, and errors that name the place and the remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from collegium import registry
from collegium.errors import ConfigError, StorageError


class Section(BaseModel):
    """A table of settings: what it does not know is a mistake, and nothing changes it once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Section):
    """A whole file of settings."""

    def check(self) -> None:
        """What no single setting can tell: that they fit each other."""
        raise NotImplementedError


F = TypeVar("F", bound=File)


def read_toml(file: Path, what: str, remedy: str) -> dict[str, Any]:
    """The tables of a TOML file; `what` names its kind in errors, and `remedy` says what to do where there is none."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"There is no {what} {file}: {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None


def validate(model: type[F], table: Mapping[str, Any], where: str, root: str) -> F:
    """Check a file's settings; every problem is named by its path, with the nearest right name."""
    try:
        read = model.model_validate(dict(table))
    except ValidationError as error:
        problems = "; ".join(_problem(problem, model, root) for problem in error.errors())
        raise ConfigError(f"{where}: {problems}") from None
    try:
        read.check()
    except ConfigError as error:
        raise located(error, where) from None
    return read


def located(error: ConfigError, where: str) -> ConfigError:
    """The same error with the file it is in; that an extra is missing is true of every file."""
    return error if hasattr(error, "extra") else ConfigError(f"{where}: {error}")


def _problem(problem: Any, model: type[BaseModel], root: str) -> str:
    path = _path(problem["loc"], root)
    if problem["type"] == "extra_forbidden":
        *parents, key = problem["loc"]
        known = _fields_at(model, parents)
        return f"{path}: unknown setting.{registry.nearest(str(key), known)} Known: {', '.join(known)}."
    if problem["type"] == "missing":
        return f"{path}: this setting is required."
    if problem["type"] == "value_error":  # our own words, which say it all
        return f"{path}: {problem['ctx']['error']}"
    return f"{path}: {problem['msg']}, not {problem['input']!r}."


def _path(location: Sequence[Any], root: str) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(steps).lstrip(".") or root


def _fields_at(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    for step in location:
        field = model.model_fields.get(step) if isinstance(step, str) else None
        inner = None if field is None else _section_in(field.annotation)
        model = inner or model
    return list(model.model_fields)


def _section_in(hint: Any) -> type[BaseModel] | None:
    """The section that a field holds: alone, in a list, or where there may be none."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    return next((found for part in get_args(hint) if (found := _section_in(part))), None)
