from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from collegium.core.tally import Tally, winners


def tally_of(votes: np.ndarray, n_classes: int) -> Tally:
    tally = Tally(votes.shape[1], n_classes, len(votes))
    for labels in votes:
        tally.add(labels)
    return tally


@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.int16, np.int64]),
        st.tuples(st.integers(1, 12), st.integers(0, 20)),
        elements=st.integers(-1, 4),
    ),
    st.integers(-(2**70), 2**70),
)
@settings(deadline=None)
def test_counts_and_winners_of_any_votes(votes: np.ndarray, seed: int) -> None:
    tally = tally_of(votes, 5)
    counts = np.stack([(votes == code).sum(axis=0) for code in range(5)])
    np.testing.assert_array_equal(tally.counts, counts)
    won = tally.winners(seed)
    assert won.dtype == np.int8
    for winner, column in zip(won, counts.T, strict=True):
        assert winner == -1 if column.max() == 0 else column[winner] == column.max()


def test_votes_are_counted_across_chunks() -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(-1, 10, (7, 150_001), dtype=np.int8)
    tally = tally_of(votes, 10)
    assert tally.added == 7
    for code in range(10):
        np.testing.assert_array_equal(tally.counts[code], (votes == code).sum(axis=0))
    won = tally.winners(3)
    np.testing.assert_array_equal(tally.counts[won, np.arange(won.size)], tally.counts.max(axis=0))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"]
)
@pytest.mark.parametrize("n_classes", [100, 300])
def test_any_integer_type_is_counted(dtype: str, n_classes: int) -> None:
    labels = np.array([0, 1, 99, 1]).astype(dtype)
    counts = tally_of(labels[None], n_classes).counts
    assert counts.shape == (n_classes, 4)
    np.testing.assert_array_equal(np.nonzero(counts.T), [[0, 1, 2, 3], [0, 1, 99, 1]])


def test_strided_labels_are_counted() -> None:
    labels = np.arange(20, dtype=np.int8) % 3
    np.testing.assert_array_equal(tally_of(labels[None, ::2], 3).counts, tally_of(labels[None, ::2].copy(), 3).counts)


@pytest.mark.parametrize("labels", [[-2, 0], [0, 3], [0], [0, 1, 2], [[0, 1]], [0.0, 1.0], [True, False]])
def test_labels_that_do_not_fit_are_refused_and_not_counted(labels: list[object]) -> None:
    tally = Tally(2, 3, 5)
    with pytest.raises(ValueError, match="Labels must"):
        tally.add(np.array(labels))
    assert tally.added == 0
    assert not tally.counts.any()


def test_more_votes_than_voters_are_refused() -> None:
    tally = Tally(2, 3, 1)
    tally.add(np.array([0, 1]))
    with pytest.raises(ValueError, match="1 voters"):
        tally.add(np.array([0, 1]))
    assert tally.counts.sum() == 2


@pytest.mark.parametrize("sizes", [(-1, 2, 1), (1, 0, 1), (1, 2, -1)])
def test_impossible_sizes_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least one class"):
        Tally(*sizes)


@pytest.mark.parametrize(
    ("voters", "dtype"), [(0, np.uint8), (255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.uint32)]
)
def test_counts_are_as_wide_as_the_voters_need(voters: int, dtype: type) -> None:
    assert Tally(3, 2, voters).counts.dtype == dtype


@pytest.mark.parametrize("voters", [255, 256, 300])
def test_unanimous_votes_do_not_overflow(voters: int) -> None:
    tally = tally_of(np.zeros((voters, 2), np.int8), 2)
    np.testing.assert_array_equal(tally.counts, [[voters, voters], [0, 0]])
    np.testing.assert_array_equal(tally.winners(0, quorum=1.0), [0, 0])


def test_counts_cannot_be_changed_from_outside() -> None:
    tally = Tally(2, 3, 1)
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[0, 0] = 1


@pytest.mark.parametrize(("n_classes", "dtype"), [(128, np.int8), (129, np.int16), (32_769, np.int32)])
def test_winners_have_the_smallest_type(n_classes: int, dtype: type) -> None:
    tally = Tally(2, n_classes, 1)
    tally.add(np.array([n_classes - 1, -1]))
    won = tally.winners(0)
    assert won.dtype == dtype
    np.testing.assert_array_equal(won, [n_classes - 1, -1])


@pytest.mark.parametrize("tied", [*combinations(range(4), 2), *combinations(range(4), 3), (0, 1, 2, 3), (0, 7, 9)])
def test_ties_are_unbiased(tied: tuple[int, ...]) -> None:
    scores = np.zeros((10, 200_000), np.uint8)
    scores[list(tied)] = 3
    chosen = np.bincount(winners(scores, seed=5), minlength=10)
    assert chosen[list(tied)].sum() == 200_000
    assert stats.chisquare(chosen[list(tied)]).pvalue > 1e-4


def test_ties_of_neighbours_and_of_seeds_are_independent() -> None:
    scores = np.ones((2, 100_000))
    first, second = winners(scores, 1), winners(scores, 2)
    for left, right in ((first, second), (first[:-1], first[1:]), (first[:-2], first[2:])):
        assert stats.chi2_contingency(stats.contingency.crosstab(left, right).count).pvalue > 1e-4


def test_ties_are_stable() -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 10, (4, 200_000), dtype=np.int8)
    tally = tally_of(votes, 10)
    won = tally.winners(7)
    np.testing.assert_array_equal(tally.winners(7), won)
    np.testing.assert_array_equal(tally_of(votes[::-1], 10).winners(7), won)
    assert (tally.winners(8) != won).any()


def test_a_tie_depends_on_no_other_sample() -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 10, (4, 200_000), dtype=np.int8)
    won = tally_of(votes, 10).winners(7)
    np.testing.assert_array_equal(tally_of(votes[:, :1000], 10).winners(7), won[:1000])
    others = votes.copy()
    others[:, ::2] = 0
    np.testing.assert_array_equal(tally_of(others, 10).winners(7)[1::2], won[1::2])


def test_a_tie_is_the_same_for_counts_and_scores() -> None:
    rng = np.random.default_rng(0)
    tally = tally_of(rng.integers(-1, 10, (6, 100_000), dtype=np.int8), 10)
    np.testing.assert_array_equal(winners(tally.counts * 0.1, 7), tally.winners(7))


def test_a_winner_of_a_tie_also_wins_the_smaller_tie() -> None:
    three = np.ones((3, 10_000))
    won = winners(three, 1)
    two = three.copy()
    two[2] = 0
    kept = won < 2
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(winners(two, 1)[kept], won[kept])


def test_scores_may_be_negative_or_fractional() -> None:
    scores = np.array([[-1.0, 0.0, 0.1, 0.0, -np.inf], [-2.0, 0.0, 0.1 + 1e-12, -1.0, -3.0]])
    np.testing.assert_array_equal(winners(scores, 0), [0, -1, 1, 0, 1])


@pytest.mark.parametrize(
    "scores", [np.zeros(3), np.zeros((0, 3)), np.array([[np.nan], [1.0]]), np.array([["a"]]), np.zeros((2, 2, 2))]
)
def test_scores_that_do_not_fit_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="Scores must"):
        winners(scores, 0)


def test_no_samples_have_no_winners() -> None:
    assert Tally(0, 3, 1).winners(0, 0.5).shape == (0,)


@pytest.mark.parametrize(
    ("votes", "cast", "quorum", "wins"),
    [
        (9, 10, 0.9, True),
        (8, 10, 0.9, False),
        (7, 10, 0.7, True),
        (6, 10, 0.7, False),
        (3, 10, 0.3, True),
        (57, 100, 0.57, True),
        (56, 100, 0.57, False),
        (29, 100, 0.29, True),
        (28, 100, 0.29, False),
        (55, 100, 0.55, True),
        (7, 100, 0.07, True),
        (6, 100, 0.07, False),
        (10, 10, 1.0, True),
        (9, 10, 1.0, False),
        (2, 3, 2 / 3, True),
        (1, 1, 1.0, True),
        (1, 2, 0.5, True),
        (5, 10, 0.500001, False),
    ],
)
def test_quorum_is_exact(votes: int, cast: int, quorum: float, wins: bool) -> None:
    labels = np.full((cast + 5, 2), -1)
    labels[:cast, 0] = np.maximum(np.arange(cast) - votes + 1, 0)  # all but class 0 have one vote each
    labels[0, 1] = 0
    won = tally_of(labels, 101).winners(0, quorum)
    assert (won[0] >= 0) == wins
    assert won[1] == 0


@pytest.mark.parametrize("votes_of_each", [1, 2])
def test_quorum_counts_the_votes_cast_only(votes_of_each: int) -> None:
    labels = np.repeat([0, 1, -1, -1], votes_of_each)[:, None]
    tally = tally_of(labels, 2)
    assert tally.winners(0, 0.5)[0] in (0, 1)
    assert tally.winners(0, 0.51)[0] == -1


def test_nobody_voted() -> None:
    tally = tally_of(np.full((3, 4), -1), 2)
    for quorum in (0.0, 0.5, 1.0):
        np.testing.assert_array_equal(tally.winners(0, quorum), [-1] * 4)


@pytest.mark.parametrize("quorum", [-0.1, 1.1, float("nan")])
def test_an_impossible_quorum_is_refused(quorum: float) -> None:
    with pytest.raises(ValueError, match="quorum"):
        Tally(1, 2, 1).winners(0, quorum)


@pytest.mark.parametrize(("voters", "width"), [(255, 1), (256, 2)])
def test_memory_is_the_counts_and_a_chunk(voters: int, width: int) -> None:
    n_samples, n_classes = 2_000_000, 10
    labels = np.arange(n_samples, dtype=np.int8) % n_classes
    tracemalloc.start()
    try:
        tally = Tally(n_samples, n_classes, voters)
        tally.add(labels)
        tally.add(labels[::-1])
        assert tracemalloc.get_traced_memory()[1] < n_samples * n_classes * width + 500_000
        tally.winners(0, 0.5)
        assert tracemalloc.get_traced_memory()[1] < n_samples * (n_classes * width + 1) + 8_000_000
    finally:
        tracemalloc.stop()


# Approvals


def approvals_of(bits: np.ndarray) -> Tally:
    tally = Tally(bits.shape[1], bits.shape[2], len(bits))
    for site in bits:
        tally.add_approvals(site)
    return tally


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(0, 20), st.just(4))), st.integers(0, 9))
@settings(deadline=None)
def test_counts_and_winners_of_any_approvals(bits: np.ndarray, seed: int) -> None:
    tally = approvals_of(bits)
    counts = bits.sum(axis=0).T
    np.testing.assert_array_equal(tally.counts, counts)
    assert tally.added == len(bits)
    for winner, column in zip(tally.winners(seed), counts.T, strict=True):
        assert winner == -1 if column.max() == 0 else column[winner] == column.max()


def test_approvals_are_counted_across_chunks() -> None:
    bits = np.random.default_rng(0).random((3, 150_001, 5)) < 0.4
    np.testing.assert_array_equal(approvals_of(bits).counts, bits.sum(axis=0).T)


@pytest.mark.parametrize("voters", [255, 256, 300])
def test_many_approvals_do_not_overflow(voters: int) -> None:
    tally = approvals_of(np.ones((voters, 2, 3), bool))
    assert (tally.counts == voters).all()
    assert (tally.winners(0, quorum=1.0) >= 0).all()


@pytest.mark.parametrize(
    ("approving", "quorum", "wins"), [(9, 0.9, True), (8, 0.9, False), (10, 1.0, True), (3, 0.3, True)]
)
def test_the_quorum_of_approvals_is_a_share_of_all_sites(approving: int, quorum: float, wins: bool) -> None:
    bits = np.zeros((10, 2, 3), bool)
    bits[:approving, :, 1] = True
    bits[: approving - 1, 0] = True  # what else they approve of does not count
    assert (approvals_of(bits).winners(0, quorum) == (1 if wins else -1)).all()


@pytest.mark.parametrize(
    "bits", [np.zeros((2, 3), bool), np.zeros((3, 2)), np.zeros(6, bool), np.zeros((3, 2), np.uint8)]
)
def test_approvals_that_do_not_fit_are_refused(bits: np.ndarray) -> None:
    tally = Tally(3, 2, 1)
    with pytest.raises(ValueError, match="Approvals must"):
        tally.add_approvals(bits)
    tally.add_approvals(np.zeros((3, 2), bool))
    with pytest.raises(ValueError, match="1 voters"):
        tally.add_approvals(np.zeros((3, 2), bool))


def test_labels_and_approvals_are_not_mixed() -> None:
    for first, second in (("add", "add_approvals"), ("add_approvals", "add")):
        given = {"add": np.array([0, 1]), "add_approvals": np.ones((2, 2), bool)}
        tally = Tally(2, 2, 2)
        getattr(tally, first)(given[first])
        with pytest.raises(ValueError, match="labels or approvals"):
            getattr(tally, second)(given[second])
        assert tally.added == 1
