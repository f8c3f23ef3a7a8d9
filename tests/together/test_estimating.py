from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from collegium.together.drawing import Looked, by_fitted_tree, by_tree
from collegium.together.planning import Measured, Workload

HAS_MBI = importlib.util.find_spec("mbi") is not None


@pytest.mark.skipif(not HAS_MBI, reason="needs collegium[together]")
def test_a_tree_that_mbi_fits_is_the_tree_in_closed_form_where_there_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, 9000)
    second = np.where(rng.random(9000) < 0.6, first, rng.integers(0, 3, 9000))
    label = np.where(rng.random(9000) < 0.8, second == 0, rng.random(9000) < 0.5).astype(int)
    rows, groups = np.stack([first, second, label], axis=1), (np.arange(3), np.arange(3), np.arange(2))

    def counted(_: object, marginals: object) -> list[Measured]:
        tables = []
        for columns in marginals:  # type: ignore[attr-defined]
            counts, _ = np.histogramdd(rows[:, columns], [np.arange(len(groups[c]) + 1) - 0.5 for c in columns])
            tables.append(Measured(tuple(columns), counts, 1e-3))
        return tables

    pairs = ((0, 1), (0, 2), (1, 2))
    looked = Looked(
        counted(None, [(0,), (1,), (2,)]), Workload(groups, pairs), counted(None, pairs), [False] * 3,
        lambda n: 1e-3, counted,
    )  # fmt: skip
    found = []
    for model in (by_tree, by_fitted_tree):
        drawn, opinion = model(looked, 40_000, np.random.default_rng(1))
        assert np.array_equal(drawn, model(looked, 40_000, np.random.default_rng(1)).numbers)
        assert (opinion is None) is (model is by_fitted_tree)
        found.append(np.histogramdd(drawn, [np.arange(len(group) + 1) - 0.5 for group in groups])[0] / len(drawn))
    assert np.abs(found[0] - found[1]).sum() < 0.03
    real = np.histogramdd(rows, [np.arange(len(group) + 1) - 0.5 for group in groups])[0] / len(rows)
    assert np.abs(found[1] - real).sum() < 0.03
