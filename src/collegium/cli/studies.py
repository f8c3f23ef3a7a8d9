"""``collegium run``, ``rehearse``, ``report`` and ``compare``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collegium.cli.options import AsJson, Changes, CohortMode, Device, Force, NetPrecision, Resume, RunFolder, StudyFile
from collegium.cli.privacy import claim_text, print_privacy, privacy_records
from collegium.errors import Advice, CollegiumWarning, ConfigError
from collegium.reports.tables import bytes_text, frame_table
from collegium.runs.folder import remove_earlier_run
from collegium.runs.results import Run, load
from collegium.study.study import Study

INCOMPLETE: Final = 4
"""The exit code of a study that has results, but that some sites did not answer to the end."""

FOUND: Final = 5
"""The exit code of a check that found something."""


def run(
    file: StudyFile,
    changes: Changes = None,
    out: RunFolder = None,
    resume: Resume = False,
    force: Force = False,
    cohort: CohortMode = None,
    device: Device = None,
    precision: NetPrecision = None,
    as_json: AsJson = False,
) -> None:
    """Run a study: train, show a summary, keep everything in a folder, write the report."""
    engine = {"cohort": cohort, "device": device, "precision": precision}
    given = [f"engine.{name}={value}" for name, value in engine.items() if value is not None]
    study = Study.from_toml(file, [*(changes or ()), *given])
    folder = folder_for(study, out, resume=resume, force=force)
    try:
        done = carry_out(study, folder, lambda: study.run(folder, base=file.parent, resume=resume), as_json=as_json)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; to continue, add to the command: --out {folder} --resume", err=True)
        raise
    end_with(done)


def folder_for(study: Study, out: Path | None, *, resume: bool, force: bool) -> Path:
    """Where a study's run goes; with `force`, an earlier run there is removed."""
    folder = out or _free_folder(study.name, resume=resume or force)
    if force and not resume:
        remove_earlier_run(folder)
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty. Continue the run in it with --resume, replace it with --force, or choose another "
            "folder with --out."
        )
    return folder


def end_with(run: Run) -> None:
    """Exit as the run's outcome asks for."""
    if run.incomplete:
        raise typer.Exit(INCOMPLETE)


def carry_out(study: Study, folder: Path, make: Callable[[], Run], *, as_json: bool) -> Run:
    """Run a study, and show what came out."""
    console = Console(stderr=as_json)
    with warnings.catch_warnings(record=True) as caught:
        for category in (CollegiumWarning, Advice):
            warnings.simplefilter("always", category)
        result = make()
    for warning in caught:
        if issubclass(warning.category, CollegiumWarning | Advice):
            console.print(f"Note: {warning.message}", markup=False)
    console.print(summary_table(result, study.name))
    if result.known_verdict is not None:
        console.print(verdict_table(result.known_verdict))
    for concern in result.concerns:
        console.print(concern, style="bold red", markup=False)
    print_privacy(result, console)
    if result.trained_together:
        console.print(result.trained_together, markup=False)
    if result.incomplete:
        sites = f"{len(result.incomplete)} of {len(result.about['parties'])} sites"
        console.print(f"Incomplete: {sites} did not answer all they were asked.", markup=False)
    console.print(f"Report: {folder / 'report.html'}\nRun:    {folder}", markup=False)
    if as_json:
        typer.echo(json.dumps(outcome(result, folder)))
    return result


def outcome(run: Run, folder: Path) -> dict[str, Any]:
    """What a program wants to know of a run."""
    table = run.summary()
    accuracy = {party: None if pd.isna(value) else float(value) for party, value in table["accuracy"].items()}
    return {
        "run": str(folder),
        "id": run.about["run"],
        "accuracy": accuracy,
        "bytes_up": int(run.costs["bytes_up"].sum()),
        "seconds": float(run.about["seconds"]),
        **{name: run.about.get(name) for name in ("cohort", "device", "precision")},
        "privacy": privacy_records(run),
        "metrics": {metric: values.dropna().to_dict() for metric, values in run.scores.items()},
        "verdict": None if run.known_verdict is None else run.known_verdict.to_dict("records"),
        "concerns": run.concerns,
        "incomplete": run.incomplete,
        "failures": run.refusals.to_dict("records"),
    }


def summary_table(run: Run, title: str) -> Table:
    """The summary of a run, as much of it as 80 columns show."""
    table = run.summary().drop(columns=["bytes_down", "releases"])
    for column in ("first_accuracy", "accuracy"):
        table[column] = table[column].map(lambda value: "-" if pd.isna(value) else f"{value:.3f}")
    table["bytes_up"] = table["bytes_up"].map(bytes_text)
    names = {"first_accuracy": "first accuracy", "bytes_up": "sent"}
    return frame_table(table.reset_index().rename(columns=names), title)


def verdict_table(judged: pd.DataFrame) -> Table:
    """Did it help each site? Those that lost are red."""
    table = Table(title="Did it help?")
    for name in ("site", "alone", "together", "difference", "95% interval"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for row in judged.to_dict("records"):
        numbers = [f"{row['alone']:.3f}", f"{row['together']:.3f}", f"{row['difference']:+.3f}"]
        style = "red" if row["high"] < 0 else "green" if row["helped"] else None
        table.add_row(escape(str(row["site"])), *numbers, f"{row['low']:+.3f} {row['high']:+.3f}", style=style)
    return table


def rehearse(
    file: StudyFile,
    changes: Changes = None,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds to rehearse.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Rehearse a study on made-up sites: every order, every release and its size. No private data is touched."""
    from collegium.study import rehearsal

    study = Study.from_toml(file, changes or ())
    rehearsed = rehearsal.rehearse(study, rounds=rounds, base=file.parent)
    orders = rehearsed.orders.groupby(["round", "steps"], sort=False)["bytes"].agg(["count", "max"]).reset_index()
    releases = rehearsed.releases.assign(sent_at_most=rehearsal.sent_at_most(rehearsed))
    claims = releases.assign(privacy=releases["privacy"].map(claim_text))
    by = claims.groupby(["round", "step", "kind", "privacy"], sort=False)
    sizes = by["sent_at_most"].agg(["count", "max"]).reset_index()
    algorithm = study.build_algorithm()
    learns = algorithm.learns()
    scored = study.federation.classes is not None and study.federation.metrics and algorithm.trains_sites
    if as_json:
        tables = {"orders": rehearsed.orders.to_dict("records"), "releases": releases.to_dict("records")}
        typer.echo(json.dumps(tables | {"learns": learns, "scores": scored}))
        return
    console = Console()
    title = f"What the coordinator would ask ({study.name}, {rehearsed.orders['round'].nunique()} rounds rehearsed)"
    names = {"steps": "steps ordered", "count": "sites", "max": "bytes to each site"}
    console.print(frame_table(orders.rename(columns=names), title))
    names = {"count": "sites", "max": "bytes from each site, at most"}
    console.print(frame_table(sizes.rename(columns=names), "What would leave each site"))
    if algorithm.labels_own_points:
        console.print("Sites were made up with 100 rows at most: what they send grows with their rows.")
    if scored:
        console.print(
            "And after every round Scores (scores.score): a site's accuracy on the rows that it holds out, "
            "unprotected. Its policy may refuse that; federation.metrics = false asks for none."
        )
    if learns:
        rows = pd.DataFrame(list(learns.items()), columns=["who", "learns"])
        console.print(frame_table(rows, "What each party learns, if none of them collude but where it says so"))
    print_privacy(rehearsed, console)
    console.print(
        "Sites were made up from public rows with random labels: no private data was touched. Later rounds send less "
        "when sites agree."
    )
    for row in rehearsed.refusals.drop_duplicates(["step", "code"]).itertuples():
        console.print(f"A site would refuse or fail: {row.step} ({row.code}).", markup=False)


def check(file: StudyFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Look at a study's data before it is run: columns, labels, balance, blank cells, rows in several sets."""
    from collegium.runs.findings import check as check_data

    study = Study.from_toml(file, changes or ())
    prepared = study.prepare(file.parent)
    found = check_data(prepared.sites, prepared.shared, prepared.test)
    advice = prepared.algorithm.advice(prepared.sites)
    if advice is not None:
        Console(stderr=as_json).print(advice, markup=False)
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in found]))
    elif found:
        Console().print(frame_table([vars(finding) for finding in found], f"What to look at ({study.name})"))
    else:
        typer.echo(f"Nothing was found in the data of {study.name}.")
    if found:
        raise typer.Exit(FOUND)


def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file (default: report.html in the folder).")] = None,
) -> None:
    """Write the report of a run as one HTML file."""
    typer.echo(f"Report: {load(folder).report(out or folder / 'report.html')}")


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Two or more runs' folders.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("comparison.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace that file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: a table and overlaid curves."""
    from collegium.reports.compare import compare_runs, render_comparison

    if len(folders) < 2:
        raise ConfigError("compare takes two or more runs' folders.")
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists: choose another file with --out, or replace it with --force.")
    runs = {name: load(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    table = compare_runs(runs)
    out.write_text(render_comparison(runs), encoding="utf-8")
    if as_json:
        typer.echo(table.to_json(orient="index"))
        return
    console = Console()
    # A run per column: there are more numbers than a terminal has columns for.
    console.print(frame_table(table.T.reset_index(names=""), "Runs side by side"))
    console.print(f"Comparison: {out}", markup=False)


def _names(folders: list[Path]) -> list[str]:
    """The folders' last names, or as much of the path as tells them apart."""
    short = [folder.resolve().name for folder in folders]
    if len(set(short)) == len(short):
        return short
    whole = [str(folder) for folder in folders]
    if len(set(whole)) < len(whole):
        raise ConfigError("compare was given the same folder twice.")
    return whole


def _free_folder(name: str, *, resume: bool) -> Path:
    folder, number = Path("runs") / name, 1
    while not resume and folder.exists() and any(folder.iterdir()):
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder
