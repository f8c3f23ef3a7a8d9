"""``collegium server health`` and ``site health``: for probes of containers and services."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from collegium.cli.options import AsJson, KitFolder
from collegium.errors import ConfigError

Live = Annotated[bool, typer.Option("--live", help="Ask only whether its processes run.")]


def server_health(kit: KitFolder, live: Live = False, as_json: AsJson = False) -> None:
    """Say whether a server is well; exit code 1 if it is not."""
    _health(kit, "server", live=live, as_json=as_json)


def site_health(kit: KitFolder, live: Live = False, as_json: AsJson = False) -> None:
    """Say whether a site is well: its processes, its connection, its disk, its certificate; exit code 1 if not."""
    _health(kit, "site", live=live, as_json=as_json)


def _health(kit: Path, kind: Literal["server", "site"], *, live: bool, as_json: bool) -> None:
    # Asked several times a minute: no certificate is checked here, and nothing large is loaded.
    from collegium.flare.kits.kit import kind_of
    from collegium.flare.operations.health import health, is_well

    if kind_of(kit) != kind:
        raise ConfigError(f"{kit} is not a kit for a {kind}: give the folder that you received from the coordinator.")
    checks = tuple(check for check in health(kit) if check.alive or not live)
    well = is_well(checks)
    if as_json:
        typer.echo(json.dumps({"format": 1, "well": well, "checks": [asdict(check) for check in checks]}))
    else:
        for check in checks:
            typer.echo(f"{'ok ' if check.ok else 'bad'} {check.name}: {check.text}")
    if not well:
        raise typer.Exit(1)
