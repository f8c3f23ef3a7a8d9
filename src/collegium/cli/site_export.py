"""``collegium site export`` and ``verify-export``: the site's records in one signed file, and whether it is intact."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from collegium.cli.options import AsJson, KitFolder
from collegium.errors import ConfigError
from collegium.flare.kits.identity import write_private
from collegium.flare.site.desk import open_desk
from collegium.flare.site.export import SUFFIXES, verify_export
from collegium.flare.site.export import export as make_export


def export(
    kit: KitFolder,
    out: Annotated[Path, typer.Option(help="The file: its name ends in .html, .json or .zip (CSV tables).")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the site's decisions, releases, refusals and budget to one file, signed by the site; it has no data."""
    forms = {suffix: form for form, suffix in SUFFIXES.items()}
    if out.suffix.lower() not in forms:
        raise ConfigError(f"--out: {out} must end in .html, .json or .zip (CSV tables).")
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists: choose another file, or use --force.")
    write_private(out, make_export(open_desk(kit), forms[out.suffix.lower()]))
    typer.echo(f"Wrote {out}, signed. Whoever gets it can check it: collegium site verify-export {out}")


def verify(
    file: Annotated[Path, typer.Argument(help="An export.", metavar="FILE")],
    identity: Annotated[
        str | None, typer.Option(help="The site's identity, as its owner told you by telephone or letter.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that an export is as the site signed it; exit code 1 if a byte was changed."""
    signed = verify_export(file, identity)
    if as_json:
        typer.echo(json.dumps(asdict(signed)))
        return
    typer.echo(f"{file} is as {signed.site} signed it.")
    if identity is None:
        typer.echo(
            f"Anybody can sign in that name: compare the identity {signed.identity} with the one that the site's owner "
            "told you, or give that with --identity."
        )
