"""``collegium server status`` and ``end``: what whoever runs a federation's server wants to know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from collegium.cli.options import AsJson, KitFolder
from collegium.reports.tables import frame_table

if TYPE_CHECKING:
    from collegium.flare.operations.server_status import StudyStatus

LeadKit = Annotated[Path | None, typer.Option("--lead", help="A lead's kit: to ask the server for its sites.")]


def status(kit: KitFolder, lead: LeadKit = None, as_json: AsJson = False) -> None:
    """Show whether the server is running, which sites are connected, and which studies are being run here."""
    from collegium.flare.operations.server_status import server_status

    found = server_status(kit, lead)
    if as_json:
        typer.echo(json.dumps(found.to_plain()))
        return
    console = Console()
    how = "running" if found.running else f"not running (collegium server start {kit})"
    _say(console, f"{found.address}: {how}.")
    if found.running:
        _say(console, f"Connected sites: {', '.join(found.connected) or 'none'}.")
        for check in found.checks:
            if not check.ok:
                _say(console, f"{check.name}: {check.text}.")
    if found.certificate.soon:
        _say(console, f"The certificate expires on {found.certificate.until[:10]}: have it renewed.")
    for site in found.shut_out:
        _say(console, f"{site} answered from two installations: collegium server confirm {kit} {site} --lead KIT")
    if found.revoked:
        _say(console, f"Revoked: {', '.join(found.revoked)}.")
    if found.studies:
        console.print(frame_table([_row(each) for each in found.studies], "Studies"))
    else:
        console.print("No study is being run here.")
    if found.sites is not None:
        rows = [{"site": name, "last heard of": when} for name, when in found.sites.items()]
        console.print(frame_table(rows, "Sites, as the server says") if rows else "No site is connected.")


def _row(study: StudyStatus) -> dict[str, Any]:
    done = study.progress
    state = "running" if study.alive else "ended early: coordinate --resume"
    return {
        "process": study.process,
        "study": study.study,
        "since": study.since,
        "round": "-" if done is None else f"{done.round} of {done.rounds}",
        "failures": "-" if done is None else sum(done.failures.values()),
        "folder": study.folder,
        "state": state,
    }


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)


def end(kit: KitFolder, process: Annotated[int, typer.Argument(help="As `collegium server status` shows it.")]) -> None:
    """End a study that is being run here; `collegium coordinate --resume` continues it."""
    from collegium.flare.coordinator.register import end_coordinator

    ended = end_coordinator(kit, process)
    typer.echo(f"Asked process {process} to end. To continue: collegium coordinate ... --out {ended.folder} --resume")
