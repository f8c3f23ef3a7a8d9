"""Declared settings: what their types take, what they give back, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from collegium.core.settings import (
    FiniteFloat,
    Names,
    NonNegativeFloat,
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    PositiveInt,
    Probability,
    Settings,
    Share,
    TwoOrMore,
    check,
    checked,
    hints_of,
    schema_of,
)
from collegium.errors import ConfigError

if TYPE_CHECKING:
    from fractions import Fraction

NO_NUMBERS = ["0.5", None, True, np.bool_(True), float("nan"), 1j, [1]]


@dataclass(frozen=True)
class Brewing(Settings):
    cups: PositiveInt = 1
    strength: Share = 0.5
    milk: bool = False
    kind: Literal["tea", "coffee"] = "tea"
    wait: PositiveFloat | None = None
    sugar: Fraction | None = None  # a name that is there for type checkers only
    notes: Any = None


@dataclass(frozen=True)
class Party(Settings):
    brewing: Brewing
    guests: Names = ()
    shares: Mapping[str, NonNegativeFloat] | Literal["equal"] = "equal"
    place: str | Path | None = None


@pytest.mark.parametrize("value", [10, np.int64(10), np.uint8(10)])
@pytest.mark.parametrize("hint", [PositiveInt, NonNegativeInt, TwoOrMore])
def test_a_whole_number_of_any_kind_becomes_a_plain_one(hint: Any, value: Any) -> None:
    assert type(check(hint, value, "it")) is int


@pytest.mark.parametrize("hint", [FiniteFloat, PositiveFloat, NonNegativeFloat, Share, Probability])
@pytest.mark.parametrize("value", [1, 0.5, np.int64(1), np.float32(0.5), np.float64(0.5)])
def test_a_number_of_any_kind_becomes_a_plain_float(hint: Any, value: Any) -> None:
    found = check(hint, value, "it")
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize(
    ("hint", "refused", "words"),
    [
        (PositiveInt, [0, -1, 1.0, float("inf")], "an integer of at least 1"),
        (NonNegativeInt, [-1, 0.0], "an integer of at least 0"),
        (TwoOrMore, [1], "an integer of at least 2"),
        (FiniteFloat, [float("inf"), -float("inf"), 10**400], "a finite number"),
        (PositiveFloat, [0, -1, float("inf"), 10**400], "a finite number above 0"),
        (NonNegativeFloat, [-0.1, float("inf")], "a finite number of at least 0"),
        (Share, [0, 1.1, float("inf")], "a number above 0 and at most 1"),
        (Probability, [-0.1, 1.1], "a number of at least 0 and at most 1"),
        (OpenProbability, [0, 1], "a number above 0 and below 1"),
        (PositiveInt | None, [0], "an integer of at least 1 or None"),
        (PositiveInt | Literal["sites"], [0, "parties"], "an integer of at least 1 or 'sites'"),
        (Literal["a", "b", "c"], ["d", "A", ["a"]], "'a', 'b' or 'c'"),
        (bool, ["no", 1, 0], "True or False"),
        (Names, ["fedct.*", [1]], "a list (each item a string)"),
        (Mapping[str, NonNegativeFloat], [{"a": -1}, [1]], "a mapping (each value a finite number of at least 0)"),
        (Brewing, [Brewing, {"cups": 1}], "an instance of Brewing"),
    ],
)
def test_what_does_not_fit_is_refused_in_plain_words(hint: Any, refused: list[Any], words: str) -> None:
    for value in [*refused, *(each for each in NO_NUMBERS if "number" in words and "list" not in words)]:
        if value is None and "None" in words:
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        with pytest.raises(ConfigError, match=re.escape(f"FedCT: it must be {words}, got {plain!r}.") + "$"):
            check(hint, value, "FedCT: it")


def test_the_nearest_choice_is_told() -> None:
    with pytest.raises(ConfigError, match=r"kind must be 'tea' or 'coffee', got 'cofee'\. Did you mean 'coffee'\?"):
        Brewing(kind="cofee")  # type: ignore[arg-type]


def test_settings_hold_plain_values_of_their_types() -> None:
    made = Brewing(np.int64(2), 1, np.bool_(True), wait=np.float32(0.5))  # type: ignore[arg-type]
    assert made == Brewing(2, 1.0, True, wait=0.5)
    assert [type(each) for each in (made.cups, made.strength, made.milk, made.wait)] == [int, float, bool, float]
    assert Party(made, ["a"]).guests == ("a",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cups": 0}, "Brewing: cups must be an integer of at least 1, got 0."),
        ({"cups": None}, "Brewing: cups must be an integer of at least 1, got None."),
        ({"milk": "no"}, "Brewing: milk must be True or False, got 'no'."),
        ({"wait": 0}, "Brewing: wait must be a finite number above 0 or None, got 0."),
        ({"kind": "water"}, "Brewing: kind must be 'tea' or 'coffee', got 'water'."),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_class_and_setting(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words) + "$"):
        Brewing(**settings)


def test_the_name_in_an_error_is_that_of_the_class_that_was_made() -> None:
    @dataclass(frozen=True)
    class Espresso(Brewing):
        kind: Literal["coffee"] = "coffee"  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="Espresso: cups"):
        Espresso(cups=0)
    with pytest.raises(ConfigError, match="Espresso: kind must be 'coffee', got 'tea'"):
        Espresso(kind="tea")  # type: ignore[arg-type]


def test_a_type_that_is_there_for_type_checkers_only_is_not_checked_and_spoils_no_other() -> None:
    assert Brewing(sugar="a spoon").sugar == "a spoon"  # type: ignore[arg-type]
    assert hints_of(Brewing)["sugar"] is Any


def test_instances_are_kept_as_they_are() -> None:
    made = Brewing()
    assert Party(made).brewing is made
    with pytest.raises(ConfigError, match="Party: brewing must be an instance of Brewing, got <class"):
        Party(Brewing)  # type: ignore[arg-type]


class Kettle:
    @checked
    def __init__(self, litres: PositiveFloat, *, cups: PositiveInt = 4) -> None:
        self.litres, self.cups = litres, cups

    @checked
    def pour(self, cups: PositiveInt = 1) -> int:
        """Some cups."""
        return cups


@checked
def boil(minutes: PositiveFloat, *guests: Any, **options: Any) -> tuple[float, tuple[Any, ...], dict[str, Any]]:
    return minutes, guests, options


def test_functions_are_called_with_what_their_types_say() -> None:
    kettle = Kettle(np.float32(1.5), cups=np.int64(2))  # type: ignore[arg-type]
    assert type(kettle.litres) is float
    assert type(kettle.cups) is int
    assert kettle.pour() == 1
    assert boil(1, 2, lid=3) == (1.0, (2,), {"lid": 3})
    assert Kettle.pour.__doc__ == "Some cups."
    for call, words in (
        (lambda: Kettle(0), "Kettle: litres must be a finite number above 0, got 0."),
        (lambda: Kettle(1, cups=0), "Kettle: cups must be"),
        (lambda: kettle.pour(0), "Kettle.pour: cups must be"),
        (lambda: boil("1"), "boil: minutes must be"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            call()


def test_the_schema_of_a_setting_shows_its_range() -> None:
    assert schema_of(PositiveInt) == {"type": "integer", "minimum": 1}
    assert schema_of(Share) == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert schema_of(Literal["a", "b"]) == {"type": "string", "enum": ["a", "b"]}
    assert schema_of(PositiveFloat | None) == {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}
    assert schema_of(Any) == schema_of(Brewing) == {}
