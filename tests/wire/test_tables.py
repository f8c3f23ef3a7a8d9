from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pandas.testing import assert_frame_equal
from scipy import sparse

from collegium.errors import ConfigError, WireError
from collegium.wire import tables


def every_kind_of_column() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "float": [1.5, np.nan, -0.0],
            "float32": np.array([0.1, np.inf, -np.inf], dtype=np.float32),
            "int": [1, -2, 2**62],
            "uint8": np.array([0, 7, 255], dtype=np.uint8),
            "bool": [True, False, True],
            "text": ["a", "", "ünïcödé\n"],
            "text with gaps": pd.Series(["a", None, "ccc"]),
            "string": pd.array(["a", pd.NA, "c"], dtype="string"),
            "object": pd.Series(["a", None, np.nan], dtype=object),
            "mixed": pd.Series([1, 2.5, pd.NA], dtype=object),
            "flags": pd.Series([True, "True", 10**30], dtype=object),
            "category": pd.Categorical(["lo", None, "hi"], categories=["lo", "hi", "unused"], ordered=True),
            "codes": pd.Categorical([3, 1, 3], categories=[3, 1]),
            "Int64": pd.array([1, pd.NA, 2**62 + 1], dtype="Int64"),
            "UInt8": pd.array([1, pd.NA, 255], dtype="UInt8"),
            "Float64": pd.array([0.1, pd.NA, 3], dtype="Float64"),
            "boolean": pd.array([True, pd.NA, False], dtype="boolean"),
            "time": pd.to_datetime(["2020-01-01T00:00:00.5", None, "1999-12-31T23:59:59.123456"], format="ISO8601"),
            "span": pd.to_timedelta([1, None, 3], unit="s"),
            7: [1, 2, 3],
        }
    )


def through_json(table: tables.Table) -> tables.Table:
    header, arrays = tables.to_arrays(table)
    assert not any(array.dtype.hasobject for array in arrays.values())
    return tables.from_arrays(json.loads(json.dumps(header)), arrays)


class TestShape:
    def test_array(self) -> None:
        images = np.zeros((5, 3, 4))
        assert tables.n_rows(images) == 5
        assert tables.n_columns(images) == 3
        assert tables.row_shape(images) == (3, 4)

    def test_sparse_and_frame(self) -> None:
        for table in (sparse.csr_array(np.eye(3, 4)), pd.DataFrame(np.eye(3, 4))):
            assert tables.n_rows(table) == 3
            assert tables.n_columns(table) == 4
            assert tables.row_shape(table) == (4,)


class TestAsTable:
    def test_array_is_kept(self) -> None:
        array = np.zeros((2, 3), dtype=np.float32)
        assert tables.as_table(array, "X") is array

    def test_list_becomes_array(self) -> None:
        assert np.array_equal(tables.as_table([[1, 2], [3, 4]], "X"), np.array([[1, 2], [3, 4]]))

    def test_numbers_in_a_mixed_list_stay_numbers(self) -> None:
        table = tables.as_table([["a", 1], ["b", 2.5]], "X")
        assert table.dtype == object
        assert table[1, 1] == 2.5

    def test_list_of_text_is_text(self) -> None:
        assert tables.as_table([["a", "b"]], "X").dtype.kind == "U"

    def test_object_array_is_kept(self) -> None:
        assert tables.as_table(np.array([["a", None]], dtype=object), "X").dtype == object

    @pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
    def test_matrix_becomes_plain_array(self) -> None:
        assert type(tables.as_table(np.matrix([[1, 2]]), "X")) is np.ndarray

    @pytest.mark.parametrize("form", ["coo", "csc", "csr", "lil", "dok"])
    @pytest.mark.parametrize("family", ["array", "matrix"])
    def test_sparse_becomes_csr_of_its_family(self, form: str, family: str) -> None:
        given_table = getattr(sparse, f"{form}_{family}")(np.eye(3))
        table = tables.as_table(given_table, "X")
        assert type(table) is getattr(sparse, f"csr_{family}")
        assert np.array_equal(table.toarray(), np.eye(3))

    def test_duplicates_are_summed_without_touching_the_original(self) -> None:
        original = sparse.csr_array((np.ones(2), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
        assert tables.as_table(original, "X").nnz == 1
        assert original.nnz == 2

    def test_index_of_frame_is_dropped(self) -> None:
        assert list(tables.as_table(pd.DataFrame({"a": [1, 2]}, index=[5, 9]), "X").index) == [0, 1]

    @pytest.mark.parametrize("flat", [np.arange(3), [1, 2, 3], np.array(3.0), sparse.coo_array([1, 2])])
    def test_flat_data_is_told_to_reshape(self, flat: object) -> None:
        with pytest.raises(ConfigError, match=r"^Site 'a': X: .*reshape"):
            tables.as_table(flat, "Site 'a': X")

    @pytest.mark.parametrize(
        ("wrong", "remedy"),
        [
            (pd.Series([1, 2]), "to_frame"),
            ([[1, 2], [3]], "differ in length"),
            (np.ma.masked_array([[1, 2]], mask=[[True, False]]), "filled"),
            ({"a": [1]}, "dict is not a table"),
            (None, "NoneType is not a table"),
        ],
    )
    def test_other_types_are_refused(self, wrong: object, remedy: str) -> None:
        with pytest.raises(ConfigError, match=remedy):
            tables.as_table(wrong, "X")

    def test_texts_become_a_table_of_one_column(self) -> None:
        for texts in (["a", "b"], np.array(["a", "b"]), pd.Series(["a", "b"], index=[5, 9], name="note")):
            table = tables.as_table(texts, "X")
            assert isinstance(table, pd.DataFrame)
            assert table.to_dict("list") == {"text": ["a", "b"]}
        blank = tables.as_table(pd.Series(["a", None, np.nan]), "X")
        assert isinstance(blank, pd.DataFrame)
        assert blank["text"].isna().tolist() == [False, True, True]
        with pytest.raises(ConfigError, match="to_frame"):
            tables.as_table(pd.Series(["a", 1]), "X")


class TestTake:
    def test_rows_in_the_order_asked_for(self) -> None:
        dense = np.arange(6).reshape(3, 2)
        assert tables.take(dense, [2, 0]).tolist() == [[4, 5], [0, 1]]
        assert tables.take(sparse.csr_matrix(dense), [2, 0]).toarray().tolist() == [[4, 5], [0, 1]]

    def test_frame_gets_a_new_index_and_keeps_dtypes(self) -> None:
        frame = every_kind_of_column()
        taken = tables.take(frame, [2, 0])
        assert list(taken.index) == [0, 1]
        assert taken["text"].tolist() == [frame["text"][2], frame["text"][0]]
        assert (taken.dtypes == frame.dtypes).all()

    def test_mask(self) -> None:
        for table in (np.arange(3)[:, None], pd.DataFrame({"a": range(3)}), sparse.csr_array(np.eye(3))):
            assert tables.n_rows(tables.take(table, [True, False, True])) == 2

    def test_nothing(self) -> None:
        for table in (np.eye(3), pd.DataFrame(np.eye(3)), sparse.csr_array(np.eye(3))):
            assert tables.take(table, []).shape == (0, 3)

    def test_mask_of_other_length(self) -> None:
        with pytest.raises(ConfigError, match="does not fit a table of 3 rows"):
            tables.take(np.eye(3), [True, False])

    def test_numbers_that_are_not_whole(self) -> None:
        with pytest.raises(ConfigError, match="row numbers"):
            tables.take(np.eye(3), [0.5])


class TestStack:
    def test_undoes_take(self) -> None:
        frame = every_kind_of_column()
        for table in (np.arange(12).reshape(3, 2, 2), sparse.csr_array(np.eye(3)), frame):
            parts = [tables.take(table, [0]), tables.take(table, []), tables.take(table, [1, 2])]
            assert tables.digest(tables.stack(parts)) == tables.digest(table)

    def test_equal_categories_stay_categorical(self) -> None:
        parts = [pd.DataFrame({"a": pd.Categorical([v], categories=["x", "y"])}) for v in "xy"]
        assert tables.stack(parts)["a"].cat.categories.tolist() == ["x", "y"]

    def test_different_categories_become_plain(self) -> None:
        parts = [pd.DataFrame({"a": pd.Categorical([v])}) for v in "xy"]
        stacked = tables.stack(parts)["a"]
        assert not isinstance(stacked.dtype, pd.CategoricalDtype)
        assert stacked.tolist() == ["x", "y"]

    def test_sparse_stays_csr(self) -> None:
        assert tables.stack([sparse.csr_matrix(np.eye(2))] * 2).format == "csr"

    @pytest.mark.parametrize(
        ("parts", "what"),
        [
            ([], "no tables"),
            ([np.eye(2), pd.DataFrame(np.eye(2))], "DataFrame, ndarray"),
            ([np.eye(2), np.eye(3)], "different shapes"),
            ([sparse.csr_array(np.eye(2)), sparse.csr_array(np.eye(3))], "different shapes"),
            ([pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})], "different columns"),
            ([np.array([["a"]]), np.array([[1.0]])], "one dtype"),
            ([np.array([["2020"]], dtype="M8[D]"), np.array([[1.0]])], "one dtype"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, parts: list[tables.Table], what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            tables.stack(parts)

    def test_text_and_numbers_as_objects(self) -> None:
        stacked = tables.stack([np.array([["a"]], dtype=object), np.array([[1.0]])])
        assert stacked.tolist() == [["a"], [1.0]]


class TestArrays:
    def test_frame_comes_back_exactly(self) -> None:
        frame = every_kind_of_column()
        back = through_json(frame)
        assert_frame_equal(back, frame)
        assert list(back.columns) == list(frame.columns)
        assert np.signbit(back["float"][2])

    def test_kinds_of_missing_in_objects_come_back(self) -> None:
        cells = through_json(pd.DataFrame({"a": pd.Series([None, np.nan, pd.NA, "None"], dtype=object)}))["a"]
        assert cells[0] is None
        assert isinstance(cells[1], float)
        assert cells[2] is pd.NA
        assert cells[3] == "None"

    def test_object_cells_keep_their_python_types(self) -> None:
        cells = [True, 1, 1.0, "1", np.int64(1), np.float32(0.5), np.bool_(False)]
        back = through_json(np.array([cells], dtype=object))[0]
        assert back.tolist() == cells
        assert [type(cell) for cell in back] == [bool, int, float, str, int, float, bool]

    def test_nan_and_missing_of_a_nullable_float_stay_apart(self) -> None:
        column = pd.arrays.FloatingArray(np.array([np.nan, 0.0]), np.array([False, True]))
        back = through_json(pd.DataFrame({"a": column}))["a"].array
        assert back.isna().tolist() == column.isna().tolist()
        assert np.isnan(back.to_numpy(dtype=float, na_value=-1.0)).tolist() == [True, False]

    @pytest.mark.parametrize(
        "categories", [["b", "a"], [2, 1], [0.5, -0.5], [True, False], pd.to_datetime(["2020-01-01", "2019-01-01"])]
    )
    def test_categories_of_any_plain_type(self, categories: list[object]) -> None:
        frame = pd.DataFrame({"a": pd.Categorical([categories[1], None], categories=categories)})
        back = through_json(frame)
        assert_frame_equal(back, frame)
        assert back["a"].cat.categories.dtype == frame["a"].cat.categories.dtype

    def test_frames_without_rows_or_columns(self) -> None:
        no_rows = every_kind_of_column().iloc[:0]
        assert_frame_equal(through_json(no_rows), no_rows)
        assert through_json(pd.DataFrame(index=range(3))).shape == (3, 0)

    def test_columns_of_the_same_name(self) -> None:
        frame = pd.DataFrame([[1, "x"]], columns=["a", "a"])
        assert_frame_equal(through_json(frame), frame)

    @pytest.mark.parametrize("family", [sparse.csr_array, sparse.csr_matrix])
    def test_sparse_comes_back(self, family: type) -> None:
        table = family(np.array([[0, 1.5], [np.nan, 0]], dtype=np.float32))
        back = through_json(table)
        assert type(back) is family
        assert back.dtype == np.float32
        assert np.array_equal(back.toarray(), table.toarray(), equal_nan=True)

    @settings(deadline=None)
    @given(
        hnp.arrays(
            dtype=st.one_of(
                hnp.boolean_dtypes(),
                hnp.integer_dtypes(endianness="?"),
                hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
                hnp.datetime64_dtypes(),
                hnp.unicode_string_dtypes(),
            ),
            shape=hnp.array_shapes(min_dims=2, max_dims=4, min_side=0),
        )
    )
    def test_any_array_comes_back(self, array: np.ndarray) -> None:
        back = through_json(array)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.one_of(
                    st.none(), st.integers(), st.floats(), st.booleans(), st.text().map(lambda t: t.rstrip("\0"))
                ),
                st.one_of(st.none(), st.text(max_size=5).map(lambda t: t.rstrip("\0"))),
                st.sampled_from(["red", "green", None]),
            ),
            max_size=8,
        )
    )
    def test_any_mixed_frame_comes_back(self, rows: list[tuple[object, object, object]]) -> None:
        objects = pd.Series([row[0] for row in rows], dtype=object)
        texts = pd.Series([row[1] for row in rows], dtype="string")
        colours = pd.Categorical([row[2] for row in rows], categories=["green", "red"])
        frame = pd.DataFrame({"objects": objects, "texts": texts, "colours": colours})
        back = through_json(frame)
        assert_frame_equal(back, frame)
        assert [type(cell) for cell in back["objects"]] == [type(cell) for cell in frame["objects"]]

    @pytest.mark.parametrize(
        "values",
        [
            [{"a": 1}, None],
            [datetime.date(2020, 1, 1)] * 2,
            [b"a", b"b"],
            [np.timedelta64(1, "s").astype("m8[ns]"), "a"],
            pd.to_datetime(["2020-01-01"] * 2).tz_localize("UTC"),
            pd.period_range("2020", periods=2),
            pd.cut([1, 2], 2),
            pd.arrays.SparseArray([0, 1]),
            np.array([1, 2], dtype=np.complex128),
            np.array([1, 2], dtype=np.longdouble),
        ],
    )
    def test_a_column_that_cannot_be_expressed_is_named(self, values: object) -> None:
        with pytest.raises(ConfigError, match=r"^column 'odd one': .*convert"):
            tables.to_arrays(pd.DataFrame({"fine": [1, 2], "odd one": values}))

    def test_text_that_ends_in_nul_is_named(self) -> None:
        for dtype in (object, "string"):
            with pytest.raises(ConfigError, match=r"^column 'a': .*NUL.*strip"):
                tables.to_arrays(pd.DataFrame({"a": pd.Series(["x\0", "y"], dtype=dtype)}))

    @pytest.mark.parametrize("name", [1.5, ("a", "b"), True, None])
    def test_column_names_are_text_or_integers(self, name: object) -> None:
        frame = pd.DataFrame([[1]])
        frame.columns = pd.Index([name], dtype=object, tupleize_cols=False)
        with pytest.raises(ConfigError, match=r"name must be text or an integer.*rename"):
            tables.to_arrays(frame)

    def test_structured_array_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"the array: .*convert"):
            tables.to_arrays(np.zeros((1, 1), dtype=[("a", "f8")]))


class TestFromArraysRefuses:
    def test_sparse_indices_out_of_range(self) -> None:
        header, arrays = tables.to_arrays(sparse.csr_array(np.eye(3)))
        with pytest.raises(WireError, match="Not a valid table"):
            tables.from_arrays(header, arrays | {"indices": arrays["indices"] + 100})

    def test_columns_of_other_length(self) -> None:
        header, arrays = tables.to_arrays(pd.DataFrame({"a": [1, 2]}))
        with pytest.raises(WireError):
            tables.from_arrays(header, {"0.values": np.zeros(5)})
        with pytest.raises(WireError):
            tables.from_arrays(header | {"rows": 1}, arrays)

    def test_missing_parts(self) -> None:
        header, _ = tables.to_arrays(every_kind_of_column())
        with pytest.raises(WireError):
            tables.from_arrays(header, {})
        with pytest.raises(WireError):
            tables.from_arrays({}, {})

    def test_objects(self) -> None:
        with pytest.raises(WireError):
            tables.from_arrays({"table": "array"}, {"values": np.array([[None]])})

    def test_flat_array(self) -> None:
        with pytest.raises(WireError):
            tables.from_arrays({"table": "array"}, {"values": np.zeros(3)})

    def test_the_message_does_not_quote_values(self) -> None:
        header, arrays = tables.to_arrays(np.array([[12345]], dtype=object))
        with pytest.raises(WireError) as caught:
            tables.from_arrays(header, arrays | {"text": np.array(["secret"])})
        assert "secret" not in str(caught.value)


class TestDigest:
    def test_is_the_same_after_a_round_trip_and_stable(self) -> None:
        for table in (np.eye(3), sparse.csr_matrix(np.eye(3)), every_kind_of_column()):
            assert tables.digest(through_json(table)) == tables.digest(table)
            assert len(bytes.fromhex(tables.digest(table))) == 32

    def test_does_not_depend_on_memory_or_byte_order(self) -> None:
        array = np.arange(6.0).reshape(2, 3)
        expected = tables.digest(array)
        assert tables.digest(np.asfortranarray(array)) == expected
        assert tables.digest(array.astype(">f8")) == expected
        assert tables.digest(np.repeat(array, 2, axis=1)[:, ::2]) == expected
        assert tables.digest(pd.DataFrame(array)) == tables.digest(pd.DataFrame(array.astype(">f8")))

    def test_does_not_depend_on_how_many_rows_are_hashed_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        several = [np.arange(42.0).reshape(14, 3), every_kind_of_column(), np.zeros((5, 0)), np.zeros((0, 5))]
        several[0][3, 1] = np.nan
        expected = [tables.digest(table) for table in several]
        for size in (1, 50, 100):
            monkeypatch.setattr(tables, "_HASHED_AT_ONCE", size)
            assert [tables.digest(table) for table in several] == expected
        assert expected[0] == "5b5edd82a7889aeb84aa3997c288a75e9e51db5bc3472105f98ead21ad53cc2f"

    def test_equal_values_have_equal_digests(self) -> None:
        other_nan = np.array([[0x7FF8000000000001]], dtype=np.uint64).view(np.float64)
        assert tables.digest(other_nan) == tables.digest(np.array([[np.nan]]))
        assert tables.digest(np.array([[-0.0]])) == tables.digest(np.array([[0.0]]))
        assert tables.digest(np.array([[-0.0, "a"]], dtype=object)) == tables.digest(
            np.array([[0.0, "a"]], dtype=object)
        )

    def test_does_not_depend_on_the_index_of_a_frame(self) -> None:
        frame = pd.DataFrame({"a": [1, 2]})
        assert tables.digest(frame) == tables.digest(frame.set_index(pd.Index(["x", "y"])))

    def test_does_not_depend_on_how_a_sparse_table_is_stored(self) -> None:
        dense = np.array([[0, 2.0], [1.0, 0]])
        expected = tables.digest(sparse.csr_array(dense))
        explicit_zero = sparse.csr_array((np.array([0.0, 2, 1]), np.array([0, 1, 0]), np.array([0, 2, 3])))
        unsorted = sparse.csr_array((np.array([2.0, 0, 1]), np.array([1, 0, 0]), np.array([0, 2, 3])))
        wide = sparse.csr_array(dense)
        wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
        for table in (sparse.coo_matrix(dense), sparse.csc_array(dense), explicit_zero, unsorted, wide):
            assert tables.digest(table) == expected
        assert explicit_zero.nnz == 3

    def test_does_not_depend_on_what_lies_behind_missing_values(self) -> None:
        mask = np.array([True, False])
        tables_ = [pd.DataFrame({"a": pd.arrays.IntegerArray(np.array([v, 1]), mask)}) for v in (5, 6)]
        assert tables.digest(tables_[0]) == tables.digest(tables_[1])

    def test_does_not_depend_on_where_text_is_stored(self) -> None:
        texts = [pd.DataFrame({"a": pd.array(["x", pd.NA], dtype=f"string[{s}]")}) for s in ("python", "pyarrow")]
        assert tables.digest(texts[0]) == tables.digest(texts[1])

    def test_tells_table_types_apart(self) -> None:
        array = np.eye(3)
        digests = {
            tables.digest(t) for t in (array, pd.DataFrame(array), sparse.csr_array(array), array.astype(object))
        }
        assert len(digests) == 4

    @pytest.mark.parametrize("column", range(20))
    def test_every_value_counts(self, column: int) -> None:
        frame = every_kind_of_column()
        changed = frame.copy()
        cells = changed.iloc[:, column].copy()
        cells.iloc[0] = cells.iloc[1]
        changed.isetitem(column, cells)
        assert tables.digest(changed) != tables.digest(frame)

    def test_names_order_and_dtypes_of_columns_count(self) -> None:
        frame = pd.DataFrame({"a": [1, 2], "b": [1, 2]})
        variants = [
            frame,
            frame.rename(columns={"a": "c"}),
            frame.rename(columns={"a": 0}),
            frame.rename(columns={"a": "0"}),
            frame[["b", "a"]],
            frame.astype({"a": "int32"}),
            frame.astype({"a": "float64"}),
            frame.astype({"a": "Int64"}),
            frame.astype({"a": "category"}),
            frame.astype({"a": pd.CategoricalDtype([1, 2, 3])}),
            frame.astype({"a": pd.CategoricalDtype([1, 2], ordered=True)}),
            frame.astype({"a": object}),
            frame.astype({"a": "string"}),
        ]
        assert len({tables.digest(variant) for variant in variants}) == len(variants)

    def test_shape_of_an_array_counts(self) -> None:
        assert tables.digest(np.zeros((2, 3))) != tables.digest(np.zeros((3, 2)))
        assert tables.digest(np.zeros((0, 3))) != tables.digest(np.zeros((0, 2)))

    @settings(deadline=None)
    @given(hnp.arrays(np.float64, (3, 2)), hnp.arrays(np.float64, (3, 2)))
    def test_equal_arrays_and_only_those_have_equal_digests(self, one: np.ndarray, other: np.ndarray) -> None:
        same = np.array_equal(one, other, equal_nan=True)
        assert (tables.digest(one) == tables.digest(other)) is same
        assert tables.digest(one) == tables.digest(one.copy(order="F"))


def test_one_long_text_does_not_make_all_as_long() -> None:
    """Of fixed width, a thousand short texts beside one of 100,000 characters would be 400 MB."""
    texts = ["a short one", "", "très émouvant 🎬", "b"] * 250 + ["x" * 100_000]
    odd = [*texts[:-3], None, "\ud800", texts[-1]]
    for X in (pd.DataFrame({"note": texts}), pd.DataFrame({"note": pd.Series(odd, dtype=object)})):
        header, arrays = tables.to_arrays(X)
        assert sum(array.nbytes for array in arrays.values()) < 200_000
        pd.testing.assert_frame_equal(tables.from_arrays(header, arrays), X)
        assert tables.digest(X) == tables.digest(X.copy())
        other = X.copy()
        other.iloc[0, 0] = "a short on"
        assert tables.digest(other) != tables.digest(X)
        for ends in (arrays["0.ends"][::-1], arrays["0.ends"] + 1, arrays["0.ends"] - 20_000):
            with pytest.raises(WireError):
                tables.from_arrays(header, arrays | {"0.ends": ends})
