from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from collegium import registry
from collegium.data.partition import (
    BalancedDirichlet,
    ByColumn,
    Dirichlet,
    Iid,
    MixedDirichlet,
    Partition,
    Pathological,
    Shard,
)
from collegium.errors import ConfigError

TEN_CLASSES = np.repeat(np.arange(10), 200)


def assign(partition: Partition, y: np.ndarray, sites: int | None, seed: int = 0, X: Any = None) -> list[np.ndarray]:
    return partition.assign(y, sites, np.random.default_rng(seed), X)


def sizes(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([len(part) for part in parts])


def class_shares(parts: list[np.ndarray], y: np.ndarray) -> np.ndarray:
    """One row per site: which share of its rows each class has."""
    counts = np.array([np.bincount(y[part], minlength=y.max() + 1) for part in parts])
    return counts / counts.sum(axis=1, keepdims=True)


def is_a_partition(parts: list[np.ndarray], rows: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(rows))


ANY_PARTITION = st.one_of(
    st.just(Iid()),
    st.floats(1e-3, 1e3).map(lambda alpha: Dirichlet(alpha, min_size=0)),
    st.floats(1e-3, 1e3).map(BalancedDirichlet),
    st.tuples(st.floats(5, 50), st.floats(5, 50), st.floats(0, 1)).map(lambda given: MixedDirichlet(*given)),
    st.integers(1, 2).map(Shard),
)


@settings(deadline=None)
@given(
    partition=ANY_PARTITION,
    y=st.lists(st.integers(0, 4), min_size=40, max_size=120).map(np.array),
    sites=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_every_row_goes_to_exactly_one_site(partition: Partition, y: np.ndarray, sites: int, seed: int) -> None:
    parts = assign(partition, y, sites, seed)
    assert len(parts) == sites
    assert is_a_partition(parts, len(y))
    assert all(part.dtype == np.intp and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(1.0), BalancedDirichlet(1.0), MixedDirichlet(0.1, 10), Shard()])
def test_same_seed_same_parts_other_seed_other_parts(partition: Partition) -> None:
    one, again, other = (assign(partition, TEN_CLASSES, 4, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("sites", [0, -1, True, 2.0, "3"])
def test_number_of_sites_is_checked(sites: Any) -> None:
    with pytest.raises(ConfigError, match="sites must be an integer of at least 1, got "):
        assign(Iid(), TEN_CLASSES, sites)


def test_number_of_sites_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"Iid needs to know how many sites"):
        assign(Iid(), TEN_CLASSES, None)


def test_no_rows() -> None:
    with pytest.raises(ConfigError, match="no rows"):
        assign(Iid(), np.zeros(0, dtype=int), 2)


def test_every_registered_partition_is_one() -> None:
    assert all(issubclass(registry.lookup("partition", name), Partition) for name in registry.BUILT_IN["partition"])


class TestIid:
    def test_sizes_differ_by_one_at_most(self) -> None:
        assert sorted(sizes(assign(Iid(), np.zeros(11, dtype=int), 3))) == [3, 4, 4]

    def test_classes_are_mixed(self) -> None:
        assert np.abs(class_shares(assign(Iid(), TEN_CLASSES, 5), TEN_CLASSES) - 0.1).max() < 0.06


class TestDirichlet:
    def test_large_alpha_is_nearly_iid(self) -> None:
        parts = assign(Dirichlet(100), TEN_CLASSES, 5)
        assert np.abs(class_shares(parts, TEN_CLASSES) - 0.1).max() < 0.06
        assert np.abs(sizes(parts) - 400).max() < 60

    def test_small_alpha_is_skewed(self) -> None:
        parts = assign(Dirichlet(0.01), TEN_CLASSES, 5)
        shares_of_classes = np.array([np.bincount(TEN_CLASSES[part], minlength=10) for part in parts]) / 200
        assert np.median(shares_of_classes.max(axis=0)) > 0.95

    def test_every_site_has_the_least_size(self) -> None:
        for seed in range(20):
            assert sizes(assign(Dirichlet(0.5, min_size=100), TEN_CLASSES, 5, seed)).min() >= 100

    def test_a_site_may_stay_empty_if_asked_for(self) -> None:
        assert min(sizes(assign(Dirichlet(0.01, min_size=0), TEN_CLASSES, 30))) == 0

    def test_gives_up_with_a_remedy(self) -> None:
        with pytest.raises(
            ConfigError, match=r"Dirichlet\(alpha=0.01, min_size=401, capped=False\): in 100 draws .*larger alpha"
        ):
            assign(Dirichlet(0.01, min_size=401), TEN_CLASSES, 5)

    def test_capped_a_site_that_has_its_share_gets_no_later_class(self) -> None:
        parts = assign(Dirichlet(0.01, min_size=10, capped=True), TEN_CLASSES, 10)
        counts = np.array([np.bincount(TEN_CLASSES[part], minlength=10) for part in parts])
        before = np.cumsum(counts, axis=1) - counts
        assert counts[before >= len(TEN_CLASSES) / 10].sum() == 0
        assert counts.sum(axis=1).min() >= 10
        assert sizes(assign(Dirichlet(0.01, min_size=0), TEN_CLASSES, 10)).max() > sizes(parts).max()

    def test_capped_it_is_drawn_as_often_as_fedkts_skew_takes(self) -> None:
        y = np.repeat([0, 1], [6000, 2000])
        with pytest.raises(ConfigError, match="in 100 draws"):
            assign(Dirichlet(0.1, min_size=3), y, 22)
        assert min(map(len, assign(Dirichlet(0.1, min_size=3, capped=True), y, 22))) >= 3

    def test_capped_the_rarest_class_comes_first(self) -> None:
        y = np.repeat([0, 1], [700, 300])
        parts = [part for seed in range(20) for part in assign(Dirichlet(0.2, capped=True), y, 10, seed)]
        counts = np.array([np.bincount(y[part], minlength=2) for part in parts])
        full = counts >= 100  # 1,000 rows for 10 sites
        assert full.any(axis=0).all()
        assert counts[full[:, 1], 0].sum() == 0 < counts[full[:, 0], 1].sum()

    @pytest.mark.parametrize("alpha", [0, -1, np.nan, np.inf, 1e10, True, "1", None])
    def test_alpha_is_checked(self, alpha: Any) -> None:
        with pytest.raises(ConfigError, match="Dirichlet: alpha"):
            Dirichlet(alpha)
        with pytest.raises(ConfigError, match="BalancedDirichlet: alpha"):
            BalancedDirichlet(alpha)
        with pytest.raises(ConfigError, match="MixedDirichlet: alpha1"):
            MixedDirichlet(alpha, 1)
        with pytest.raises(ConfigError, match="MixedDirichlet: alpha2"):
            MixedDirichlet(1, alpha)

    @pytest.mark.parametrize("min_size", [-1, 1.5, True])
    def test_least_size_is_checked(self, min_size: Any) -> None:
        with pytest.raises(ConfigError, match="Dirichlet: min_size"):
            Dirichlet(1, min_size)

    @pytest.mark.parametrize("alpha", [1e-300, 1e9])
    def test_extreme_alphas_can_be_drawn_from(self, alpha: float) -> None:
        assert is_a_partition(assign(Dirichlet(alpha, min_size=0), TEN_CLASSES, 3), len(TEN_CLASSES))


class TestBalancedDirichlet:
    @pytest.mark.parametrize("alpha", [0.01, 0.1, 1, 100])
    @pytest.mark.parametrize("sites", [3, 10, 20])
    def test_sizes_are_nearly_equal(self, alpha: float, sites: int) -> None:
        for seed in range(5):
            parts = assign(BalancedDirichlet(alpha), TEN_CLASSES, sites, seed)
            assert np.abs(sizes(parts) - 2000 / sites).max() <= 10

    def test_sizes_are_nearly_equal_with_unequal_classes(self) -> None:
        y = np.repeat([0, 1, 2], [1500, 400, 100])
        assert np.abs(sizes(assign(BalancedDirichlet(0.01), y, 5)) - 400).max() <= 3

    def test_small_alpha_is_skewed_and_large_is_not(self) -> None:
        skewed = class_shares(assign(BalancedDirichlet(0.01), TEN_CLASSES, 10), TEN_CLASSES)
        mixed = class_shares(assign(BalancedDirichlet(100), TEN_CLASSES, 10), TEN_CLASSES)
        assert np.median(skewed.max(axis=1)) > 0.5
        assert mixed.max() < 0.16


class TestMixedDirichlet:
    def test_share_decides_between_the_two(self) -> None:
        def skew(share: float) -> float:
            shares = class_shares(assign(MixedDirichlet(0.01, 1000, share), TEN_CLASSES, 4), TEN_CLASSES)
            return float(np.abs(shares - 0.1).mean())

        assert skew(0) < skew(0.5) < skew(1)

    def test_every_site_has_rows(self) -> None:
        for seed in range(20):
            assert sizes(assign(MixedDirichlet(0.05, 0.05), TEN_CLASSES, 8, seed)).min() >= 1

    def test_fedct_s_published_split_has_a_main_class_and_a_few_rows_of_the_others(self) -> None:
        y = np.repeat(np.arange(10), 1000)
        parts = assign(MixedDirichlet(0.01, 100, share=0.9, min_size=10, capped=True), y, 10)
        counts = np.array([np.bincount(y[part], minlength=10) for part in parts])
        assert counts.min() > 0  # every site has all classes,
        assert (np.sort(counts, axis=1)[:, :7] < 30).all()  # seven of which are rare there,
        assert counts.sum(axis=1).min() >= 10 + 70  # and rows of both parts.

    def test_gives_up_with_a_remedy(self) -> None:
        with pytest.raises(ConfigError, match=r"MixedDirichlet\(.*in 100 draws .*fewer sites"):
            assign(MixedDirichlet(0.001, 0.001), TEN_CLASSES, 50)

    @pytest.mark.parametrize("share", [-0.1, 1.1, np.nan, True, "half"])
    def test_share_is_checked(self, share: Any) -> None:
        with pytest.raises(ConfigError, match="MixedDirichlet: share"):
            MixedDirichlet(1, 1, share)


class TestShard:
    def test_sites_have_few_classes_and_equal_sizes(self) -> None:
        parts = assign(Shard(2), TEN_CLASSES, 10)
        assert sizes(parts).tolist() == [200] * 10
        assert max(len(np.unique(TEN_CLASSES[part])) for part in parts) <= 2

    def test_shards_are_dealt_at_random(self) -> None:
        hands = {tuple(np.unique(TEN_CLASSES[assign(Shard(2), TEN_CLASSES, 10, seed)[0]])) for seed in range(20)}
        assert len(hands) > 10

    def test_too_few_rows(self) -> None:
        with pytest.raises(ConfigError, match=r"5 private rows cannot be cut into 6 shards.*fewer sites"):
            assign(Shard(2), np.zeros(5, dtype=int), 3)

    @pytest.mark.parametrize("shards", [0, 1.5, True])
    def test_number_of_shards_is_checked(self, shards: Any) -> None:
        with pytest.raises(ConfigError, match="Shard: shards_per_site"):
            Shard(shards)


class TestPathological:
    @settings(deadline=None)
    @given(
        class_counts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
        sites=st.integers(1, 6),
        classes_per_site=st.integers(1, 4),
        seed=st.integers(0, 1000),
    )
    def test_exact_classes_whenever_possible(
        self, class_counts: list[int], sites: int, classes_per_site: int, seed: int
    ) -> None:
        y = np.repeat(np.arange(len(class_counts)), class_counts)
        places = sites * classes_per_site
        possible = classes_per_site <= len(class_counts) <= places <= sum(min(n, sites) for n in class_counts)
        if not possible:
            with pytest.raises(ConfigError, match="Pathological"):
                assign(Pathological(classes_per_site), y, sites, seed)
            return
        parts = assign(Pathological(classes_per_site), y, sites, seed)
        assert is_a_partition(parts, len(y))
        assert [len(np.unique(y[part])) for part in parts] == [classes_per_site] * sites

    def test_a_class_is_divided_evenly_over_its_holders(self) -> None:
        parts = assign(Pathological(2), TEN_CLASSES, 10)
        for part in parts:
            assert np.bincount(TEN_CLASSES[part])[np.unique(TEN_CLASSES[part])].tolist() == [100, 100]

    def test_classes_are_dealt_at_random(self) -> None:
        hands = {tuple(np.unique(TEN_CLASSES[assign(Pathological(2), TEN_CLASSES, 10, s)[0]])) for s in range(20)}
        assert len(hands) > 10

    @pytest.mark.parametrize(
        ("classes_per_site", "sites", "remedy"),
        [(11, 2, "there are 10 classes; lower"), (2, 4, "4 sites with 2 classes each cannot hold 10 classes")],
    )
    def test_impossible_wishes(self, classes_per_site: int, sites: int, remedy: str) -> None:
        with pytest.raises(ConfigError, match=remedy):
            assign(Pathological(classes_per_site), TEN_CLASSES, sites)

    @pytest.mark.parametrize("classes", [0, 2.0, True])
    def test_number_of_classes_is_checked(self, classes: Any) -> None:
        with pytest.raises(ConfigError, match="Pathological: classes_per_site"):
            Pathological(classes)


class TestByColumn:
    frame = pd.DataFrame({"age": [50, 60, 70, 80], "hospital": ["b", "a", "b", "c"]})
    y = np.array([0, 1, 0, 1])

    def test_one_site_per_value_sorted(self) -> None:
        parts = assign(ByColumn("hospital"), self.y, None, X=self.frame)
        assert [part.tolist() for part in parts] == [[1], [0, 2], [3]]
        assert ByColumn("hospital").site_names(3, self.frame) == ["a", "b", "c"]

    def test_numbers_are_sorted_as_numbers(self) -> None:
        X = pd.DataFrame({"ward": [10, 9, 10]})
        assert ByColumn("ward").site_names(2, X) == ["9", "10"]

    @pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csr_matrix])
    def test_columns_of_arrays_have_numbers(self, kind: Any) -> None:
        X = kind([[5.0, 2], [6.0, 0], [7.0, 2]])
        by_second = ByColumn(1)
        assert [part.tolist() for part in assign(by_second, self.y[:3], None, X=X)] == [[1], [0, 2]]
        left = by_second.features(X)
        assert (left.toarray() if sparse.issparse(left) else left).tolist() == [[5], [6], [7]]

    def test_categorical_column(self) -> None:
        X = self.frame.astype({"hospital": pd.CategoricalDtype(["c", "b", "a", "unused"])})
        assert ByColumn("hospital").site_names(3, X) == ["a", "b", "c"]
        assert len(assign(ByColumn("hospital"), self.y, None, X=X)) == 3

    def test_column_is_dropped_unless_asked_for(self) -> None:
        assert list(ByColumn("hospital").features(self.frame).columns) == ["age"]
        assert list(ByColumn("hospital", drop=False).features(self.frame).columns) == ["age", "hospital"]

    def test_number_of_sites_must_fit(self) -> None:
        assert len(assign(ByColumn("hospital"), self.y, 3, X=self.frame)) == 3
        with pytest.raises(
            ConfigError, match="2 sites were asked for, but column 'hospital' has 3 values; leave sites out"
        ):
            assign(ByColumn("hospital"), self.y, 2, X=self.frame)

    def test_unknown_column_suggests_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"no column 'hospitl'\. Did you mean 'hospital'"):
            assign(ByColumn("hospitl"), self.y, None, X=self.frame)

    @pytest.mark.parametrize(
        ("column", "X", "what"),
        [
            ("a", None, "no X was given"),
            ("a", np.eye(4), "an integer from 0 to 3"),
            (4, np.eye(4), "an integer from 0 to 3"),
            (-1, np.eye(4), "an integer from 0 to 3"),
            (0, np.zeros((4, 2, 2)), "3 dimensions"),
            ("a", pd.DataFrame({"a": ["x", None, "y", "z"]}), "1 missing values"),
            ("a", pd.DataFrame({"a": ["x", 1, "y", "z"]}), "cannot be sorted"),
            ("a", pd.DataFrame([[1, 2]] * 4, columns=["a", "a"]), "2 columns named 'a'"),
            ("a", pd.DataFrame({"a": [1, 2]}), "2 rows and y has 4 labels"),
        ],
    )
    def test_unusable_columns(self, column: str | int, X: Any, what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            assign(ByColumn(column), self.y, None, X=X)

    @pytest.mark.parametrize("column", [True, 1.5, None])
    def test_column_is_checked(self, column: Any) -> None:
        with pytest.raises(ConfigError, match="ByColumn: column"):
            ByColumn(column)
