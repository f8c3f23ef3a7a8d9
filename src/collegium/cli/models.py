"""``collegium models``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from collegium.cli.options import AsJson
from collegium.errors import ConfigError
from collegium.reports.tables import frame_table


def models(
    prepare: Annotated[
        str | None, typer.Option(help="Turn this model's GGUF file into a folder that can be trained.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="The folder to write (default: where models are looked up).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the language models that install from the package index, and where they are."""
    if prepare is not None:
        from collegium.learners.language.preparing import prepare as write

        found = write(prepare, to)
        typer.echo(f"{found.folder}: sha256 {found.sha256}")
        return
    rows = _rows()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    Console().print(frame_table(rows, "Models"))


def _rows() -> list[dict[str, Any]]:
    from collegium.learners.language.folders import find
    from collegium.learners.language.known import KNOWN

    rows = []
    for name, known in KNOWN.items():
        try:
            found = find(name)
            where, sha256 = str(found.folder), found.sha256
        except ConfigError:
            where, sha256 = f"not here: {known.how.replace('<name>', name)}", ""
        rows.append({"name": name, "what": known.about, "where": where, "sha256": sha256})
    return rows
