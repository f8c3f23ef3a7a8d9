"""``collegium site status``, ``log`` and ``budget``: what an owner wants to know of a site that runs."""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import closing, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from collegium.cli import ledger
from collegium.cli.options import AsJson, AtDelta, KitFolder
from collegium.cli.site_approve import signed_plans
from collegium.errors import ConfigError, StorageError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT, Installation, instance, read_keys, read_turn
from collegium.flare.site.file import LEDGER, SITE_FILE, SiteFile
from collegium.flare.site.open_runs import end_run, open_runs
from collegium.reports.tables import bytes_text, frame_table
from collegium.site.ledger import Ledger, read_ledger, storage_errors, verify_ledger

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ")
_MOST_BYTES: Final = 1 << 20


def status(kit: KitFolder, as_json: AsJson = False) -> None:
    """Show whether the site is running, what has left it, and what is waiting for a decision."""
    file = SiteFile.from_toml(kit / SITE_FILE)
    folder = kit / AGENT
    keys = read_keys(folder, file.name)
    approvals = Approvals(folder, keys)
    runs, refusals = _runs(kit / LEDGER, file.name)
    facts: dict[str, Any] = {
        "name": file.name,
        "joined": is_held(folder / "join.lock"),
        "agent": _living(folder / "agent.pid"),
        "installation": Installation(keys.identity, instance(kit), read_turn(folder)).name,
        "open": [
            {
                "run": each.run,
                "study": each.study,
                "state": each.state,
                "since": _moment(each.since),
                "heard": _moment(each.heard),
            }
            for each in open_runs(kit)
        ],
        "runs": runs,
        "refusals": refusals[-5:],
        "plans": [plan.digest for plan in approvals.pending()],
        "orders": [f"{order.run}:{order.number}" for order in approvals.pending_orders()],
        "signed": signed_plans(approvals),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    console = Console()
    agent = "not running" if facts["agent"] is None else f"running as process {facts['agent']}"
    console.print(
        f"{file.name}: {'joined' if facts['joined'] else 'not joined (collegium site join)'}; agent {agent}; "
        f"installation {facts['installation']}.",
        markup=False,
    )
    if runs:
        shown = [{**run, "bytes": bytes_text(run["bytes"])} for run in runs]
        console.print(frame_table(shown, "What has left this site"))
    else:
        console.print("Nothing has left this site.")
    if facts["open"]:
        console.print(frame_table(facts["open"], "Open runs (to end one for good: collegium site end KIT RUN)"))
    for row in facts["refusals"]:
        console.print(f"refused at {row['time']}: {row['step']!r} ({row['code']})", markup=False)
    for digest in facts["plans"]:
        console.print(f"Plan {digest} is waiting: collegium site approve {kit} {digest[:12]}", markup=False)
    for order in facts["orders"]:
        console.print(f"Order {order} is waiting: collegium site approve {kit} --order {order}", markup=False)
    for each in facts["signed"]:
        left = f"{each['left']} of {each['runs']} runs left, until {each['until']}"
        console.print(f"Plan {each['plan'][:12]} is signed: {left}.", markup=False)


def end(
    kit: KitFolder,
    run: Annotated[str, typer.Argument(help="As `collegium site status` shows it, or its first digits.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End a run at this site for good: no order of it is answered any more. The ledger keeps what has left."""
    SiteFile.from_toml(kit / SITE_FILE)
    found = [each for each in open_runs(kit) if each.run.startswith(run.lower())]
    if len(found) != 1 or not run:
        what = "more than one open run" if len(found) > 1 else "no open run"
        raise ConfigError(f"{run}: {what} starts with it; `collegium site status {kit}` lists those that are open.")
    if not yes and not typer.confirm(f"End run {found[0].run} ({found[0].study!r}) for good?", default=False):
        typer.echo("Nothing was ended.", err=True)
        raise typer.Exit(1)
    end_run(kit, found[0].run)
    typer.echo(f"Run {found[0].run} has ended here.")


def log(
    kit: KitFolder,
    lines: Annotated[int, typer.Option(min=1, help="How many of the last lines.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print each entry as a JSON object on a line.")] = False,
) -> None:
    """Show the site's own log: why something was refused or failed."""
    folder = kit / AGENT
    if not folder.is_dir():
        raise ConfigError(f"{folder} not found: run `collegium site init {kit}` first.")
    entries = [entry for file in (folder / "site.log", *folder.glob("runs/*/site.log")) for entry in _entries(file)]
    entries.sort(key=lambda entry: entry[0])
    if as_json:
        for first, *rest in entries[-lines:]:
            when, _, words = first.partition(" ")
            typer.echo(json.dumps({"time": when, "message": "\n".join([words, *rest])}))
        return
    text = [line for entry in entries for line in entry]
    typer.echo("\n".join(text[-lines:]) if text else "The log is empty.")


def budget(kit: KitFolder, delta: AtDelta = None, as_json: AsJson = False) -> None:
    """Show how much privacy the site has spent, and what is left of its budget."""
    SiteFile.from_toml(kit / SITE_FILE)
    if (kit / LEDGER).is_file():
        ledger.budget(kit / LEDGER, delta, as_json)
        return
    typer.echo("[]" if as_json else "Nothing has left this site: there is no ledger yet.")


def _moment(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def _runs(path: Path, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The ledger's releases by run, the run that released last at the end; and its refusals."""
    if not path.is_file():
        return [], []
    verify_ledger(path)
    rows = sorted(read_ledger(path), key=lambda row: str(row["run"]))
    runs = []
    for run, group in groupby(rows, key=lambda row: row["run"]):
        released = sorted(group, key=lambda row: int(row["seq"]))
        last = released[-1]
        size = sum(row["bytes"] for row in released)
        runs.append(
            {"run": run, "releases": len(released), "bytes": size, "last": last["time"], "round": last["round"],
             "step": last["step"]}
        )  # fmt: skip
    with closing(Ledger(name, path)) as opened:
        return sorted(runs, key=lambda run: str(run["last"])), opened.refusals()


def is_held(lock: Path) -> bool:
    """Does a process hold this lock? Whoever does, joined with this kit."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _living(pid_file: Path) -> int | None:
    """The process that a file names, if there is one."""
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text(encoding="ascii"))
        os.kill(pid, 0)
        return pid
    return None


def _entries(file: Path) -> list[list[str]]:
    """A log's entries, each a line with a time and what belongs to it."""
    if not file.is_file():
        return []
    with storage_errors(file, StorageError), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _MOST_BYTES))
        text = stream.read().decode("utf-8", "replace")
    entries: list[list[str]] = []
    for line in text.splitlines():
        if _STAMP.match(line):
            entries.append([line])
        elif entries:  # what stands before the first time was cut off
            entries[-1].append(line)
    return entries
