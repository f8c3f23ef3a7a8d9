"""Drawn rows, weighed by pairs that their tree does not know."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from collegium.together import weighing
from collegium.together.planning import Measured
from collegium.together.weighing import drawn_for, evenly, weights_of

ROWS = 20_000


def ring(n: int, seed: int) -> np.ndarray:
    """Four columns, each of which follows the one before; the first and the last belong together, too."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 3, n)]
    for _ in range(3):
        columns.append(np.where(rng.random(n) < 0.6, columns[-1], rng.integers(0, 3, n)))
    columns[3] = np.where(rng.random(n) < 0.5, columns[0], columns[3])
    return np.stack(columns, axis=1)


def pairs_of(rows: np.ndarray, noise: float, seed: int = 0) -> list[Measured]:
    rng, found = np.random.default_rng(seed), []
    for pair in itertools.combinations(range(4), 2):
        table = np.zeros((3, 3))
        np.add.at(table, tuple(rows[:, list(pair)].T), ROWS / len(rows))
        found.append(Measured(pair, table + rng.normal(0, noise, table.shape), max(noise, 1.0)))
    return found


def off(rows: np.ndarray, pairs: list[Measured]) -> float:
    """The share of rows that is elsewhere than in the counted tables, in the worst pair."""
    own = pairs_of(rows, 0.0)
    return max(float(np.abs(a.counts - b.counts).sum()) / 2 / ROWS for a, b in zip(own, pairs, strict=True))


GROUPS = [np.arange(3)] * 4


def test_kept_rows_have_all_pairs_that_were_counted() -> None:
    real, apart = ring(ROWS, 0), np.random.default_rng(1).integers(0, 3, (50_000, 4))
    pairs = pairs_of(real, 0.0)
    weights = weights_of(apart, GROUPS, pairs, ROWS)
    kept = apart[evenly(weights, 5000, np.random.default_rng(2))]
    assert off(apart, pairs) > 0.2
    assert off(kept, pairs) < 0.03


def test_where_noise_is_all_there_is_to_see_rows_stay_alike() -> None:
    apart = np.random.default_rng(1).integers(0, 3, (5000, 4))
    weights = weights_of(apart, GROUPS, pairs_of(ring(ROWS, 0), 1e6), ROWS)
    assert weights.max() / weights.min() < 1.1


def test_noise_moves_rows_less_than_counts_do() -> None:
    apart = np.random.default_rng(1).integers(0, 3, (50_000, 4))
    exact = pairs_of(apart, 0.0)
    kept = apart[evenly(weights_of(apart, GROUPS, pairs_of(apart, 300.0), ROWS), 20_000, np.random.default_rng(2))]
    assert off(kept, exact) < off(apart, pairs_of(apart, 300.0))


def test_cells_are_weighed_by_their_groups_and_columns_alone_do_not_count() -> None:
    real = ring(ROWS, 0)
    twice = np.random.default_rng(1).integers(0, 6, (5000, 4))
    weights = weights_of(twice, [np.arange(6) // 2] * 4, pairs_of(real, 0.0), ROWS)
    assert weights == pytest.approx(weights_of(twice // 2, GROUPS, pairs_of(real, 0.0), ROWS))
    single = [Measured((0,), np.array([1.0, 2.0, 3.0]), 1.0)]
    assert set(weights_of(twice // 2, GROUPS, single, ROWS)) == {1.0}


def test_effects_found_with_some_rows_are_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = np.random.default_rng(1).integers(0, 3, (50_000, 4))
    pairs = pairs_of(ring(ROWS, 0), 0.0)
    monkeypatch.setattr(weighing, "_MOST_ENTRIES", 6 * 20_000)
    kept = apart[evenly(weights_of(apart, GROUPS, pairs, ROWS), 5000, np.random.default_rng(2))]
    assert off(kept, pairs) < 0.04


def test_a_row_is_kept_as_often_as_it_weighs() -> None:
    kept = evenly(np.array([1.0, 0.0, 2.5, 0.5]), 8, np.random.default_rng(0))
    times = np.bincount(kept, minlength=4)
    assert times.tolist() in ([2, 0, 5, 1], [2, 0, 6, 0])
    assert times.sum() == 8


@pytest.mark.parametrize(("kept", "drawn"), [(1, 10), (8000, 80_000), (50_000, 200_000), (10**6, 2 * 10**6)])
def test_large_sets_are_not_drawn_ten_times(kept: int, drawn: int) -> None:
    assert drawn_for(kept) == drawn
