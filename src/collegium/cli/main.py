"""Commands. Heavy imports happen inside them, so that ``collegium --help`` is quick.

Exit codes: 0 done, 1 failed, 2 the user's mistake.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from collegium.errors import CollegiumError, ConfigError, StorageError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, rich_markup_mode=None)
ledger_app = typer.Typer(no_args_is_help=True, help="Look at a ledger: what left a site.")
app.add_typer(ledger_app, name="ledger")


@app.callback()
def collegium() -> None:
    """Federated learning by sharing opinions on public cases: any model, at any site."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run, the picture and the ledger.")] = Path("runs/demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier demo in that folder.")] = False,
) -> None:
    """Five hospitals, five kinds of model, breast cancer data: alone against together."""
    from collegium.cli.demo import run_demo

    run_demo(out, force=force)


@ledger_app.command("show")
def ledger_show(file: Annotated[Path, typer.Argument(help="A ledger file (ledger.db).")]) -> None:
    """Print every release in a ledger."""
    from collegium.reports.tables import print_ledger

    print_ledger(file)


@ledger_app.command("verify")
def ledger_verify(file: Annotated[Path, typer.Argument(help="A ledger file (ledger.db).")]) -> None:
    """Check a ledger's hash chain; exit code 1 if it was changed, cut or damaged."""
    from collegium.core.ledger import verify_ledger

    rows = verify_ledger(file)
    for party, count in rows.items():
        typer.echo(f"{party}: {count} releases, chain intact")
    if not rows:
        typer.echo("The ledger is empty: nothing has left.")


def main() -> None:
    """Run a command; a user's mistake ends with one line, not with a traceback."""
    try:
        app()
    except CollegiumError as error:
        typer.echo(f"collegium: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) and not isinstance(error, StorageError) else 1)
