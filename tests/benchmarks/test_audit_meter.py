"""RMIA beside another one's: the other is loaded from a path, and both are given the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import audit_meter

ROWS = 400


def drawn(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Models that are surer of rows that they were fitted on, and 200 rows that are nobody's."""
    rng = np.random.default_rng(1)
    halves = rng.permuted(np.tile(np.arange(ROWS) % 2 == 0, (pairs + 1, 1)), axis=1)
    coins = np.stack([half for one in halves for half in (one, ~one)])
    inside = np.hstack([coins, np.zeros((len(coins), 200), dtype=bool)])
    sure = rng.normal(size=ROWS + 200) + rng.normal(size=inside.shape) / 2 + inside
    return 1 / (1 + np.exp(-sure)), coins


def test_without_the_other_one_the_table_is_ours_alone() -> None:
    row = audit_meter._compared(None, *drawn(2), references=2)
    assert row.keys() == {"pairs", "auc", "tpr"}
    assert row["auc"] > 0.65


def test_the_other_one_gets_the_same_signals_by_column() -> None:
    signals, coins = drawn(1)
    asked: list[tuple[Any, ...]] = []

    def run_rmia(target: int, known: Any, population: Any, inside: Any, references: int, a: float) -> Any:
        asked.append((known.shape, population.shape, inside.shape, references))
        return known[:, target]

    other = SimpleNamespace(run_rmia=run_rmia, tune_offline_a=lambda *known: (0.5, None, None))
    row = audit_meter._compared(other, signals, coins, references=1)  # type: ignore[arg-type]
    assert set(asked) == {((ROWS, 4), (200, 4), (ROWS, 4), 1)}
    assert row["apart"] == pytest.approx(100 * (row["auc"] - row["their_auc"]))


def test_a_path_without_it_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no attacks\.py"):
        audit_meter._load(tmp_path)
