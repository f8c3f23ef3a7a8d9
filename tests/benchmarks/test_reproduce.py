"""The table of the reproduction: a study for each row, and methods compared on the same draws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import reproduce
from collegium.study.study import Study

CASES = list(reproduce._cases(list(reproduce.LEARNERS)))


@pytest.mark.parametrize("case", CASES, ids=reproduce._name)
def test_each_row_has_its_study(case) -> None:
    study = Study.from_toml(reproduce._file(case))
    assert study.partition.sites == 5
    assert case["set"] is not None or case["data"] == "breast-cancer-3" or len(study.sites) == 5


def test_all_of_tables_3_and_6_are_there() -> None:
    assert len({reproduce._name(case) for case in CASES}) == 5 * 4 + 4


def test_a_row_has_the_seeds_that_all_methods_have() -> None:
    def runs(**accuracy: float) -> dict[str, dict[str, float]]:
        return {seed[1:]: {"accuracy": value, "seconds": 2.0} for seed, value in accuracy.items()}

    found = {"fedct": runs(s0=0.5, s1=0.7), "centralized": runs(s0=0.9, s1=0.9, s2=0.1), "local": runs(s1=0.4, s0=0.4)}
    row = reproduce._row(CASES[0], found)
    assert (row["seeds"], row["seconds"]) == (2, 2.0)
    assert [row[key] for key in ("fedct", "spread", "centralized", "local")] == pytest.approx([0.6, 0.1, 0.9, 0.4])
    assert reproduce._row(CASES[0], found | {"fedct": {}})["centralized"] == 0.9
    assert "fedct" not in reproduce._row(CASES[0], {method: {} for method in reproduce.METHODS})


def test_a_table_can_be_made_of_what_is_kept(tmp_path: Path) -> None:
    for method, accuracy in {"fedct": 0.8, "centralized": 0.9, "local": 0.7}.items():
        part = {"accuracy": accuracy, "seconds": 1.0, "machine": "a machine"}
        (tmp_path / f"table3-wine-decision_tree-{method}-0.json").write_text(json.dumps(part))
    report = reproduce.report(studies="wine", learners="decision_tree,xgboost", keep=str(tmp_path), measure=0)
    assert report.machine == "a machine"
    assert "| 3 | wine | DT | 1 | 0.700 | 0.800 |  | 0.95 | 0.900 | 0.92 | 1 |" in report.markdown()
    assert "| 3 | wine | XGBoost | 0 |" in report.markdown()
    assert report.notes.endswith("Not all runs are through: wine DT, wine XGBoost.")
