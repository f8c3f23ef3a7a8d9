"""Every registered class of ours: each bound that a setting declares is enforced by class, study and JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import jsonschema
import numpy as np
import pytest

from collegium import registry
from collegium.core.building import build, needed_of, nested_kind, settings_of
from collegium.core.settings import options_of, schema_of
from collegium.errors import ConfigError, MissingExtra
from collegium.study.schema import json_schema

KINDS = ("algorithm", "consensus", "voters", "mechanism", "partition", "pretraining", "learner")
OURS = [(kind, name) for kind in KINDS for name, home in registry.BUILT_IN[kind].items() if "collegium." in home]
ANY_NUMBER = {("ByColumn", "column")}  # a name, or the number of a column
X, Y = np.eye(4), np.array([0, 1, 0, 1])


def found(kind: str, name: str) -> Any:
    try:
        return registry.lookup(kind, name)
    except MissingExtra as missing:
        pytest.skip(str(missing))


def bounds_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())


def outside(hint: Any) -> Iterator[Any]:
    """Values that a type, or one option of a union, does not take, as near to its bounds as can be."""
    base, bounds = bounds_of(hint)
    if get_origin(base) is Literal:
        yield "no such choice"
    if base is bool:
        yield from ("no", 1)
    if base not in (int, float):
        return
    yield from (True, "1", *([1.5] if base is int else []))
    for each in bounds:
        if hasattr(each, "gt"):
            yield each.gt
        if hasattr(each, "ge"):
            yield each.ge - 1 if base is int else math.nextafter(each.ge, -math.inf)
        if hasattr(each, "lt"):
            yield each.lt
        if hasattr(each, "le"):
            yield each.le + 1 if base is int else math.nextafter(each.le, math.inf)
    if base is float and bounds:
        yield from (math.nan, math.inf, -math.inf)


def refused_by(hint: Any) -> list[Any]:
    options = options_of(hint) or (hint,)
    if any(bounds_of(option)[0] is Any for option in options):
        return []
    values = [None] if type(None) not in options else []
    values += [value for option in options for value in outside(option)]
    return [value for value in values if not (str in options and isinstance(value, str))]


def within(hint: Any) -> Any:
    """Some value that a type takes."""
    base, _ = bounds_of(next(iter(options_of(hint)), hint))
    return {int: 2, float: 0.5, str: "a"}.get(base, 1.0)


@cache
def validator(kind: str) -> Any:
    definitions = json_schema()["$defs"]
    place = "PartitionSection" if kind == "partition" else kind
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{place}", "$defs": definitions})


def make(kind: str, cls: Any, settings: dict[str, Any]) -> Any:
    made = cls(**settings)
    return made.fit(X, Y) if kind == "learner" else made  # as scikit-learn's learners do, they check when they fit


@pytest.mark.parametrize(("kind", "name"), OURS)
def test_every_bound_is_enforced_by_class_study_and_schema(kind: str, name: str) -> None:
    cls = found(kind, name)
    needed = {each: within(settings_of(cls)[each]) for each in needed_of(cls)}
    validator(kind).validate({"name": name, **needed})
    for setting, hint in settings_of(cls).items():
        for value in refused_by(hint):
            settings = needed | {setting: value}
            with pytest.raises(ConfigError, match=f"^{cls.__name__}: {setting} must be "):
                make(kind, cls, settings)
            with pytest.raises(ConfigError, match=rf"^here\.{setting} must be "):
                build(kind, {"name": name, **settings}, "here")
            in_schema = schema_of(hint) or nested_kind(hint)
            if in_schema and value == value and value not in (math.inf, -math.inf):  # JSON knows neither
                assert not validator(kind).is_valid({"name": name, **settings}), (setting, value)


@pytest.mark.parametrize(("kind", "name"), OURS)
def test_every_number_says_what_it_may_be(kind: str, name: str) -> None:
    cls = found(kind, name)
    for setting, hint in settings_of(cls).items():
        bare = [option for option in options_of(hint) or (hint,) if option in (int, float)]
        assert not bare or Any in options_of(hint) or (cls.__name__, setting) in ANY_NUMBER, setting


def test_some_bounds_are_known() -> None:
    """That the tests above look at something."""
    algorithm = settings_of(registry.lookup("algorithm", "fedct"))
    assert refused_by(algorithm["rounds"])[:5] == [None, True, "1", 1.5, 0]
    assert refused_by(algorithm["epochs"]) == [True, "1", 1.5, 0]
    assert "no such choice" in refused_by(algorithm["votes"])
    assert 1.0000000000000002 in refused_by(algorithm["participation"])
