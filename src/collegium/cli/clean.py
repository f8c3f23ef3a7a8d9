"""``collegium site clean`` and ``collegium server clean``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from collegium.cli.options import AsJson, KitFolder
from collegium.reports.tables import bytes_text, frame_table

if TYPE_CHECKING:
    from collegium.flare.supervise.cleaning import Leftover

Days = Annotated[float, typer.Option(min=0, help="Keep what was changed within so many days.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete without asking.")]


def site_clean(kit: KitFolder, days: Days = 90, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete old runs with their models and reports, sessions, plans and public sets. The ledger always stays.

    A run that sleeps is not over: end it first.
    """
    from collegium.flare.site.open_runs import open_runs
    from collegium.flare.supervise.cleaning import site_leftovers

    going_on = [each.run for each in open_runs(kit) if each.state != "ending"]
    _clean(site_leftovers(kit, days, going_on), yes=yes, as_json=as_json)


def server_clean(kit: KitFolder, days: Days = 90, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete old sessions and logs of a server. Run folders of `collegium coordinate` are not touched."""
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.supervise.cleaning import server_leftovers

    _clean(server_leftovers(read_kit(kit, "server").folder, days), yes=yes, as_json=as_json)


def _clean(found: list[Leftover], *, yes: bool, as_json: bool) -> None:
    from collegium.flare.supervise.cleaning import remove

    size, items = sum(each.bytes for each in found), "1 item" if len(found) == 1 else f"{len(found)} items"
    if not as_json:
        rows = [{"what": each.what, "path": str(each.path), "size": bytes_text(each.bytes), "days": round(each.days)}
                for each in found]  # fmt: skip
        Console().print(frame_table(rows, "Old") if rows else "Nothing is old enough to delete.")
    if found and not yes and not typer.confirm(f"Delete {items} ({bytes_text(size)})?", default=False):
        typer.echo("Nothing was deleted.", err=True)
        raise typer.Exit(1)
    remove(found)
    if as_json:
        typer.echo(json.dumps({"deleted": [str(each.path) for each in found], "bytes": size}))
    elif found:
        typer.echo(f"Deleted {items}, {bytes_text(size)}.")
