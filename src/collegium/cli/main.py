"""The commands. Heavy imports happen inside them, so that ``collegium --help`` is quick."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from collegium.errors import CollegiumError, ConfigError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
ledger_app = typer.Typer(no_args_is_help=True, help="Look at a ledger: what left a site.")
privacy_app = typer.Typer(no_args_is_help=True, help="What a study costs in privacy, before anything runs.")
app.add_typer(ledger_app, name="ledger")
app.add_typer(privacy_app, name="privacy")

StudyFile = Annotated[Path, typer.Argument(help="A study file (TOML).", metavar="STUDY.toml")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Replace a setting: algorithm.rounds=3", metavar="PATH=VALUE")
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON object, for programs.")]
LedgerFile = Annotated[Path, typer.Argument(help="A ledger file (ledger.db).")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")]


class Listed(StrEnum):
    """What `list` can list."""

    algorithms = "algorithms"
    learners = "learners"
    consensus = "consensus"
    mechanisms = "mechanisms"
    partitions = "partitions"
    data = "data"


@app.callback()
def collegium(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Federated learning by sharing opinions on public cases: any model, at any site.

    Exit codes: 0 done; 1 failed; 2 a mistake in the command, the study or the data.
    """
    _Debug.on = debug


class _Debug:
    on = False


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run, the picture and the ledger.")] = Path("runs/demo"),
    force: Force = False,
) -> None:
    """Five hospitals, five kinds of model, breast cancer data: alone against together."""
    from collegium.cli.demo import run_demo

    run_demo(out, force=force)


@app.command()
def run(
    study: StudyFile,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run (default: runs/NAME).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: train, show a summary, keep everything in a folder, write the report."""
    from collegium.cli.studies import run_study

    run_study(study, changes or [], out, resume=resume, force=force, as_json=as_json)


@app.command()
def plan(
    study: StudyFile,
    changes: Changes = None,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds to rehearse.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Rehearse a study on made-up sites: every order, every release and its size. No private data is touched."""
    from collegium.cli.studies import plan_study

    plan_study(study, changes or [], rounds, as_json=as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file (default: report.html in the folder).")] = None,
) -> None:
    """Write the report of a run as one HTML file."""
    from collegium.results import load

    file = load(folder).report(out or folder / "report.html")
    typer.echo(f"Report: {file}")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Two or more runs' folders.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("comparison.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace that file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: a table and overlaid curves."""
    from collegium.cli.studies import compare_folders

    compare_folders(folders, out, force=force, as_json=as_json)


@app.command("list")
def list_names(what: Annotated[Listed, typer.Argument(help="What to list.")], as_json: AsJson = False) -> None:
    """List what a study can name."""
    from collegium.cli.lists import print_list

    print_list(what.value, as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of study files."""
    import json

    from collegium.study import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@ledger_app.command("show")
def ledger_show(file: LedgerFile, as_json: AsJson = False) -> None:
    """Print every release in a ledger."""
    if as_json:
        import json

        from collegium.core.ledger import read_ledger

        typer.echo(json.dumps(read_ledger(file), indent=1))
        return
    from collegium.reports.tables import print_ledger

    print_ledger(file)


@ledger_app.command("verify")
def ledger_verify(file: LedgerFile) -> None:
    """Check a ledger's hash chain; exit code 1 if it was changed, cut or damaged."""
    from collegium.core.ledger import verify_ledger

    rows = verify_ledger(file)
    for party, count in rows.items():
        typer.echo(f"{party}: {count} releases, chain intact")
    if not rows:
        typer.echo("The ledger is empty: nothing has left.")


@ledger_app.command("budget")
def ledger_budget(
    file: LedgerFile,
    delta: Annotated[float | None, typer.Option(help="Add up at this delta (default: the budget's own).")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how much privacy each site has spent, and what is left of its budget."""
    from collegium.cli.privacy import show_budget

    show_budget(file, delta, as_json=as_json)


@privacy_app.command("explain")
def privacy_explain(study: StudyFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """What each site would release, at what cost and under which claim. Nothing private is touched, nothing spent."""
    from collegium.cli.privacy import explain_study

    explain_study(study, changes or [], as_json=as_json)


@privacy_app.command("calibrate")
def privacy_calibrate(
    epsilon: Annotated[float, typer.Option(help="The total epsilon, over all rounds.")],
    delta: Annotated[float, typer.Option(help="The total delta.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="How many rounds release labels.")] = 1,
    public_size: Annotated[int, typer.Option(help="Samples in the public set.")] = 1,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    mechanism: Annotated[str, typer.Option(help="A mechanism's name: collegium list mechanisms.")] = (
        "randomized_response"
    ),
    sites: Annotated[int, typer.Option(help="Sites that vote: to say how often their consensus is right.")] = 5,
    as_json: AsJson = False,
) -> None:
    """How much noise a total (epsilon, delta) needs, and what is left of the labels."""
    from collegium.cli.privacy import calibrate_mechanism

    calibrate_mechanism(mechanism, epsilon, delta, rounds, public_size, classes, sites, as_json=as_json)


def main() -> None:
    """Run a command; a mistake or a failure ends with one line, not with a traceback (unless --debug)."""
    try:
        app()
    except CollegiumError as error:
        if _Debug.on:
            raise
        typer.echo(f"collegium: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except MemoryError:
        typer.echo("collegium: not enough memory for this run. Use fewer sites at a time (engine.workers=1).", err=True)
        sys.exit(1)
    except OSError as error:
        if _Debug.on:
            raise
        typer.echo(f"collegium: {error.strerror or 'input or output failed'}: {error.filename or ''}", err=True)
        sys.exit(1)
    except Exception as error:
        if _Debug.on:
            raise
        typer.echo(f"collegium: an unexpected {type(error).__name__}; run with --debug to see where.", err=True)
        sys.exit(1)
