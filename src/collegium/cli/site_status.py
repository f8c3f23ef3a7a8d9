"""``collegium site status``, ``log`` and ``budget``: what an owner wants to know of a site that runs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from collegium.cli import ledger
from collegium.cli.options import AsJson, AtDelta, By, KitFolder, Reason
from collegium.errors import ConfigError, StorageError
from collegium.flare.agreement.journal import this_user
from collegium.flare.kits.identity import AGENT
from collegium.flare.operations.site_status import site_status
from collegium.flare.site.desk import open_desk
from collegium.flare.site.file import LEDGER, SITE_FILE, SiteFile
from collegium.flare.site.open_runs import open_runs
from collegium.reports.tables import bytes_text, frame_table
from collegium.site.ledger import storage_errors

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ")
_MOST_BYTES: Final = 1 << 20


def status(kit: KitFolder, as_json: AsJson = False) -> None:
    """Show whether the site is running, what has left it, and what is waiting for a decision."""
    found = site_status(kit)
    if as_json:
        typer.echo(json.dumps(found.to_plain()))
        return
    console = Console()
    joined = "joined" if found.joined else "not joined (collegium site join)"
    agent = "not running" if found.agent is None else f"running as process {found.agent}"
    _say(console, f"{found.name}: {joined}; agent {agent}; installation {found.installation}.")
    if found.joined:
        for check in found.checks:
            if not check.ok or check.name == "connection":
                _say(console, f"{check.name}: {check.text}.")
    if found.certificate is not None and found.certificate.soon:
        _say(console, f"The certificate expires on {found.certificate.until[:10]}: have it renewed.")
    if found.paused is not None:
        why = f" ({found.paused.reason})" if found.paused.reason else ""
        _say(console, f"Paused since {found.paused.since}{why}: collegium site resume {kit}")
    if found.runs:
        shown = [{**asdict(run), "bytes": bytes_text(run.bytes)} for run in found.runs]
        console.print(frame_table(shown, "What has left this site"))
    else:
        console.print("Nothing has left this site.")
    if found.privacy.budget is not None:
        privacy = found.privacy
        spent = "unknown" if privacy.epsilon is None else f"{privacy.epsilon:.4g}"
        _say(console, f"Privacy: epsilon {spent} of {privacy.budget:g} is spent, at delta {privacy.delta:g}.")
    if found.open:
        opened = [asdict(run) for run in found.open]
        console.print(frame_table(opened, "Open runs (to end one for good: collegium site end KIT RUN)"))
    for row in found.refusals:
        _say(console, f"refused at {row.time}: {row.step!r} ({row.code})")
    for digest in found.plans:
        _say(console, f"Plan {digest} is waiting: collegium site approve {kit} {digest[:12]}")
    for order in found.orders:
        _say(console, f"Order {order} is waiting: collegium site approve {kit} --order {order}")
    for each in found.signed:
        _say(console, f"Plan {each.plan[:12]} is signed: {each.left} of {each.runs} runs left, until {each.until}.")
    for digest in found.denied:
        _say(console, f"Plan {digest[:12]} is denied.")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)


def end(
    kit: KitFolder,
    run: Annotated[str, typer.Argument(help="As `collegium site status` shows it, or its first digits.")],
    reason: Reason = "",
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End a run at this site for good: no order of it is answered any more. The ledger keeps what has left."""
    desk = open_desk(kit)
    found = [each for each in open_runs(kit) if each.run.startswith(run.lower())]
    if len(found) != 1 or not run:
        what = "more than one open run" if len(found) > 1 else "no open run"
        raise ConfigError(f"{run}: {what} starts with it; `collegium site status {kit}` lists those that are open.")
    if not yes and not typer.confirm(f"End run {found[0].run} ({found[0].study!r}) for good?", default=False):
        typer.echo("Nothing was ended.", err=True)
        raise typer.Exit(1)
    desk.end_run(found[0].run, reason=reason, by=this_user() if by is None else by)
    typer.echo(f"Run {found[0].run} has ended here.")


def log(
    kit: KitFolder,
    lines: Annotated[int, typer.Option(min=1, help="How many of the last lines.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print each entry as a JSON object on a line.")] = False,
) -> None:
    """Show the site's own log: why something was refused or failed."""
    folder = kit / AGENT
    if not folder.is_dir():
        raise ConfigError(f"{folder} not found: run `collegium site init {kit}` first.")
    entries = [entry for file in (folder / "site.log", *folder.glob("runs/*/site.log")) for entry in _entries(file)]
    entries.sort(key=lambda entry: entry[0])
    if as_json:
        for first, *rest in entries[-lines:]:
            when, _, words = first.partition(" ")
            typer.echo(json.dumps({"time": when, "message": "\n".join([words, *rest])}))
        return
    text = [line for entry in entries for line in entry]
    typer.echo("\n".join(text[-lines:]) if text else "The log is empty.")


def budget(kit: KitFolder, delta: AtDelta = None, as_json: AsJson = False) -> None:
    """Show how much privacy the site has spent, and what is left of its budget."""
    SiteFile.from_toml(kit / SITE_FILE)
    if (kit / LEDGER).is_file():
        ledger.budget(kit / LEDGER, delta, as_json)
        return
    typer.echo("[]" if as_json else "Nothing has left this site: there is no ledger yet.")


def _entries(file: Path) -> list[list[str]]:
    """A log's entries, each a line with a time and what belongs to it."""
    if not file.is_file():
        return []
    with storage_errors(file, StorageError), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _MOST_BYTES))
        text = stream.read().decode("utf-8", "replace")
    entries: list[list[str]] = []
    for line in text.splitlines():
        if _STAMP.match(line):
            entries.append([line])
        elif entries:  # what stands before the first time was cut off
            entries[-1].append(line)
    return entries
