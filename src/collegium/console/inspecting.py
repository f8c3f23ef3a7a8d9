"""``python -m collegium.console.inspecting facts|trail FOLDER``: reads a run, and prints one JSON object."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from collegium.errors import CollegiumError, LedgerError, in_one_line
from collegium.reports.html import privacy_section
from collegium.reports.style import join
from collegium.runs.loading import load
from collegium.runs.results import Run
from collegium.site.ledger import verify_ledger


def facts(folder: Path) -> dict[str, Any]:
    """What privacy was spent, and whether the ledger is whole."""
    found: dict[str, Any] = {"ledger": _ledger(folder / "ledger.db")}
    run = load(folder)
    rounds = int(run.releases["round"].max()) + 1 if len(run.releases) else 0
    found |= {"rounds": rounds, "privacy": join(privacy_section(run)), "concerns": run.concerns}
    return found | {"seconds": time.process_time()}


def _ledger(file: Path) -> dict[str, Any] | None:
    """The rows by party, or what is wrong; None where the sites have their ledgers elsewhere."""
    if not file.is_file():
        return None
    try:
        return {"rows": verify_ledger(file)}
    except LedgerError as error:
        return {"broken": str(error)}


def trail(run: Run) -> list[dict[str, Any]]:
    """What a run would have told while it went on, as far as its tables say."""
    about = run.about
    begun, seconds = _time(str(about.get("started", ""))), float(about.get("seconds", 0.0))
    version = run.environment.get("packages", {}).get("collegium", "")
    lines: list[dict[str, Any]] = [
        {"k": "open", "t": begun, "trail": 1, "pid": 0, "version": version, "again": False, "command": None},
        {"k": "start", "t": begun, "about": about},
    ]
    index = {str(party): number for number, party in enumerate(about["parties"])}
    rounds = sorted({*run.metrics["round"], *run.costs["round"]})
    for number in rounds:
        rows = run.metrics[run.metrics["round"] == number]
        lines.append({"k": "m", "t": begun, "n": int(number)} | _metrics(rows, index))
    costs = run.costs.groupby("round").sum(numeric_only=True)
    for number in rounds:
        when = begun + seconds * (number + 1) / max(1, len(rounds))
        row = costs.loc[number] if number in costs.index else {}
        spent = {name: float(row.get(f"seconds_{name}", 0.0)) for name in ("fit", "predict", "consensus", "wire")}
        sent = {"up": int(row.get("bytes_up", 0)), "down": int(row.get("bytes_down", 0))}
        lines.append({"k": "done", "t": when, "n": int(number), "of": len(rounds), "s": spent} | sent)
    fails = run.refusals.groupby(["party", "step", "code"], sort=False)["round"]
    told = [[int(rows.max()), index.get(str(party), -1), step, code, len(rows)] for (party, step, code), rows in fails]
    end = begun + seconds
    lines.append({"k": "fail", "t": end, "x": told})
    lines.append({"k": "total", "t": end} | _totals(run))
    if run.finished:
        lines.append({"k": "end", "t": end, "how": "finished", "why": ""})
    return json.loads(json.dumps(lines, default=str).replace("NaN", "null"))  # type: ignore[no-any-return]


def _metrics(rows: Any, index: dict[str, int]) -> dict[str, Any]:
    by_party: dict[str, dict[str, float]] = {}
    own: dict[str, float] = {}
    for party, split, metric, value in rows[["party", "split", "metric", "value"]].itertuples(index=False):
        name = f"{split}.{metric}"
        if party in index:
            by_party.setdefault(name, {})[str(index[party])] = float(value)
        else:
            own[name] = float(value)
    return {"v": by_party, "c": own}


def _totals(run: Run) -> dict[str, Any]:
    parties = run.about["parties"]
    sent = run.costs.groupby("party")[["bytes_up", "bytes_down"]].sum().reindex(parties, fill_value=0)
    by_party = run.releases.groupby("party")["protected"]
    counts, safe = (each.reindex(parties, fill_value=0) for each in (by_party.size(), by_party.sum()))
    return {
        "up": [int(n) for n in sent["bytes_up"]], "down": [int(n) for n in sent["bytes_down"]],
        "out": [int(n) for n in counts], "safe": [int(n) for n in safe], "answers": [0] * len(parties), "last": [],
    }  # fmt: skip


def _time(text: str) -> float:
    from datetime import datetime

    with suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    return 0.0


def main() -> None:
    """Print what was asked for; an error is a part of the answer."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "facts":  # nobody waits for it, and the run goes first
        with suppress(OSError):
            os.nice(19)
    try:
        found = {"trail": trail(load(folder))} if what == "trail" else facts(folder)
    except CollegiumError as error:
        found = {"problem": in_one_line(error)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
