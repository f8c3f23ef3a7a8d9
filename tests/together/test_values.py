"""What a value is, whatever type its column has."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.together.tables import sites

import collegium as cg
from collegium.errors import ConfigError
from collegium.together import values
from collegium.together.columns import read_column
from collegium.together.grids import grid_of
from collegium.together.making import like


@pytest.mark.parametrize("value", ["x", "", "ä", '"', 1, -3, 1.5, True, False, 2.0**60, "1.2.3", "1_000"], ids=repr)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    read = values.value_of(values.text_of(value, "a"))
    assert read == pytest.approx(value, rel=1e-14) if isinstance(value, float) else read == value


NONE = ["", "{", "[1]", "{}", "[" * 50, "nonsense", "NaN", "null", "Infinity", "1e999", "1" + "0" * 30, '"\\ud800"']


@pytest.mark.parametrize("text", [*NONE, "1.0", '"1"', '"true"', "0.1000000000000000001", ' "x"'])
def test_what_is_no_value_is_left_out(text: str) -> None:
    """Nor is one that no file could hold, or that is written in another way than sites write it."""
    assert values.value_of(text) is None


@pytest.mark.parametrize(
    "same",
    [
        [1, 1.0, "1", " 1", "1.0", "+1", "01", "1,0", "1e0", np.int64(1), np.float32(1)],
        [True, "True", "true", "TRUE", np.bool_(True)],
        [1.5, "1.5", "1,5", "1.50", "15e-1"],
        [2**53, 2**53 + 1, float(2**53), str(2**53)],
        [0, -0.0, "-0"],
        [10**400, float("inf"), "inf", "Infinity", "INF", "+iNf"],
        [435, 4.35 * 100, 434.99999999999994],
    ],
)
def test_what_reads_as_the_same_number_or_truth_value_is_the_same(same: list[Any]) -> None:
    assert len({values.text_of(value, "a") for value in same}) == 1


def test_numbers_truth_values_and_texts_are_not_each_other() -> None:
    different = [1, True, "x", "1.2.3", 0, False, "", "1_0", "0x1", "\u0661"]
    assert len({values.text_of(value, "a") for value in different}) == len(different)


@pytest.mark.parametrize(
    ("declared", "column", "cells"),
    [
        ([0, 1], [True, False, "True", 2], [1, 0, 1, -1]),
        ([True, False], [1, 0, "1", "true"], [0, 1, 0, 0]),
        ([True, 1, "x"], [1, True, "x"], [1, 0, 2]),  # both are declared: each is itself
    ],
)
def test_truth_values_are_1_and_0_where_only_these_are_declared(declared: Any, column: Any, cells: Any) -> None:
    grid = grid_of(read_column("a", {"categories": declared}))
    assert grid.codes(pd.Series(column, dtype=object))[0].tolist() == cells


def test_categories_are_of_one_type_and_differ() -> None:
    assert read_column("a", ["x", 1, True]).categories == ("x", "1", "True")
    assert read_column("a", [1, 2.5, 3]).categories == (1, 2.5, 3)
    with pytest.raises(ConfigError, match=r"each once.*same number"):
        read_column("a", ["01", "1"])
    for value in (10**25, float("nan"), float("inf"), "\ud800"):
        with pytest.raises(ConfigError, match="at most 15 digits"):
            read_column("a", ["x", value])


def test_made_up_values_are_of_the_sites_own_type() -> None:
    made = pd.DataFrame({"a": [1, 2, None]}, dtype=object)
    for own, expected in [
        (pd.Series(["1", "2", "x"], dtype=object), ["1", "2"]),
        (pd.Series(["1", "2"], dtype="str"), ["1", "2"]),
        (pd.Series([1, 2], dtype="Int64"), [1, 2]),
        (pd.Series([1.0, 2.0]), [1.0, 2.0]),
        (pd.Series([2, 1, None], dtype=object), [1, 2]),
        (pd.Series(["2", "1"], dtype="category"), ["1", "2"]),
    ]:
        found = like(made, own.to_frame("a"))
        assert found["a"].dtype == own.dtype
        assert found["a"].tolist()[:2] == expected
        assert found["a"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("made", "own", "expected"),
    [
        (["x", "1"], [1, 2], ["x", "1"]),  # another site has texts
        (["02", "01"], [1, 2], [2, 1]),
        (["02", None], [1, 2], [2.0, None]),
        (["True", "False"], [True, False], [True, False]),
        ([True, None], [True, False], [True, None]),
        ([1, 0], [True, False], [True, False]),
        ([2, 0], [True, False], [2, 0]),
        ([1.0, np.nan], [1, 2], [1.0, None]),
        ([0.5, 1.0], [1, 2], [0.5, 1.0]),
        ([1e6, -1.0], np.array([1, 2], dtype=np.uint8), [255, 0]),
        (["1,5", "2"], [0.5, 1.5], [1.5, 2.0]),
    ],
)
def test_made_up_values_are_as_the_sites_read_them_and_nothing_is_lost(made: Any, own: Any, expected: Any) -> None:
    found = like(pd.DataFrame({"a": made}), pd.DataFrame({"a": own}))["a"]
    assert [None if pd.isna(value) else value for value in found] == expected


def test_values_that_are_nearly_whole_are_found() -> None:
    doses = [4.35 * 100, 0.57 * 100, 12.5]
    some = [
        cg.Site(s.name, pd.DataFrame({"dose": [doses[n % 3] for n in range(300)], "age": s.X["age"]}), s.y)
        for s in sites(3, 300)
    ]
    made = cg.public_together(some, epsilon=20, rows=60, columns={"dose": "category", "age": (18, 90)})
    assert sorted(set(made.X["dose"])) == pytest.approx([12.5, 57.0, 435.0])


@pytest.mark.parametrize(("spelled", "declared"), [(["01", "02"], ["1", "2"]), (["true", "false"], ["True", "False"])])
def test_values_that_sites_spell_otherwise_come_with_a_warning(spelled: list[str], declared: list[str]) -> None:
    some = [
        cg.Site(s.name, s.X.assign(code=pd.Series([[*spelled, "x"][n % 3] for n in range(300)], dtype=object)), s.y)
        for s in sites(3, 300)
    ]
    columns: dict[str, Any] = {"age": (18, 90), "dose": (0, 50), "sex": ["F", "M"], "ward": ["A", "B", "C"]}
    with pytest.warns(cg.DoubtfulResult, match="values of 'code' read as those of the sites and are spelled otherwise"):
        made = cg.public_together(some, epsilon=20, rows=60, columns=columns)
    assert set(made.X["code"]) == {*declared, "x"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = cg.public_together(some, epsilon=20, rows=60, columns=columns | {"code": [*spelled, "x"]})
    assert set(made.X["code"]) == {*spelled, "x"}


def test_sites_of_which_one_alone_has_no_gaps_make_a_set() -> None:
    some = []
    for number, site in enumerate(sites(3, 200)):
        visits = pd.Series(np.arange(200) % 4, dtype="int64")
        some.append(
            cg.Site(site.name, pd.DataFrame({"visits": visits.where(visits > 0) if number else visits}), site.y)
        )
    columns = {"visits": {"low": 0, "high": 4, "kind": "integer", "missing": True}}
    made = cg.public_together(some, epsilon=20, rows=100, columns=columns)
    assert made.X["visits"].isna().any()
    assert set(made.X["visits"].dropna()) <= {0, 1, 2, 3, 4}


def test_values_of_several_types_are_made_and_written(tmp_path) -> None:
    some = [
        cg.Site(s.name, s.X.assign(code=pd.Series([("x", 1, True)[n % 3] for n in range(len(s.X))], dtype=object)), s.y)
        for s in sites(3, 300)
    ]
    made = cg.public_together(some, epsilon=30, rows=60, columns={"age": (18, 90), "dose": (0, 50)}, out=tmp_path / "r")
    assert set(made.X["code"]) == {"x", "1", "True"}
    assert set(cg.load(tmp_path / "r").made["code"]) == {"x", "1", "True"}


@pytest.mark.parametrize(
    ("made", "own", "expected"),
    [
        ([1.0, np.nan], np.array([[1], [2]]), [1.0, None]),
        (["x", "1"], np.array([[1], [2]]), ["x", "1"]),
        ([1, 2], np.array([[1], [2]], dtype=np.uint8), [1, 2]),
        ([True, False], np.array([[1], [0]]), [True, False]),
        (["1", "2"], np.array([["1"], ["2"]]), ["1", "2"]),
        ([1, None], np.array([["1"], ["x"]], dtype=object), ["1", None]),
    ],
)
def test_made_up_arrays_are_as_the_sites_own_and_nothing_is_lost(made: Any, own: Any, expected: Any) -> None:
    found = like(pd.DataFrame({"a": pd.Series(made)}), own)
    assert [None if pd.isna(value) else value for value in found[:, 0].tolist()] == expected
    assert (found.dtype == own.dtype) == (made not in ([1.0, np.nan], ["x", "1"], [True, False]))
