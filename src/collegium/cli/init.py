"""``collegium init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from collegium.cli.studies import print_findings
from collegium.errors import ConfigError
from collegium.study.study import Study


def init(
    folder: Annotated[Path, typer.Argument(help="A folder with a table (CSV or Parquet) per site.")] = Path(),
    target: Annotated[str | None, typer.Option(help="The column with the labels (default: found out).")] = None,
    out: Annotated[Path | None, typer.Option(help="The study file (default: study.toml in the folder).")] = None,
) -> None:
    """Write a study from the files of a folder: which are sites, public rows and test rows, and what is predicted.

    Then its data is looked at, as by `collegium check`. Nothing is overwritten.
    """
    from collegium.study.drafting import draft_study

    file = out or folder / "study.toml"
    if file.exists():
        raise ConfigError(f"{file} already exists: remove it first, or choose another file with --out.")
    if file.parent.resolve() != folder.resolve():
        raise ConfigError(f"--out: a study finds its data beside itself; choose a file in {folder}.")
    made = draft_study(folder, target)
    file.write_text(made.text, encoding="utf-8")
    for what, found in {
        "sites": ", ".join(made.sites),
        "target": made.target,
        "public": made.public or "no file: a share of every site's rows",
        "test": made.test or "no file: a share of every site's rows",
        "study": str(file),
    }.items():
        typer.echo(f"{what + ':':<8} {found}")
    study = Study.from_toml(file)
    print_findings(study, file.parent, Console())
    typer.echo(f"Next: look through {file}, then\n  collegium rehearse {file}\n  collegium run {file}")
