"""``collegium ledger``."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from collegium.cli.options import AsJson, AtDelta
from collegium.core.settings import OpenProbability, check
from collegium.privacy.budget import read_charges, spent_claim
from collegium.reports.tables import frame_table, ledger_table
from collegium.site.ledger import read_ledger, read_refusals, verify_ledger

LedgerFile = Annotated[Path, typer.Argument(help="A ledger file (ledger.db).")]


def show(file: LedgerFile, as_json: AsJson = False) -> None:
    """Print every release in a ledger."""
    if as_json:
        typer.echo(json.dumps(read_ledger(file), indent=1))
    else:
        Console().print(ledger_table(file))


def verify(file: LedgerFile) -> None:
    """Check a ledger's hash chain; exit code 1 if it was changed, cut or damaged."""
    rows = verify_ledger(file)
    for party, count in rows.items():
        typer.echo(f"{party}: {count} releases, chain intact")
    if not rows:
        typer.echo("The ledger is empty: nothing has left.")


def refusals(file: LedgerFile, as_json: AsJson = False) -> None:
    """Print what a site refused, and with which code (the latest 10,000)."""
    rows = read_refusals(file)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        run = f" run {row['run']}" if row["run"] else ""
        typer.echo(f"{row['time']} {row['party']}: {row['code']} {row['step']}{run}")
    if not rows:
        typer.echo("Nothing was refused.")


def budget(file: LedgerFile, delta: AtDelta = None, as_json: AsJson = False) -> None:
    """Show how much privacy each site has spent, and what is left of its budget."""
    if delta is not None:
        check(OpenProbability, delta, "--delta")
    verify_ledger(file)
    rows = []
    entries = sorted(read_ledger(file), key=itemgetter("party"))
    for party, group in groupby(entries, key=itemgetter("party")):
        events = [row["event"] for row in group]
        read = [read_charges(event) for event in events]
        charges = [charge for part, _ in read for charge in part]
        limit = next((each for _, each in reversed(read) if each is not None), None)
        at = delta if delta is not None else limit.delta if limit is not None else 1e-5
        claim = spent_claim(charges, at)
        spent = 0.0 if claim is None else claim.epsilon
        rows.append(
            {
                "site": party,
                "releases": len(events),
                "unprotected": events.count(None),
                "charges": sum(charge.kind == "dp" and bool(charge.events) for charge in charges),
                "spent epsilon": spent,
                "delta": at,
                "budget": None if limit is None else limit.epsilon,
                "left": None if limit is None else max(0.0, limit.epsilon - spent),
            }
        )
    if as_json:
        typer.echo(json.dumps(rows))
        return
    shown = pd.DataFrame(rows).astype(object).where(lambda frame: frame.notna(), "-")
    Console().print(
        frame_table(shown, f"Privacy spent ({file.name})") if rows else "The ledger is empty: nothing was spent."
    )
