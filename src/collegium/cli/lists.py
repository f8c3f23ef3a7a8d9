"""``collegium list`` and ``collegium schema``."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from collegium import registry
from collegium.cli.options import AsJson
from collegium.core.building import settings_of
from collegium.errors import ConfigError, MissingExtra
from collegium.reports.tables import frame_table


class Listed(StrEnum):
    """What `list` can list."""

    algorithms = "algorithms"
    learners = "learners"
    transformers = "transformers"
    consensus = "consensus"
    mechanisms = "mechanisms"
    partitions = "partitions"
    data = "data"


def list_names(
    what: Annotated[Listed | None, typer.Argument(help="What to list (default: everything).")] = None,
    as_json: AsJson = False,
) -> None:
    """List what a study can name."""
    tables = {each.value: _rows(each) for each in ([what] if what else Listed)}
    if as_json:
        typer.echo(json.dumps(tables[what] if what else tables))
        return
    for name, rows in tables.items():
        Console().print(frame_table(rows, name.capitalize()))


def _rows(what: Listed) -> list[dict[str, Any]]:
    kind = what.removesuffix("s") if what != Listed.consensus else what
    return _data_rows() if what == Listed.data else [_row(kind, name) for name in registry.names(kind)]


def schema(
    of_audits: Annotated[bool, typer.Option("--audit", help="Of the JSON of `collegium audit` instead.")] = False,
    of_sites: Annotated[bool, typer.Option("--site-status", help="Of `collegium site status --json`.")] = False,
    of_servers: Annotated[bool, typer.Option("--server-status", help="Of `collegium server status --json`.")] = False,
) -> None:
    """Print the JSON Schema of study files, or of what a command prints as JSON."""
    if of_audits + of_sites + of_servers > 1:
        raise ConfigError("--audit, --site-status and --server-status are three schemas: ask for one.")
    if of_sites:
        from collegium.flare.operations.site_status import schema as made
    elif of_servers:
        from collegium.flare.operations.server_status import schema as made
    elif of_audits:
        from collegium.auditing.result import schema as made
    else:
        from collegium.study.schema import json_schema as made
    typer.echo(json.dumps(made(), indent=1))


def _row(kind: str, name: str) -> dict[str, Any]:
    try:
        cls = registry.lookup(kind, name)
    except MissingExtra as missing:
        return {"name": name, "what": f"not installed: pip install 'collegium[{missing.extra}]'", "settings": ""}
    summary = (inspect.getdoc(cls) or "").strip().splitlines()
    return {"name": name, "what": summary[0] if summary else cls.__name__, "settings": ", ".join(settings_of(cls))}


def _data_rows() -> list[dict[str, Any]]:
    from collegium.data.sources import list_sources

    return [row._asdict() for row in list_sources()]
