"""The quick form of every table: its first cell runs, so that no table rots. `make slow` runs all cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import collegium

from collegium.reproduction.declared import tables
from collegium.reproduction.pieces import Piece
from collegium.reproduction.units import Conditions

LARGE = ("fedaux_mixed_nets", "fedct_figure9")
"""Large nets, and many sites."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick")


def run(name: str, out: Path, only: str = "") -> Piece:
    piece = Piece({name: tables()[name]}, Conditions(out, quick=True), 1, lambda _: None, only)
    piece.carry_out()
    return piece


def group(name: str) -> Any:
    """Tables share what they pre-train; those of texts, packages that take long to import."""
    has_texts = tables()[name].study["sites"][0]["learner"]["name"] == "text"
    return pytest.param(name, marks=pytest.mark.xdist_group("language models" if has_texts else "reproduction"))


@pytest.mark.parametrize("name", [group(name) for name in tables() if name not in LARGE])
def test_the_first_cell_of_each_table_runs(name: str, shared: Path) -> None:
    row, column = tables()[name].cells()[0]
    piece = run(name, shared, f"{row.name} | {column.name} | 0")
    assert (piece.waiting, piece.failed) == ([], {})
    assert (shared / f"{name}.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(map(group, tables())))
def test_all_cells_of_each_table_run(name: str, shared: Path) -> None:
    piece = run(name, shared)
    assert (piece.waiting, piece.failed) == ([], {})


@pytest.mark.xdist_group("reproduction")
def test_the_command_runs_a_table_and_writes_its_page(tmp_path: Path) -> None:
    done = collegium("reproduce", "fedct_table6", "--quick", "--out", str(tmp_path), "--page", str(tmp_path / "p.md"))
    assert done.returncode == 0, done.stderr
    assert "fedct_table6, BreastCancer: XGBoost everywhere |  | 0: " in done.stdout
    assert "| BreastCancer: XGBoost everywhere |  | 0.940 | " in (tmp_path / "p.md").read_text()
    again = collegium("reproduce", "fedct_table6", "--quick", "--out", str(tmp_path))
    assert again.stdout.startswith("4 of 4 runs are there already\n")
    assert "fedkt_table8: FedKT, Table 8" in collegium("reproduce", "fedkt", "--list").stdout
    assert collegium("reproduce", "fedct_tabel6").returncode == 2
