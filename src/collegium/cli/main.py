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
server_app = typer.Typer(no_args_is_help=True, help="Run a federation's server, and say which sites may register.")
app.add_typer(server_app, name="server")
site_app = typer.Typer(no_args_is_help=True, help="A hospital's side of a federation.")
app.add_typer(site_app, name="site")
federation_app = typer.Typer(no_args_is_help=True, help="Rehearse a federation on one machine.")
app.add_typer(federation_app, name="federation")

StudyFile = Annotated[Path, typer.Argument(help="A study file (TOML).", metavar="STUDY.toml")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Replace a setting: algorithm.rounds=3", metavar="PATH=VALUE")
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON object, for programs.")]
LedgerFile = Annotated[Path, typer.Argument(help="A ledger file (ledger.db).")]
KitFolder = Annotated[Path, typer.Argument(help="The folder that came from `collegium provision`.", metavar="KIT")]
AtDelta = Annotated[float | None, typer.Option(help="Add up at this delta (default: the budget's own).")]
LeadKit = Annotated[Path, typer.Option("--kit", help="The kit of a lead of the organisation that runs the server.")]
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

    Exit codes: 0 done; 1 failed; 2 a mistake in the command, the study or the data; 130 interrupted.
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
    from collegium.runs.results import load

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

    from collegium.study.study import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@ledger_app.command("show")
def ledger_show(file: LedgerFile, as_json: AsJson = False) -> None:
    """Print every release in a ledger."""
    if as_json:
        import json

        from collegium.site.ledger import read_ledger

        typer.echo(json.dumps(read_ledger(file), indent=1))
        return
    from collegium.reports.tables import print_ledger

    print_ledger(file)


@ledger_app.command("verify")
def ledger_verify(file: LedgerFile) -> None:
    """Check a ledger's hash chain; exit code 1 if it was changed, cut or damaged."""
    from collegium.site.ledger import verify_ledger

    rows = verify_ledger(file)
    for party, count in rows.items():
        typer.echo(f"{party}: {count} releases, chain intact")
    if not rows:
        typer.echo("The ledger is empty: nothing has left.")


@ledger_app.command("refusals")
def ledger_refusals(file: LedgerFile, as_json: AsJson = False) -> None:
    """Print what a site refused, and with which code (the latest 10,000)."""
    from collegium.site.ledger import read_refusals

    rows = read_refusals(file)
    if as_json:
        import json

        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        run = f" run {row['run']}" if row["run"] else ""
        typer.echo(f"{row['time']} {row['party']}: {row['code']} {row['step']}{run}")
    if not rows:
        typer.echo("Nothing was refused.")


@ledger_app.command("budget")
def ledger_budget(
    file: LedgerFile,
    delta: AtDelta = None,
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


@app.command("provision")
def provision_command(
    file: Annotated[Path, typer.Argument(help="Who takes part (TOML).", metavar="FEDERATION.toml")],
    out: Annotated[Path | None, typer.Option(help="Folder for the kits (default: kits/NAME).")] = None,
    force: Annotated[bool, typer.Option("--force", help="A new federation in that folder: old kits end.")] = False,
    add_site: Annotated[str | None, typer.Option("--add-site", help="One more site; all else stays.")] = None,
    organisation: Annotated[str | None, typer.Option(help="Whose site --add-site adds.")] = None,
    renew: Annotated[str | None, typer.Option("--renew", help="A new key and certificate for one kit.")] = None,
) -> None:
    """Make the kits of a federation: one folder for the server, each site and each lead."""
    from collegium.cli.federation import provision_federation

    provision_federation(file, out, force=force, new_site=add_site, organisation=organisation, member=renew)


@server_app.command("start")
def server_start(kit: KitFolder) -> None:
    """Run the server in the foreground; Ctrl-C ends it."""
    from collegium.cli.federation import start_server

    start_server(kit)


@server_app.command("disable")
def server_disable(site: Annotated[str, typer.Argument(help="A site's name.")], kit: LeadKit) -> None:
    """Shut a site out: it is disconnected and cannot register."""
    from collegium.cli.federation import set_site_enabled

    set_site_enabled(site, kit, enabled=False)


@server_app.command("enable")
def server_enable(site: Annotated[str, typer.Argument(help="A site's name.")], kit: LeadKit) -> None:
    """Let a site in again."""
    from collegium.cli.federation import set_site_enabled

    set_site_enabled(site, kit, enabled=True)


@site_app.command("init")
def site_init(
    kit: KitFolder,
    name: Annotated[str | None, typer.Option(help="The site's name (default: as in the kit's certificate).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace site.toml by a new template.")] = False,
) -> None:
    """Write a site.toml to fill in, and make the site's identity key; shows the identity for the other sites."""
    from collegium.cli.site import init_site

    init_site(kit, name, force=force)


@site_app.command("check")
def site_check(
    kit: KitFolder,
    study: Annotated[
        Path | None, typer.Argument(help="A study or a proposed plan to look at.", metavar="[STUDY.toml|PLAN.json]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load the data and show what the site brings; with a study, what would be allowed and refused.

    Exit code 1 if the site could not take part in the study.
    """
    from collegium.cli.site import check_site

    check_site(kit, study, as_json=as_json)


@site_app.command("status")
def site_status(kit: KitFolder, as_json: AsJson = False) -> None:
    """Is the site running, what has left it, and what waits for a decision?"""
    from collegium.cli.site_status import show_status

    show_status(kit, as_json=as_json)


@site_app.command("log")
def site_log(
    kit: KitFolder, lines: Annotated[int, typer.Option(min=1, help="How many of the last lines.")] = 50
) -> None:
    """Show the site's own log: why something was refused or failed."""
    from collegium.cli.site_status import show_log

    show_log(kit, lines)


@site_app.command("budget")
def site_budget(
    kit: KitFolder,
    delta: AtDelta = None,
    as_json: AsJson = False,
) -> None:
    """Show how much privacy the site has spent, and what is left of its budget."""
    from collegium.cli.site_status import show_site_budget

    show_site_budget(kit, delta, as_json=as_json)


@site_app.command("approve")
def site_approve(
    kit: KitFolder,
    digest: Annotated[str | None, typer.Argument(help="A plan's hash, or how it begins.")] = None,
    order: Annotated[str | None, typer.Option(help="One order.", metavar="RUN:NUMBER")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the plan's approval back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a proposed plan in plain words and sign it; without a plan, list those that wait."""
    from collegium.cli.site_approve import approve_for_site

    approve_for_site(kit, digest, order, withdraw=withdraw, yes=yes, as_json=as_json)


@site_app.command("join")
def site_join(kit: KitFolder) -> None:
    """Take part in the foreground, with reconnection; Ctrl-C ends it."""
    from collegium.cli.federation import join_site

    join_site(kit)


@app.command("coordinate")
def coordinate_command(
    study: StudyFile,
    kits: Annotated[Path | None, typer.Option(help="The folder with the server's and the lead's kit.")] = None,
    server: Annotated[Path | None, typer.Option(help="The server's kit, on this machine.")] = None,
    lead: Annotated[Path | None, typer.Option(help="The lead's kit.")] = None,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run (default: runs/NAME).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a study between organisations: over the sites that have joined the federation."""
    from collegium.cli.coordinate import coordinate_study

    coordinate_study(study, kits, server, lead, changes or [], out, resume=resume, force=force, as_json=as_json)


@federation_app.command("demo")
def federation_demo(
    out: Annotated[Path, typer.Option(help="Folder for kits, data and the run.")] = Path("runs/federation-demo"),
    force: Force = False,
) -> None:
    """A server and three hospitals as processes of their own on this machine, with real certificates: one study."""
    from collegium.cli.coordinate import run_federation_demo

    run_federation_demo(out, force=force)


def main() -> None:
    """Run a command; a mistake or a failure ends with one line, not with a traceback (unless --debug)."""
    try:
        app()
    except CollegiumError as error:
        if _Debug.on:
            raise
        typer.echo("\n  ".join([f"collegium: {error}", *getattr(error, "__notes__", [])]), err=True)
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
