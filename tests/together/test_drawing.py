"""What is counted again after a first look."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.together.drawing import Looked, by_tree
from collegium.together.planning import Measured, Workload


@pytest.mark.parametrize(("noise", "classes", "asked"), [(0.5, 2, (0, 1, 2)), (2.0, 12, (0, 1)), (200.0, 2, (0, 1))])
def test_pairs_are_counted_with_the_label_unless_that_makes_cells_too_coarse(
    noise: float, classes: int, asked: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    first, label = rng.integers(0, 32, 4000), rng.integers(0, classes, 4000)
    rows = np.stack([first, (first + rng.integers(0, 3, 4000)) % 32, label], axis=1)
    sizes = [32, 32, classes]
    found: list[tuple[int, ...]] = []

    def count(groups: object, marginals: object) -> list[Measured]:
        tables = []
        for columns in marginals:  # type: ignore[attr-defined]
            codes = [groups[column][rows[:, column]] for column in columns]  # type: ignore[index]
            table = np.zeros([int(groups[column].max()) + 1 for column in columns])  # type: ignore[index]
            np.add.at(table, tuple(codes), 1)
            tables.append(Measured(tuple(columns), table, 1e-3))
            found.append(tuple(columns))
        return tables

    fine, coarse = [np.arange(size) for size in sizes], [np.arange(size) // -(-size // 8) for size in sizes]
    singles = count(fine, [(0,), (1,), (2,)])
    pairs = count(coarse, [(0, 1), (0, 2), (1, 2)])
    found.clear()
    many = Looked(singles, Workload(tuple(coarse), ()), pairs, [True, True, False], lambda n: noise, count)
    drawn = by_tree(many, 500, np.random.default_rng(1))
    assert asked in found
    assert drawn.numbers.shape == (500, 3)
    assert drawn.opinion is not None
    assert drawn.opinion.shape == (500, sizes[2])
