from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.together.tables import COLUMNS, sites

import collegium as cg
from collegium.errors import MissingExtra
from collegium.privacy import accountant
from collegium.privacy.budget import read_charges
from collegium.together.adaptive import pair_errors, worst
from collegium.together.drawing import Looked
from collegium.together.planning import Measured, Workload

HAS_MBI = importlib.util.find_spec("mbi") is not None


@pytest.mark.skipif(HAS_MBI, reason="it is installed")
@pytest.mark.parametrize("model", ["fitted", "adaptive"])
def test_without_the_package_the_error_names_the_extra(model: Any) -> None:
    with pytest.raises(MissingExtra, match=r"collegium\[together\]"):
        cg.public_together(sites(3, 20), columns=COLUMNS, model=model)


@pytest.mark.skipif(not HAS_MBI, reason="needs collegium[together]")
def test_what_a_tree_gets_wrong_is_counted_in_a_sum_of_its_own() -> None:
    made = cg.public_together(sites(), rows=500, columns=COLUMNS, model="adaptive")
    again = cg.public_together(sites(), rows=500, columns=COLUMNS, model="adaptive")
    pd.testing.assert_frame_equal(made.X, again.X)
    counted = made.run.releases[(made.run.releases["party"] == "s0") & (made.run.releases["kind"] == "MaskedCounts")]
    assert list(counted["step"])[:3] == ["together.histograms", "together.pairs", "together.edges"]
    assert list(counted["step"])[3:] in ([], ["together.edges"])
    charges = [charge for text in counted["privacy"] for charge in read_charges(text)[0]]
    assert accountant.claim(charges).epsilon <= made.claim.epsilon * (1 + 1e-9)
    assert made.claim.epsilon <= 1


@pytest.mark.skipif(not HAS_MBI, reason="needs collegium[together]")
def test_three_columns_that_belong_together_need_more_than_a_tree() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, 6000)
    second = np.where(rng.random(6000) < 0.7, first, rng.integers(0, 3, 6000))
    third = np.where(rng.random(6000) < 0.5, first, np.where(rng.random(6000) < 0.7, second, rng.integers(0, 3, 6000)))
    X = pd.DataFrame({"a": first, "b": second, "c": third})
    three = [cg.Site(f"s{i}", X.iloc[i::3], (first == 0)[i::3].astype(int)) for i in range(3)]
    columns = {name: [0, 1, 2] for name in X}

    def off(model: Any) -> float:
        made = cg.public_together(three, epsilon=20, rows=6000, columns=columns, model=model).X
        pairs = (("a", "b"), ("a", "c"), ("b", "c"))
        tables = [[pd.crosstab(rows[a], rows[b], normalize=True).to_numpy() for a, b in pairs] for rows in (X, made)]
        return float(np.abs(np.subtract(*tables)).sum(axis=(1, 2)).max() / 2)

    assert off("adaptive") < 0.5 * off("tree")


def looked(pairs: list[Measured]) -> Looked:
    """Three columns of two cells each, the label last."""
    halves = [Measured((column,), np.array([50.0, 50.0]), 1.0) for column in range(3)]
    groups = tuple(np.arange(2) for _ in range(3))
    return Looked(halves, Workload(groups, ()), pairs, [False] * 3, lambda n: 1.0, lambda groups, marginals: [])


def test_pairs_are_chosen_by_how_far_the_model_is_off_and_labels_count_twice() -> None:
    tied, free = np.array([[40.0, 10.0], [10.0, 40.0]]), np.full((2, 2), 25.0)
    seen = looked([Measured((0, 1), tied, 1.0), Measured((0, 2), tied, 1.0), Measured((1, 2), free, 1.0)])
    errors = pair_errors(seen, seen.look.groups, seen.counts, lambda pair: free)
    assert errors[0, 2] == pytest.approx(2 * errors[0, 1])
    assert errors[1, 2] < 0  # nothing but noise
    assert worst(errors, set(), 5, lambda pair: True) == [(0, 1), (0, 2)]
    assert worst(errors, set(), 1, lambda pair: True) == [(0, 2)]
    assert worst(errors, {(0, 2)}, 5, lambda pair: True) == [(0, 1)]
    assert worst(errors, set(), 5, lambda pair: False) == []


def test_a_model_in_other_groups_is_compared_by_its_cells() -> None:
    tied = np.array([[40.0, 10.0], [10.0, 40.0]])
    seen = looked([Measured((0, 1), tied, 1.0)])
    coarse = [np.zeros(2, dtype=np.int64), np.arange(2), np.arange(2)]
    errors = pair_errors(seen, coarse, seen.counts, lambda pair: np.array([[50.0, 50.0]]))
    assert errors[0, 1] == pytest.approx(60 - 4 * np.sqrt(2 / np.pi))
