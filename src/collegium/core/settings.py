"""Settings that say in their types what they take: ``rounds: PositiveInt = 20``.

The types below are checked when a `Settings` object is created, when a function decorated with `checked` is called and
when a study is read; the JSON Schema of studies is made from them too. So a range is written down once.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan, ConfigDict, Strict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import core_schema

from collegium.errors import ConfigError
from collegium.registry import nearest

PositiveInt = Annotated[int, Ge(1)]
"""An integer of at least 1."""
NonNegativeInt = Annotated[int, Ge(0)]
"""An integer of at least 0, such as a seed."""
TwoOrMore = Annotated[int, Ge(2)]
"""An integer of at least 2, such as a number of classes."""
FiniteFloat = Annotated[float, AllowInfNan(False)]
"""Any number that is not NaN or infinite."""
PositiveFloat = Annotated[float, Gt(0), AllowInfNan(False)]
"""A finite number above 0."""
NonNegativeFloat = Annotated[float, Ge(0), AllowInfNan(False)]
"""A finite number of at least 0."""
Share = Annotated[float, Gt(0), Le(1)]
"""Above 0 and at most 1: some of the sites, or all."""
Probability = Annotated[float, Ge(0), Le(1)]
"""0 to 1."""
OpenProbability = Annotated[float, Gt(0), Lt(1)]
"""Above 0 and below 1, such as delta."""
Names = Annotated[tuple[str, ...], Strict(False)]
"""Strings, kept as a tuple; a list is accepted."""
Learner = Annotated[Any, "learner"]
"""A learner, or None; a study may name it."""

_STRICT: Final = ConfigDict(arbitrary_types_allowed=True, strict=True)
_BOUNDS: Final = {"gt": "above", "ge": "of at least", "lt": "below", "le": "at most"}
_WORDS: Final = {int: "an integer", bool: "True or False", str: "a string", type(None): "None"}
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Settings:
    """A frozen dataclass that checks its fields against their types.

    A subclass that checks how settings relate to each other calls this ``__post_init__`` first.
    """

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name in (field.name for field in fields(self)):
            kept = check(hints_of(cls)[name], getattr(self, name), f"{cls.__name__}: {name}")
            object.__setattr__(self, name, kept)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function, or an ``__init__``, so that its arguments are checked against their types."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound, hints = signature.bind(*args, **kwargs), hints_of(function)
        where = _place(function.__name__, bound.arguments.get("self"))
        for name in bound.arguments.keys() & hints.keys():
            bound.arguments[name] = check(hints[name], bound.arguments[name], f"{where}: {name}")
        return function(*bound.args, **bound.kwargs)

    return call


def check_parameters(estimator: Any) -> None:
    """Check an estimator's parameters against the types of its ``__init__`` (ConfigError); none is changed."""
    cls = type(estimator)
    hints = hints_of(cls) if is_dataclass(cls) else hints_of(cls.__init__)  # a class has its parents' types too
    for name, value in estimator.get_params(deep=False).items():
        check(hints.get(name, Any), value, f"{type(estimator).__name__}: {name}")


def check(hint: Any, value: Any, what: str) -> Any:
    """The value, with NumPy's numbers as plain ones; a ConfigError that begins with `what` if it does not fit."""
    adapter = _adapter(hint)
    if adapter is None:
        return value
    plain = value.item() if isinstance(value, np.generic) else value
    try:
        return adapter.validate_python(plain)
    except ValidationError as error:
        words = in_words(hint)
        problem = f" must be {words}" if words else f": {error.errors()[0]['msg']}"
        raise ConfigError(f"{what}{problem}, got {plain!r}.{_nearest_choice(hint, plain)}") from None


@cache
def hints_of(owner: Any) -> dict[str, Any]:
    """The types of a function's parameters, or of a class's fields; Any for a name that is there for type checkers."""
    sources = reversed(owner.__mro__) if isinstance(owner, type) else [inspect.unwrap(owner)]
    found = {}
    for source in sources:
        for name, annotation in inspect.get_annotations(source).items():
            alone = type("alone", (), {"__annotations__": {name: annotation}, "__module__": source.__module__})
            try:
                found[name] = get_type_hints(alone, include_extras=True)[name]
                hash(found[name])
            except (NameError, TypeError, AttributeError):
                found[name] = Any
    return found


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a setting; empty where its type has none."""
    adapter = _adapter(hint)
    try:
        schema = {} if adapter is None else adapter.json_schema()
    except PydanticUserError:
        return {}
    return {} if "$defs" in schema else schema


def in_words(hint: Any) -> str | None:
    """What a type takes, in plain words; None where there are none."""
    if options := options_of(hint):
        words = [in_words(option) for option in options]
        return None if None in words else _listed([each for each in words if each])
    base, bounds = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    if get_origin(base) is Literal:
        return _listed([repr(choice) for choice in get_args(base)])
    if base in (int, float):
        return _number_in_words(base, bounds)
    if base in _WORDS:
        return _WORDS[base]
    if get_origin(base) in (tuple, list, Sequence):
        return f"a list (each item {in_words(get_args(base)[0])})"
    if get_origin(base) is Mapping:
        return f"a mapping (each value {in_words(get_args(base)[1])})"
    if get_origin(base) is Callable:
        return "a function"
    return f"an instance of {base.__name__}" if isinstance(base, type) else None


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; nothing of any other type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()


@cache
def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    """What checks values of a type; None for Any, and for what pydantic cannot express."""
    if hint is Any or Any in options_of(hint):
        return None
    try:
        return TypeAdapter(_of_instances(hint), config=_STRICT)
    except Exception:  # of other packages, too
        return None


def _of_instances(hint: Any) -> Any:
    """The same type, in which a dataclass stands for its instances, and a sequence for any list."""
    if options := options_of(hint):
        return Union[tuple(_of_instances(option) for option in options)]  # noqa: UP007 - made at run time
    if get_origin(hint) is Sequence:
        return Annotated[tuple[get_args(hint)[0], ...], Strict(False)]  # type: ignore[misc]
    return Annotated[Any, _InstanceOf(hint)] if isinstance(hint, type) and is_dataclass(hint) else hint


@dataclass(frozen=True)
class _InstanceOf:
    cls: type

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(self.cls)


def _number_in_words(base: type, bounds: tuple[Any, ...]) -> str:
    found = [(word, getattr(each, kind, None)) for each in bounds for kind, word in _BOUNDS.items()]
    limits = [f"{word} {limit}" for word, limit in found if limit is not None]
    finite = any(isinstance(each, AllowInfNan) for each in bounds)
    number = "an integer" if base is int else "a finite number" if finite else "a number"
    return " ".join([number, " and ".join(limits)]) if limits else number


def _nearest_choice(hint: Any, value: Any) -> str:
    choices = [
        each for option in options_of(hint) or (hint,) if get_origin(option) is Literal for each in get_args(option)
    ]
    return nearest(value, choices) if isinstance(value, str) else ""


def _listed(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _place(function: str, owner: Any) -> str:
    """Where a wrong argument was given: to a class, to a method of it, or to a function."""
    if owner is None:
        return function
    return type(owner).__name__ if function.startswith("_") else f"{type(owner).__name__}.{function}"
