"""``collegium public``: make a public set together, and compare it with a site's own rows."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from collegium.cli.options import AsJson, Changes, StudyFile
from collegium.data.files import read_frame, read_rows
from collegium.errors import ConfigError, DoubtfulResult, StorageError
from collegium.site.ledger import storage_errors
from collegium.study.study import Study
from collegium.together.opinions import about

Rows = Annotated[Path, typer.Argument(help="The made-up rows (Parquet or CSV).", metavar="PUBLIC")]
Own = Annotated[Path, typer.Argument(help="The site's own rows (Parquet or CSV).", metavar="OWN")]
Target = Annotated[str | None, typer.Option(help="The column of labels in the own rows, which is left out.")]
Page = Annotated[Path, typer.Option(help="Where to write the page.")]
File = Annotated[Path, typer.Option(help="Where to write the rows (Parquet or CSV).")]
Opinion = Annotated[
    Path | None,
    typer.Option(help="Where to write how probable a row's classes are, for data.opinion (Parquet)."),
]
Kept = Annotated[
    Path | None, typer.Option("--keep", help="A folder for the run that makes them: ledger, record, report.")
]


def make(
    file: StudyFile,
    changes: Changes = None,
    out: File = Path("public.parquet"),
    opinion: Opinion = None,
    keep: Kept = None,
    as_json: AsJson = False,
) -> None:
    """Have a study's simulated sites make a public set together, and write it to a file."""
    study = Study.from_toml(file, [*(changes or ()), 'data.public="together"'])
    study = study.model_copy(update={"data": study.data.model_copy(update={"opinion": None})})  # it is made anew, too
    if out.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{out}: rows are written to a .parquet or a .csv file.")
    if opinion is not None and (opinion.suffix != ".parquet" or study.together.model != "tree"):
        words = "what the model says is written to a .parquet file, and only the default's model says it."
        raise ConfigError(f"--opinion {opinion}: {words}")
    if opinion is not None and opinion.resolve() == out.resolve():
        raise ConfigError(f"--opinion {opinion}: this file will hold the rows; name another one.")
    for each in (out, opinion):
        if each is not None:
            with storage_errors(each, StorageError):
                each.parent.mkdir(parents=True, exist_ok=True)
    made = study.make_public(keep, base=file.parent)
    rows = made.X if isinstance(made.X, pd.DataFrame) else pd.DataFrame(np.asarray(made.X)).rename(columns=str)
    with storage_errors(out, StorageError):
        rows.to_csv(out, index=False) if out.suffix == ".csv" else rows.to_parquet(out)
    written = read_frame(out)
    if (written.isna().to_numpy() != rows.isna().to_numpy()).any():
        words = f"{out}: some categories read as missing in a CSV file (NA, None, an empty text)."
        warnings.warn(f"{words} Write the rows to a .parquet file.", DoubtfulResult, stacklevel=2)
    if opinion is not None and made.opinion is not None:
        with storage_errors(opinion, StorageError):
            about(made.opinion, written).to_parquet(opinion)  # as they read: a CSV file rounds small floats
    if as_json:
        files = {"file": str(out), "opinion": None if opinion is None else str(opinion)}
        typer.echo(json.dumps({**files, "sha256": made.digest, **(made.made or {})}))
        return
    typer.echo(f"{len(rows):,} made-up rows: {out}\nHash: {made.digest}\nEach record paid: {made.claim}")
    if opinion is not None:
        typer.echo(f"How probable each class is for them: {opinion}")
    for assumption in made.claim.assumptions if made.claim is not None else ():
        typer.echo(f"  if {assumption}")


def compare(public: Rows, own: Own, target: Target = None, out: Page = Path("made-up-rows.html")) -> None:
    """For a site's owner: a page that compares made-up rows with the site's own. It must not leave the site."""
    from collegium.reports.made import owner_page

    text = owner_page(read_rows(public), read_rows(own, () if target is None else (target,)), own.stem)
    with storage_errors(out, StorageError):
        out.write_text(text, encoding="utf-8")
        out.chmod(0o600)
    typer.echo(f"For your eyes only: {out}")
