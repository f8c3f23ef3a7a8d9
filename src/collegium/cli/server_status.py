"""``collegium server status`` and ``end``: what whoever runs a federation's server wants to know."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from collegium.cli.options import AsJson, KitFolder
from collegium.cli.site_status import is_held
from collegium.reports.tables import frame_table

LeadKit = Annotated[Path | None, typer.Option("--lead", help="A lead's kit: to ask the server for its sites.")]


def status(kit: KitFolder, lead: LeadKit = None, as_json: AsJson = False) -> None:
    """Show whether the server is running, which studies are being run here, and with --lead the connected sites."""
    from collegium.flare.coordinator.register import coordinators
    from collegium.flare.kits.kit import read_kit

    server = read_kit(kit, "server")
    running = is_held(server.folder / "server.lock")
    studies = [asdict(each) | {"alive": each.alive} for each in coordinators(server.folder)]
    facts: dict[str, Any] = {"address": server.address, "running": running, "studies": studies}
    if lead is not None:
        facts["sites"] = _sites(lead)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    console = Console()
    how = "running" if running else f"not running (collegium server start {kit})"
    console.print(f"{server.address}: {how}.", markup=False)
    if studies:
        rows = [
            {"process": each["process"], "study": each["study"], "since": each["since"], "folder": each["folder"],
             "state": "running" if each["alive"] else "ended early: coordinate --resume"}
            for each in studies
        ]  # fmt: skip
        console.print(frame_table(rows, "Studies"))
    else:
        console.print("No study is being run here.")
    if lead is not None:
        rows = [{"site": name, "last heard of": when} for name, when in facts["sites"].items()]
        console.print(frame_table(rows, "Connected sites") if rows else "No site is connected.")


def end(kit: KitFolder, process: Annotated[int, typer.Argument(help="As `collegium server status` shows it.")]) -> None:
    """End a study that is being run here; `collegium coordinate --resume` continues it."""
    from collegium.flare.coordinator.register import end_coordinator

    ended = end_coordinator(kit, process)
    typer.echo(f"Asked process {process} to end. To continue: collegium coordinate ... --out {ended.folder} --resume")


def _sites(lead: Path) -> dict[str, str | None]:
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.nvflare.admin import connection, registered_sites

    with connection(read_kit(lead, "lead")) as opened:
        seen = registered_sites(opened)
    found: dict[str, str | None] = {}
    for name, when in sorted(seen.items()):
        found[name] = None
        with suppress(ValueError, OverflowError, OSError):
            found[name] = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return found
