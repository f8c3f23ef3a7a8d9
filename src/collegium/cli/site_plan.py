"""``collegium site export-plan``: a plan as a site has it, for an ethics board."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from collegium.cli.options import KitFolder
from collegium.cli.site_approve import whole_digest
from collegium.errors import ConfigError, StorageError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.exported import export_plan
from collegium.flare.kits.identity import AGENT, read_keys
from collegium.flare.site.file import SITE_FILE, SiteFile
from collegium.runs.run_files import write_file
from collegium.site.ledger import storage_errors


def export(
    kit: KitFolder,
    digest: Annotated[str, typer.Argument(help="A plan's hash, or its first digits.", metavar="PLAN")],
    out: Annotated[Path | None, typer.Option(help="The file: .md, .html or .json (default: plan-PLAN.md).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a plan for an ethics board: what would leave, what it costs, what the site allows, whether it is signed."""
    name = SiteFile.from_toml(kit / SITE_FILE).name
    approvals = Approvals(kit / AGENT, read_keys(kit / AGENT, name))
    whole = whole_digest(digest, [plan.digest for plan in approvals.plans()])
    file = out or Path(f"plan-{whole[:12]}.md")
    kind = file.suffix.lower()
    if kind not in (".md", ".html", ".json"):
        raise ConfigError(f"--out: {file} must end in .md, .html or .json.")
    if file.exists() and not force:
        raise ConfigError(
            f"{file} already exists, and may have been filled in: choose another file with --out, or use --force."
        )
    found = export_plan(kit, whole)
    text = json.dumps(found.to_plain(), indent=1) if kind == ".json" else found.render(html=kind == ".html")
    with storage_errors(file, StorageError):
        write_file(file, lambda stream: stream.write(text.encode()))
    typer.echo(f"Plan {whole[:12]} ({found.state}): {file}")
