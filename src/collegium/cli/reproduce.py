"""``collegium reproduce``: the tables of the papers, by one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from collegium.cli.options import Device


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables, or papers (default: all).", metavar="[TABLE]...")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small made-up data: shows that every table runs.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds (default: each table's, mostly 3).")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long; the same command goes on from there.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only the cells whose row, column or seed holds these words.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="How many runs work at a time.")] = 1,
    device: Device = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of the data sets (default: what COLLEGIUM_DATA names).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results (default: runs/reproduction).")] = None,
    page: Annotated[
        Path | None, typer.Option(help="The page that is written (default: reproduction.md among the results).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the tables, and run nothing.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="List what is left, in its order, with the minutes it takes; run nothing.")
    ] = False,
    others: Annotated[
        Path | None, typer.Option("--from", help="First add what another machine found: its folder of results.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Run what is missing, or only write the page.")
    ] = True,
) -> None:
    """Run the tables of the papers and put what comes out beside what they print. It goes on where it was stopped."""
    from collegium.reproduction import declared, pieces
    from collegium.reproduction.page import write
    from collegium.reproduction.plan import described
    from collegium.reproduction.units import Conditions

    tables = declared.named(names or [])
    if listed:
        for name, table in tables.items():
            runs = f"{table.runs(seeds)} runs, {table.device}"
            typer.echo(f"{name}: {table.paper}, {table.number}, {table.title} ({runs})")
        return
    folder = pieces.out_folder(out, quick=quick)
    if others is not None:
        pieces.take(others, folder, typer.echo)
    deadline = None if minutes is None else time.time() + 60 * minutes
    conditions = Conditions(folder, quick, device, data, deadline)
    left: list[object] = []
    if plan or measure:
        piece = pieces.Piece(tables, conditions, 1 if quick and seeds is None else seeds, typer.echo, only)
    if plan:
        typer.echo("\n".join(described(piece.waiting, piece.estimates.of, minutes)))
        return
    if measure:
        piece.carry_out(jobs)
        left = [*piece.waiting, *piece.failed]
    file = page or folder / "reproduction.md"
    write(file, tables if quick else declared.tables(), folder)
    typer.echo(f"Page:    {file}\nResults: {folder}")
    if left:
        typer.echo(f"{len(left)} runs are left: the same command goes on with them.")
        raise typer.Exit(1 if measure and piece.failed else 0)
