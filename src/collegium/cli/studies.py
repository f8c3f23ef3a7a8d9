"""``collegium run``, ``rehearse``, ``report`` and ``compare``."""

from __future__ import annotations

import json
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collegium.cli.endings import continued_by, ended_by
from collegium.cli.options import AsJson, Changes, CohortMode, Device, Force, NetPrecision, Resume, RunFolder, StudyFile
from collegium.cli.privacy import claim_text, print_privacy, privacy_records
from collegium.cli.watch import watched
from collegium.errors import Advice, CollegiumWarning, ConfigError
from collegium.reports.tables import bytes_text, frame_table
from collegium.runs.folder import not_empty, remove_earlier_run
from collegium.runs.loading import load
from collegium.runs.reasons import raised_at
from collegium.runs.results import Run
from collegium.study.study import Study

if TYPE_CHECKING:
    from collegium.runs.findings import Finding

INCOMPLETE: Final = 4
"""The exit code of a study that has results, but that some sites did not answer to the end."""

FOUND: Final = 5
"""The exit code of a check that found something."""

_METRICS: Final = 4
"""Metrics that fit beside one another."""


def run(
    file: StudyFile,
    changes: Changes = None,
    out: RunFolder = None,
    resume: Resume = False,
    force: Force = False,
    cohort: CohortMode = None,
    device: Device = None,
    precision: NetPrecision = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the run in a browser while it goes on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: train, show a summary, keep everything in a folder, write the report.

    With several algorithms or seeds, every run that is not in the folder yet, and a page that compares them.
    """
    engine = {"cohort": cohort, "device": device, "precision": precision}
    given = [f"engine.{name}={value}" for name, value in engine.items() if value is not None]
    given = [*(changes or ()), *given]
    study = Study.from_toml(file, given)
    if study.is_grid:
        from collegium.cli.grids import run_study_grid

        place, again = out or Path("runs") / study.name, force and not resume
        with (
            ended_by(signal.SIGTERM),
            continued_by("run", file, "--out", place, changes=given),
            watched(place, wanted=watch),
        ):
            run_study_grid(study, place, file.parent, force=again, as_json=as_json)
        return
    folder = folder_for(study, out, resume=resume, force=force)
    try:
        with (
            ended_by(signal.SIGTERM),
            continued_by("run", file, "--out", folder, "--resume", changes=given),
            watched(folder, wanted=watch),
        ):
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
        raise ConfigError(not_empty(folder, "--resume", "--force", "choose another folder with --out"))
    return folder


def end_with(run: Run) -> None:
    """Exit as the run's outcome asks for."""
    if run.incomplete:
        raise typer.Exit(INCOMPLETE)


def carry_out(study: Study, folder: Path, make: Callable[[], Run], *, as_json: bool) -> Run:
    """Run a study, and show what came out."""
    console = Console(stderr=as_json)
    with noted(console):
        result = make()
    console.print(summary_table(result, study.name))
    for table in score_tables(result):
        console.print(table)
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
        if (raised := raised_at(result.logs)) is not None:
            console.print(f"Raised there: {raised}", markup=False)
    console.print(f"Report: {folder / 'report.html'}\nRun:    {folder}", markup=False)
    if as_json:
        typer.echo(json.dumps(outcome(result, folder)))
    return result


@contextmanager
def noted(console: Console) -> Iterator[None]:
    """Advice in here is said at once, since it is about what has not begun; other warnings are said after it."""
    told: dict[str, None] = {}
    later: dict[str, None] = {}

    def take(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, Advice):
            # The runs of a grid differ in numbers only.
            words = re.sub(r"\d+", "", str(message))
            if words not in told:
                console.print(f"Note: {message}", markup=False)
            told[words] = None
        elif issubclass(category, CollegiumWarning):
            later[str(message)] = None

    with warnings.catch_warnings():
        for kind in (CollegiumWarning, Advice):
            warnings.simplefilter("always", kind)
        warnings.showwarning = take
        yield
    for text in later:
        console.print(f"Note: {text}", markup=False)


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
    shown, rate = frame_table(table.reset_index().rename(columns=names), title), run.about.get("base_rate")
    shown.caption = None if rate is None else f"Always saying the largest class: accuracy {rate:.3f}"
    return shown


def score_tables(run: Run) -> list[Table]:
    """The metrics that were asked for beside accuracy, as many in a table as 80 columns show."""
    scores = run.plain_scores.drop(columns="accuracy", errors="ignore").rename(index=_short_model)
    parts = [scores.iloc[:, first : first + _METRICS] for first in range(0, len(scores.columns), _METRICS)]
    return [frame_table(part.reset_index(), "Metrics of the last round") for part in parts]


def _short_model(name: object) -> str:
    return "global" if str(name).startswith("global model") else str(name)


def verdict_table(judged: pd.DataFrame, method: str | None = None) -> Table:
    """Did it help each site? Those that lost are red."""
    table = Table(title="Did it help?" + ("" if method is None else f" ({escape(method)})"))
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

    studies = Study.from_toml(file, changes or ()).by_algorithm()
    said = {}
    for label, study in studies.items():
        if len(studies) > 1 and not as_json:
            typer.echo(f"\n{label}")
        rehearsed = rehearsal.rehearse(study, rounds=rounds, base=file.parent)
        said[label] = _rehearsal(study, rehearsed, None if as_json else Console())
    if as_json:
        typer.echo(json.dumps(said if len(said) > 1 else next(iter(said.values()))))


def _rehearsal(study: Study, rehearsed: Run, console: Console | None) -> dict[str, Any]:
    """What a rehearsal shows: for programs, and on the console if there is one."""
    from collegium.study import rehearsal

    orders = rehearsed.orders.groupby(["round", "steps"], sort=False)["bytes"].agg(["count", "max"]).reset_index()
    releases = rehearsed.releases.assign(sent_at_most=rehearsal.sent_at_most(rehearsed))
    claims = releases.assign(privacy=releases["privacy"].map(claim_text))
    by = claims.groupby(["round", "step", "kind", "privacy"], sort=False)
    sizes = by["sent_at_most"].agg(["count", "max"]).reset_index()
    algorithm = study.build_algorithm()
    learns = algorithm.learns()
    scored = study.federation.classes is not None and study.federation.metrics and algorithm.trains_sites
    tables = {"orders": rehearsed.orders.to_dict("records"), "releases": releases.to_dict("records")}
    said = tables | {"learns": learns, "scores": scored}
    if console is None:
        return said
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
        if study.metrics:
            console.print(f"And Measures (scores.measure) of the same rows: {', '.join(study.metrics)}.", markup=False)
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
    return said


def check(file: StudyFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Look at a study's data before it is run: columns, labels, balance, blank cells, rows in several sets."""
    study = Study.from_toml(file, changes or ())
    if study.federation.classes is not None:
        raise ConfigError(
            "federation.classes: the sites of this study bring their own data, which only they can look at: "
            f"`collegium site check KIT {file.name}` at each of them."
        )
    found = print_findings(study, file.parent, None if as_json else Console())
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in found]))
    if found:
        raise typer.Exit(FOUND)


def print_findings(study: Study, base: Path, console: Console | None) -> list[Finding]:
    """Look at a study's data, and show what was found; without a console, only advice that follows from it."""
    from collegium.runs.findings import check as check_data

    methods = list(study.by_algorithm().values())
    prepared = methods[0].prepare(base)
    found = check_data(prepared.sites, prepared.shared, prepared.test)
    algorithms = [method.build_algorithm() for method in methods]
    anyway = {algorithm.advice(()) for algorithm in algorithms} if console is None else set()
    every = dict.fromkeys(algorithm.advice(prepared.sites) for algorithm in algorithms)
    for advice in (text for text in every if text is not None and text not in anyway):
        (console or Console(stderr=True)).print(advice, markup=False)
    if console is not None and found:
        console.print(frame_table([vars(finding) for finding in found], f"What to look at ({study.name})"))
    elif console is not None:
        console.print(f"Nothing was found in the data of {study.name}.", markup=False)
    return found


def report(
    source: Annotated[Path, typer.Argument(help="A run's folder; with --ethics also a study.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="The file (default: report.html in the folder).")] = None,
    ethics: Annotated[
        bool, typer.Option("--ethics", help="A template for an ethics board, by the ending of --out as .md or .html.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a template that is there.")] = False,
) -> None:
    """Write the report of a run as one HTML file.

    With --ethics: a template for an ethics board or a data-protection impact assessment, of a run or of a study.
    """
    if ethics:
        from collegium.cli.ethics import write_ethics

        typer.echo(f"Template: {write_ethics(source, out, force=force)}")
        return
    typer.echo(f"Report: {load(source).report(out or source / 'report.html')}")


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
    console.print(frame_table(table.dropna(axis=1, how="all").T.reset_index(names=""), "Runs side by side"))
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
