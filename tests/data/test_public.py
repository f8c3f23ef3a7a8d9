from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from collegium.data.partition import BalancedDirichlet, ByColumn, Dirichlet, Partition, Pathological
from collegium.data.public import Split, split
from collegium.errors import ConfigError
from collegium.wire.tables import n_rows

N = 200
X = np.column_stack([np.arange(N), np.arange(N) % 7])
Y = np.arange(N) % 3


def all_rows(parts: Split) -> list[int]:
    return sorted(np.concatenate(list(parts.indices.values())).tolist())


class TestSizes:
    def test_fractions(self) -> None:
        parts = split(X, Y, sites=3, public=0.5, test=0.2)
        assert len(parts.public) == len(parts.public_truth) == 100
        assert len(parts.test[0]) == len(parts.test[1]) == 40
        assert sum(len(y) for _, y in parts.sites) == 60

    def test_counts(self) -> None:
        parts = split(X, Y, sites=3, public=11, test=np.int64(7), train=30)
        assert [len(rows) for rows in parts.indices.values()] == [11, 7, 10, 10, 10]

    def test_train_as_fraction(self) -> None:
        assert sum(len(y) for _, y in split(X, Y, sites=2, train=0.1).sites) == 20

    def test_none_of_it(self) -> None:
        parts = split(pd.DataFrame(X), Y, sites=2, public=0, test=0)
        assert parts.public.shape == parts.test[0].shape == (0, 2)
        assert len(parts.public_truth) == len(parts.test[1]) == 0
        assert all_rows(parts) == list(range(N))

    @settings(deadline=None)
    @given(
        public=st.one_of(st.integers(0, 60), st.floats(0.01, 0.3)),
        test=st.one_of(st.integers(0, 60), st.floats(0.01, 0.3)),
        train=st.one_of(st.none(), st.integers(5, 60), st.floats(0.05, 0.3)),
        seed=st.integers(0, 2**40),
    )
    def test_parts_are_disjoint_and_hold_their_own_rows(
        self, public: float, test: float, train: float | None, seed: int
    ) -> None:
        parts = split(X, Y, sites=4, public=public, test=test, train=train, seed=seed)
        rows = all_rows(parts)
        assert len(rows) == len(set(rows))
        assert train is not None or rows == list(range(N))
        tables = [(parts.public, parts.public_truth), parts.test, *parts.sites]
        for name, (table, labels) in zip(["public", "test", *parts.names], tables, strict=True):
            assert np.array_equal(table, X[parts.indices[name]])
            assert np.array_equal(labels, Y[parts.indices[name]])


class TestSeed:
    def test_same_seed_same_split(self) -> None:
        one, again = (split(X, Y, sites=3, partition=Dirichlet(1), seed=5) for _ in range(2))
        assert all(np.array_equal(one.indices[name], again.indices[name]) for name in one.indices)

    def test_other_seed_other_split(self) -> None:
        one, other = (split(X, Y, sites=3, seed=seed) for seed in (1, 2))
        assert not any(np.array_equal(one.indices[name], other.indices[name]) for name in one.indices)

    def test_the_test_rows_do_not_depend_on_the_size_of_the_public_set(self) -> None:
        small, large = (split(X, Y, sites=3, public=size) for size in (0.1, 0.6))
        assert np.array_equal(small.indices["test"], large.indices["test"])

    @pytest.mark.parametrize("seed", [-1, True, None, 1.0])
    def test_is_checked(self, seed: Any) -> None:
        with pytest.raises(ConfigError, match="seed must be an integer of at least 0, got "):
            split(X, Y, sites=2, seed=seed)


class TestTypes:
    def test_frame_stays_a_frame_with_a_new_index(self) -> None:
        frame = pd.DataFrame(
            {"row": range(N), "colour": pd.Categorical(["r", "g"] * (N // 2))}, index=np.arange(N) * 2 + 5
        )
        parts = split(frame, Y, sites=2)
        for table, name in [(parts.public, "public"), (parts.test[0], "test"), (parts.sites[1][0], "site1")]:
            assert table["row"].tolist() == parts.indices[name].tolist()
            assert table.index.tolist() == list(range(len(table)))
            assert (table.dtypes == frame.dtypes).all()

    def test_sparse_stays_csr(self) -> None:
        parts = split(sparse.coo_matrix(X), Y, sites=2)
        assert all(table.format == "csr" for table in (parts.public, parts.test[0], parts.sites[0][0]))
        assert np.array_equal(parts.public.toarray(), X[parts.indices["public"]])

    def test_images_and_lists(self) -> None:
        assert split(np.zeros((N, 4, 4)), Y, sites=2).public.shape == (100, 4, 4)
        assert split(X.tolist(), Y.tolist(), sites=2).public.shape == (100, 2)

    @pytest.mark.parametrize(
        "wrap",
        [
            np.array,
            list,
            tuple,
            pd.Series,
            pd.Categorical,
            pd.Index,
            lambda y: pd.Series(y, dtype="category"),
            lambda y: pd.Series(y, index=np.arange(N)[::-1]),
            lambda y: np.array(y, dtype=object),
        ],
    )
    @pytest.mark.parametrize("values", [["no", "yes"], [3, 5], [False, True]])
    def test_labels_keep_their_values(self, wrap: Any, values: list[Any]) -> None:
        labels = [values[row % 2] for row in range(N)]
        parts = split(X, wrap(labels), sites=2)
        for y, name in [(parts.public_truth, "public"), (parts.test[1], "test"), (parts.sites[0][1], "site0")]:
            assert isinstance(y, np.ndarray)
            assert y.tolist() == [labels[row] for row in parts.indices[name]]
            assert isinstance(y.tolist()[0], type(values[0]))

    def test_labels_keep_their_dtype(self) -> None:
        for labels in (Y.astype(np.int8), pd.Series(Y.astype(np.int8)), pd.Series(Y, dtype="Int8")):
            assert split(X, labels, sites=2).public_truth.dtype == np.int8

    def test_repr_shows_sizes_not_data(self) -> None:
        assert repr(split(X, Y, sites=2)) == "Split(public: 100, test: 40, site0: 30, site1: 30)"

    def test_no_warnings(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            split(pd.DataFrame(X), pd.Series(Y), sites=3, partition=BalancedDirichlet(0.1))


class TestPartitions:
    @pytest.mark.parametrize("labels", [Y, np.array(["b", "a", "c"])[Y]])
    def test_rows_are_dealt_by_class(self, labels: np.ndarray) -> None:
        parts = split(X, labels, sites=3, partition=Pathological(1))
        assert sorted(set(y).pop() for _, y in parts.sites) == sorted(set(labels))
        assert [len(set(y)) for _, y in parts.sites] == [1, 1, 1]

    def test_by_column(self) -> None:
        frame = pd.DataFrame({"row": range(N), "ward": np.array(["b", "a", "c"])[Y]})
        parts = split(frame, Y, partition=ByColumn("ward"))
        assert parts.names == ["a", "b", "c"]
        assert list(parts.public.columns) == list(parts.test[0].columns) == ["row"]
        for name, (table, _) in zip(parts.names, parts.sites, strict=True):
            assert set(frame["ward"][parts.indices[name]]) == {name}
            assert table["row"].tolist() == parts.indices[name].tolist()

    def test_by_column_can_keep_the_column(self) -> None:
        parts = split(X, Y, sites=7, partition=ByColumn(1, drop=False))
        assert parts.names == ["0", "1", "2", "3", "4", "5", "6"]
        assert all(set(table[:, 1]) == {number} for number, (table, _) in enumerate(parts.sites))

    def test_by_column_value_without_private_rows_is_named(self) -> None:
        frame = pd.DataFrame({"row": range(N)})
        test_row = split(frame, Y, sites=1).indices["test"][0]
        frame["ward"] = np.where(frame["row"] == test_row, "rare", "common")
        for sites in (None, 2):
            with pytest.raises(ConfigError, match="site 'rare' ends up without rows; use another seed"):
                split(frame, Y, sites=sites, partition=ByColumn("ward"))

    @pytest.mark.parametrize("name", ["public", "test"])
    def test_by_column_value_that_is_taken(self, name: str) -> None:
        frame = pd.DataFrame({"row": range(N), "ward": np.where(Y == 0, name, "other")})
        with pytest.raises(ConfigError, match=f"cannot be called '{name}'"):
            split(frame, Y, partition=ByColumn("ward"))

    def test_empty_site_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"site 'site\d+' ends up without rows; use another seed, fewer sites"):
            split(X, Y, sites=40, partition=Dirichlet(0.01, min_size=0))

    def test_not_a_partition(self) -> None:
        with pytest.raises(ConfigError, match="'iid' is not a partition"):
            split(X, Y, sites=2, partition="iid")  # type: ignore[arg-type]

    def test_overlapping_sites_are_an_internal_error(self) -> None:
        @dataclass(frozen=True)
        class Everything(Partition):
            def deal(self, y: Any, sites: int, rng: np.random.Generator, X: Any) -> Sequence[Any]:
                return [np.arange(len(y))] * sites

        with pytest.raises(RuntimeError, match="overlap"):
            split(X, Y, sites=2, partition=Everything())

    def test_sites_of_the_same_name(self) -> None:
        @dataclass(frozen=True)
        class Twins(Dirichlet):
            def site_names(self, sites: int, X: Any) -> list[str]:
                return ["twin"] * sites

        with pytest.raises(ConfigError, match="Twins gives two sites the same name"):
            split(X, Y, sites=2, partition=Twins(1.0))


class TestRefuses:
    @pytest.mark.parametrize(
        ("wishes", "what"),
        [
            ({"public": 150, "test": 60}, "There are 200 rows, but 150 public \\+ 60 test rows"),
            ({"public": 0.5, "test": 0.2, "train": 61}, "100 public \\+ 40 test \\+ 61 train"),
            ({"public": 1.0}, "public must be an integer of at least 0 or a number above 0 and below 1, got 1.0"),
            ({"public": 0.0}, "public must be .*, got 0.0"),
            ({"test": -0.1}, "test must be .*, got -0.1"),
            ({"test": float("nan")}, "test must be .*, got nan"),
            ({"test": -3}, "test must be an integer of at least 0.*, got -3"),
            ({"public": True}, "public must be .*, got True"),
            ({"train": False}, "train must be .*, got False"),
            ({"train": "all"}, "train must be .*, got 'all'"),
            ({"public": None}, "public must be .*, got None"),
            ({"train": 0}, "0 private rows are too few for 3 sites"),
            ({"train": 2}, "2 private rows are too few for 3 sites"),
            ({"public": 0.5, "test": 0.5}, "0 private rows are too few"),
            ({"sites": 0}, "sites must be .*, got 0"),
            ({"sites": True}, "sites must be .*, got True"),
            ({"sites": None}, "needs to know how many sites"),
        ],
    )
    def test_wishes_that_do_not_fit(self, wishes: dict[str, Any], what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            split(X, Y, **{"sites": 3, **wishes})

    @pytest.mark.parametrize(
        ("labels", "what"),
        [
            (Y[:-1], "X has 200 rows and y has 199 labels"),
            (np.where(Y == 0, np.nan, Y), "67 of 200 labels are missing"),
            ([None] + ["a"] * (N - 1), "1 of 200 labels are missing"),
            (pd.Series([pd.NA] + [1] * (N - 1), dtype="Int64"), "1 of 200 labels are missing"),
            (pd.Categorical([None] + ["a"] * (N - 1)), "1 of 200 labels are missing"),
            (np.ma.masked_array(Y, mask=Y == 0), "67 of 200 labels are missing"),
            (Y[:, None], r"y: has shape \(200, 1\)"),
            ([1] + ["a"] * (N - 1), "different types"),
            (np.array([1] + ["a"] * (N - 1), dtype=object), "different types"),
            ([[1], [1, 2]] * (N // 2), "different lengths"),
            ({"a": 1}, "dict is not a list of labels"),
            (pd.DataFrame({"y": Y}), "DataFrame is not a list of labels"),
        ],
    )
    def test_labels_that_do_not_fit(self, labels: Any, what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            split(X, labels, sites=3)

    def test_no_rows(self) -> None:
        with pytest.raises(ConfigError, match="no rows"):
            split(np.zeros((0, 2)), [], sites=1)

    def test_one_dimensional_table(self) -> None:
        with pytest.raises(ConfigError, match=r"X: .*reshape"):
            split(Y, Y, sites=3)


def test_as_many_sites_as_private_rows() -> None:
    assert [n_rows(table) for table, _ in split(X, Y, sites=60).sites] == [1] * 60
