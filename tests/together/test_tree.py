from __future__ import annotations

import itertools

import numpy as np
import pytest

from collegium.together.making import by_group, estimates
from collegium.together.planning import Measured, expected, first_look, grouped, groups_for, on_simplex
from collegium.together.tree import fit_tree, with_label

RNG = np.random.default_rng(0)


def chain(n: int) -> np.ndarray:
    """Four columns: the second follows the first, the third the second; the last is on its own."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 4, n)
    second = np.where(rng.random(n) < 0.8, first, rng.integers(0, 4, n))
    third = np.where(rng.random(n) < 0.8, second // 2, rng.integers(0, 2, n))
    return np.stack([first, second, third, rng.integers(0, 3, n)], axis=1)


def tables_of(rows: np.ndarray, sigma: float) -> tuple[list[np.ndarray], dict[tuple[int, int], np.ndarray]]:
    sizes = [4, 4, 2, 3]
    singles = [np.bincount(rows[:, c], minlength=size).astype(float) for c, size in enumerate(sizes)]
    pairs = {}
    for a, b in itertools.combinations(range(4), 2):
        table = np.zeros((sizes[a], sizes[b]))
        np.add.at(table, (rows[:, a], rows[:, b]), 1)
        pairs[a, b] = table + RNG.normal(0, sigma, table.shape)
    return singles, pairs


@pytest.mark.parametrize("sigma", [0.01, 20.0])
def test_rows_drawn_along_the_tree_have_the_pairs_that_were_counted(sigma: float) -> None:
    rows = chain(20_000)
    singles, pairs = tables_of(rows, sigma)
    tree = fit_tree(singles, pairs, sigma)
    drawn = tree.draw(20_000, np.random.default_rng(2))
    assert tree.parents[3] == ()  # nothing but noise ties it to the others
    for a, b in ((0, 1), (1, 2), (0, 2)):
        exact = tables_of(rows, 0.0)[1][a, b]
        made = tables_of(drawn, 0.0)[1][a, b]
        assert np.abs(exact - made).sum() / 2 / len(rows) < 0.03


@pytest.mark.parametrize("sigma", [0.01, 5.0])
def test_two_columns_may_belong_together_in_one_class_only(sigma: float) -> None:
    rng = np.random.default_rng(3)
    label, first = rng.integers(0, 2, 20_000), rng.integers(0, 3, 20_000)
    second = np.where(label == 1, first, 2 - first)  # by itself, neither tells anything of the label
    rows = np.stack([first, second, label], axis=1)
    table = np.zeros((3, 3, 2))
    np.add.at(table, tuple(rows.T), 1)
    singles = [np.bincount(column).astype(float) for column in rows.T]
    tree = fit_tree(singles, {(0, 1, 2): table + RNG.normal(0, sigma, table.shape)}, sigma)
    assert (0, 2) in tree.parents or (1, 2) in tree.parents
    drawn = tree.draw(20_000, np.random.default_rng(4))
    made = np.zeros_like(table)
    np.add.at(made, tuple(drawn.T), 1)
    assert np.abs(made - table).sum() / 2 / len(rows) < 0.03


def test_noise_alone_makes_no_table_of_three_differ_from_its_pairs() -> None:
    exact = np.full((4, 4, 2), 100.0)
    histograms = [np.full(4, 800.0), np.full(4, 800.0), np.full(2, 1600.0)]
    found = with_label(exact + RNG.normal(0, 30, exact.shape), histograms, (0, 1), 60.0)
    assert np.abs(found - exact).max() < 1e-6
    assert found.sum() == pytest.approx(exact.sum())


def test_nothing_but_noise_makes_independent_columns() -> None:
    rows = np.stack([RNG.integers(0, size, 300) for size in (4, 4, 2, 3)], axis=1)
    singles, pairs = tables_of(rows, 200.0)
    tree = fit_tree(singles, pairs, 400.0)
    assert tree.parents == ((), (), (), ())


def test_the_nearest_table_without_negative_numbers() -> None:
    found = on_simplex(np.array([[5.0, -3.0], [4.0, 0.2]]), 6.0)
    assert found.sum() == pytest.approx(6.0)
    assert (found >= 0).all()
    assert found.tolist() == [[3.5, 0.0], [2.5, 0.0]]
    assert on_simplex(np.array([1.0, 2.0]), 0.0).tolist() == [0.0, 0.0]


def test_what_noise_may_hide_is_not_taken_to_be_empty() -> None:
    noisy = np.array([100.0, 50.0, 3.0, -4.0])
    sharp, blurred = expected(noisy, 1e-3, 150.0), expected(noisy, 20.0, 150.0)
    assert np.abs(sharp - on_simplex(noisy, 150.0)).max() < 1e-2
    assert sharp[3] == pytest.approx(0.0, abs=1e-6)
    assert blurred.sum() == pytest.approx(150.0)
    assert 5 < blurred[3] < blurred[2] < blurred[1] < blurred[0] < 100
    assert expected(np.full(4, -1e6), 1e-3, 8.0).tolist() == pytest.approx([2.0] * 4)
    assert expected(noisy, 1.0, 0.0).tolist() == [0.0] * 4


def test_a_posterior_mean_is_the_mean_of_what_may_have_been() -> None:
    rng = np.random.default_rng(8)
    truth = rng.exponential(10.0, 400_000)
    seen = truth + rng.normal(0, 10.0, len(truth))
    near = truth[np.abs(seen - 0.0) < 0.5]
    # with a mean of 10 before anything is counted, the shift is noise^2 / mean = 10
    cells = np.array([0.0, *np.full(9, 11.8)])
    assert near.mean() == pytest.approx(5.25, abs=0.2)
    found = expected(cells, 10.0, float(_posterior(cells, 10.0, 10.0).sum()))
    assert found[0] == pytest.approx(near.mean(), abs=0.2)


def _posterior(noisy: np.ndarray, noise: float, mean: float) -> np.ndarray:
    """By adding up all counts that may have been."""
    counts = np.linspace(0, 300, 30_001)
    weights = np.exp(-((noisy[:, None] - counts) ** 2) / (2 * noise**2) - counts / mean)
    return np.asarray((weights * counts).sum(axis=1) / weights.sum(axis=1))


@pytest.mark.parametrize("with_labels", [False, True])
def test_a_rare_value_whose_cells_vanish_in_noise_is_still_drawn(with_labels: bool) -> None:
    rows = 4000.0
    first, label = np.array([0.5, 0.49, 0.01]) * rows, np.array([0.5, 0.5]) * rows
    table = np.array([[2000.0, 0.0], [0.0, 1960.0], [-30.0, -25.0]])
    if with_labels:
        cubes = np.stack([table, np.zeros_like(table)], axis=1)
        tree = fit_tree([first, np.array([rows - 1, 1.0]), label], {(0, 1, 2): cubes}, 10.0)
    else:
        tree = fit_tree([first, label], {(0, 1): table}, 10.0)
    drawn = tree.draw(20_000, np.random.default_rng(5))[:, 0]
    assert (drawn == 2).mean() == pytest.approx(0.01, abs=0.004)


def test_neighbours_are_joined_to_equal_shares_and_rare_categories_to_one() -> None:
    counts = np.array([100.0, 1, 1, 1, 1, 50, 50, 1, 1, 100])
    groups = grouped(counts, 4, counts.sum(), in_order=True)
    assert (np.diff(groups) >= 0).all()
    assert groups.max() <= 3
    assert groups[0] != groups[1]  # a cell that holds enough stays alone
    rare = grouped(counts, 3, counts.sum(), in_order=False)
    assert rare[[0, 9]].tolist() == [0, 1]
    assert set(rare[1:9].tolist()) == {2}


def test_the_more_noise_the_fewer_counts_are_asked_for() -> None:
    histograms = [np.full(32, 100.0), np.full(32, 100.0), np.full(32, 100.0), np.array([1600.0, 1600.0])]
    ordered = [True, True, True, False]

    def asked(noise: float) -> tuple[int, int]:
        workload = first_look(histograms, ordered, lambda n: noise * np.sqrt(n))
        return len(workload.marginals), max(int(group.max()) + 1 for group in workload.groups)

    assert asked(0.1) == (6, 8)  # all pairs
    assert asked(25.0)[0] == 6
    assert 4 <= asked(25.0)[1] < 8
    assert asked(80.0) == (6, 4)  # all pairs still, as coarse as they may be
    assert asked(180.0)[0] == 3  # each with the label
    assert asked(1000.0) == (4, 32)  # nothing but histograms


def test_the_less_noise_the_finer_the_cells() -> None:
    histograms = [np.full(32, 100.0), np.full(32, 100.0)]

    def groups(noise: float) -> int | None:
        found = groups_for(histograms, [True, True], [(0, 1)], lambda n: noise)
        return None if found is None else int(found[0].max()) + 1

    assert groups(0.1) == 32
    assert groups(5.0) == 20
    assert groups(1e6) is None


def test_histograms_are_corrected_by_the_tables_that_they_are_in() -> None:
    truth = np.array([900.0, 100.0])
    own = [Measured((0,), truth + np.array([60.0, -60.0]), 60.0), Measured((1,), np.array([500.0, 500.0]), 60.0)]
    exact = Measured((0, 1), np.outer(truth, [0.5, 0.5]), 1.0)
    groups = [np.arange(2), np.arange(2)]
    assert np.abs(by_group(estimates(own, [exact], groups), groups)[0] - truth).max() < 5


@pytest.mark.parametrize("with_labels", [False, True])
def test_its_opinion_is_how_often_rows_drawn_alike_have_each_label(with_labels: bool) -> None:
    rng = np.random.default_rng(5)
    label, first = rng.integers(0, 3, 20_000), rng.integers(0, 3, 20_000)
    second = np.where(rng.random(20_000) < 0.7, (first + label) % 3, rng.integers(0, 3, 20_000))
    rows = np.stack([first, second, label], axis=1)
    whole = np.zeros((3, 3, 3))
    np.add.at(whole, tuple(rows.T), 1)
    singles = [np.bincount(column).astype(float) for column in rows.T]
    pairs = {(a, b): whole.sum(axis=3 - a - b) for a, b in ((0, 1), (0, 2), (1, 2))}
    tree = fit_tree(singles, {(0, 1, 2): whole} if with_labels else pairs, 0.01)
    drawn = tree.draw(60_000, np.random.default_rng(6))
    opinion = tree.opinion(drawn)
    np.testing.assert_allclose(opinion.sum(axis=1), 1)
    for cell in np.unique(drawn[:, :2], axis=0):
        alike = (drawn[:, :2] == cell).all(axis=1)
        assert np.ptp(opinion[alike], axis=0).max() == 0  # the label that was drawn with a row tells nothing
        seen = np.bincount(drawn[alike, 2], minlength=3) / alike.sum()
        np.testing.assert_allclose(opinion[alike][0], seen, atol=0.03)
    tells = np.abs(opinion - opinion.mean(axis=0)).max() > 0.3
    assert tells == with_labels  # by itself, no column tells anything of the label
