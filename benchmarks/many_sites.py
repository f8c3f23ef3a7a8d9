"""Many sites of little data against one coordinator, over the protocol of a real federation, in one process.

    python -m benchmarks.many_sites [--sites 10,100] [--rounds 5] [--rows 1000]

Every site is a real office with its own kit, ledger and policy, and is talked to by the coordinator's real link: hello,
plan, public set, orders, replies, with the record on disk; only NVFlare's processes are left out. FedCT with naive
Bayes on 20 private rows per site. Memory is what the process takes beside what it had before the sites were opened.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tests.flare.offices import OfficeHost, write_site

from benchmarks.fuzz import resident
from benchmarks.report import Column, Report, print_with_options, watched
from collegium import registry
from collegium.flare.coordinator.coordinate import coordinate
from collegium.runs.callbacks import Callback
from collegium.site.ledger import verify_ledger
from collegium.study.study import Study

PRIVATE = 20
SMALL: dict[str, Any] = {"sites": "3", "rounds": 2, "rows": 100}


def report(sites: str = "10,100", rounds: int = 5, rows: int = 1000) -> Report:
    """Each number of sites, in a process of its own."""
    found = []
    for many in watched([int(each) for each in sites.split(",")], "many_sites", sites.count(",") + 1):
        command = f"from benchmarks.many_sites import child; child({many}, {rounds}, {rows})"
        done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
        values = [float(each) for each in done.stdout.splitlines()[-1].split()]
        found.append(
            {"sites": many, **dict(zip(("open", "ready", "round", "memory", "released"), values, strict=True))}
        )
    columns = {
        "sites": Column("sites"),
        "seconds to open the sites": Column("open", ".1f"),
        "seconds to the first round's end": Column("ready", ".1f"),
        "seconds per round": Column("round", ".2f"),
        "MiB in all": Column("memory", ".0f", 1 << 20),
        "releases in the sites' ledgers": Column("released", ",.0f"),
    }
    title = f"FedCT with {PRIVATE} private rows per site, {rows:,} public rows, {rounds} rounds"
    notes = "Seconds per round are the median of the rounds after the first, which also agrees on plan and public set."
    return Report(title, columns, found, notes)


class _Clock(Callback):
    """When rounds end."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_round(self, report: Any) -> None:
        self.times.append(time.perf_counter())


def child(sites: int, rounds: int, rows: int) -> None:
    """One federation, in this process. Prints what it took."""
    registry.install_steps()
    with tempfile.TemporaryDirectory() as scratch:
        folder, clock, before = Path(scratch), _Clock(), resident("VmRSS")
        kits = _write(folder, sites, rows)
        start = time.perf_counter()
        host = OfficeHost(kits)
        opened = time.perf_counter()
        study = {
            "data": {"source": "public.csv"},
            "algorithm": {"name": "fedct", "rounds": rounds},
            "federation": {"classes": ["no", "yes"], "metrics": False, "wait": 1.0},
        }
        run = coordinate(
            Study.from_dict(study), host, base=folder, out=folder / "out", progress=False, callbacks=[clock]
        )
        if not run.refusals.empty:
            raise RuntimeError(f"Not every site answered: {run.refusals}")
        released = sum(sum(verify_ledger(kit / "agent" / "ledger.db").values()) for kit in kits.values())
        per_round = float(np.median(np.diff(clock.times)))
        memory = resident("VmHWM") - before
        print(opened - start, clock.times[0] - opened, per_round, memory, released)


def _write(folder: Path, sites: int, rows: int) -> dict[str, Path]:
    """Points in the plane, half of them positive."""
    rng = np.random.default_rng(0)
    points = pd.DataFrame(rng.normal(size=(rows + sites * PRIVATE, 2)), columns=["a", "b"])
    points[:rows].to_csv(folder / "public.csv", index=False)
    kits = {f"site-{number:03d}": folder / f"site-{number:03d}" for number in range(sites)}
    for number, (name, kit) in enumerate(kits.items()):
        write_site(kit, name, learner="naive_bayes")
        part = points[rows + number * PRIVATE : rows + (number + 1) * PRIVATE]
        part.assign(diagnosis=np.where(part["a"] > 0, "yes", "no")).to_csv(kit / "train.csv", index=False)
    return kits


if __name__ == "__main__":
    print_with_options(report, __doc__)
