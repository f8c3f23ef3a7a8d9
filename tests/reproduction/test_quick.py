"""The quick form of every table: its first cell runs, so that no table rots. `make slow` runs all cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import collegium

from collegium.reproduction.declared import tables
from collegium.reproduction.pieces import Piece, units_of
from collegium.reproduction.units import Conditions, carry_out

FIRST = [name for name in tables() if name not in ("fedaux_mixed_nets", "fedct_figure9")]  # large nets, many sites


@pytest.mark.parametrize("name", FIRST)
def test_the_first_cell_of_each_table_runs(name: str, tmp_path: Path) -> None:
    units = list(units_of(name, tables()[name], [0]))
    first = next(unit for unit in units if unit.needs() is None)
    found = carry_out(first, Conditions(tmp_path, quick=True))
    assert found["last"] is None or found["last"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(tables()))
def test_all_cells_of_each_table_run(name: str, tmp_path: Path) -> None:
    piece = Piece({name: tables()[name]}, Conditions(tmp_path, quick=True), 1, lambda _: None)
    piece.carry_out()
    assert (piece.waiting, piece.failed) == ([], {})


def test_the_command_runs_a_table_and_writes_its_page(tmp_path: Path) -> None:
    done = collegium("reproduce", "fedct_table6", "--quick", "--out", str(tmp_path), "--page", str(tmp_path / "p.md"))
    assert done.returncode == 0, done.stderr
    assert "fedct_table6, BreastCancer: XGBoost everywhere |  | 0: 0." in done.stdout
    assert "| BreastCancer: XGBoost everywhere |  | 0.940 | 0." in (tmp_path / "p.md").read_text()
    again = collegium("reproduce", "fedct_table6", "--quick", "--out", str(tmp_path))
    assert again.stdout.startswith("4 of 4 runs are there already\n")
    assert "fedkt_table8: FedKT, Table 8" in collegium("reproduce", "fedkt", "--list").stdout
    assert collegium("reproduce", "fedct_tabel6").returncode == 2
