"""``collegium run`` of a study with several algorithms or seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collegium.cli.studies import end_with, noted, outcome, verdict_table
from collegium.reports.grids import SAME, differs, judge_grid
from collegium.reports.tables import bytes_text
from collegium.study.grid import PAGE, Grid, run_grid
from collegium.study.study import Study

_MOST_ROWS: Final = 40
"""Sites of all algorithms together that a terminal shows."""


def run_study_grid(study: Study, folder: Path, base: Path, *, force: bool, as_json: bool) -> None:
    """Run what is missing, and show how the algorithms compare."""
    console = Console(stderr=as_json)
    try:
        with noted(console):
            grid = run_grid(study, folder, base=base, overwrite=force, say=lambda text: typer.echo(text, err=True))
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on with the runs that are missing", err=True)
        raise
    show(grid, console)
    console.print(f"Comparison: {folder / PAGE}\nRuns:       {folder}", markup=False)
    if as_json:
        typer.echo(json.dumps(comparison(grid, folder)))
    for by_seed in grid.runs.values():
        for run in by_seed.values():
            end_with(run)


def show(grid: Grid, console: Console) -> None:
    """The table of all algorithms, and what they did for each site."""
    console.print(summary_table(grid.summary(), grid.name))
    judged = judge_grid(grid.runs)
    if sum(len(own) for own in judged.values()) <= _MOST_ROWS:
        for label, own in judged.items():
            console.print(verdict_table(own, label) if differs(own) else f"{escape(label)}: {SAME}")
    for label, own in judged.items():
        if lost := [str(site) for site in own.loc[own["high"] < 0, "site"]]:
            console.print(
                f"{label}: {', '.join(lost)} would have been better off alone.", style="bold red", markup=False
            )


def summary_table(numbers: pd.DataFrame, study: str) -> Table:
    """One row per algorithm, as much of it as 80 columns show."""
    table = Table(title=escape(study))
    for name in ("algorithm", "runs", "accuracy", "95% interval", "to alone", "lost", "sent"):
        table.add_column(name, justify="left" if name == "algorithm" else "right")
    for label, row in numbers.iterrows():
        interval = "-" if np.isnan(row["accuracy_low"]) else f"{row['accuracy_low']:.3f} {row['accuracy_high']:.3f}"
        lost = "-" if np.isnan(row["lost"]) else f"{row['lost']:.0f}/{row['sites']:.0f}"
        means = [_text(row["accuracy"], ".3f"), interval, _text(row["difference"], "+.3f"), lost]
        sent = bytes_text(round(row["bytes_up_per_site"]))
        table.add_row(escape(str(label)), f"{row['runs']:.0f}", *means, sent)
    return table


def _text(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def comparison(grid: Grid, folder: Path) -> dict[str, Any]:
    """What a program wants to know of a grid."""
    numbers = json.loads(grid.summary().to_json(orient="index"))  # NaN becomes null
    judged = {label: own.to_dict("records") for label, own in judge_grid(grid.runs).items()}
    runs = {
        label: {str(seed): outcome(run, folder / label / f"seed-{seed}") for seed, run in by_seed.items()}
        for label, by_seed in grid.runs.items()
    }
    return {"comparison": str(folder / PAGE), "algorithms": numbers, "verdict": judged, "runs": runs}
