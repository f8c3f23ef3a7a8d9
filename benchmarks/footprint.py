"""What a federation's processes take: memory, threads, and processor time while they wait.

    python -m benchmarks footprint [--rounds 600] [--sites 2] [--seconds 20]

A server and sites as real processes over loopback run a study of so many rounds. Numbers are of site-1 and the server,
at the 5th round and near the last one. In between the coordinator's program is stopped for so many seconds (SIGSTOP):
the sites are in a run and wait, and that is when processor time is measured, in per cent of one core.

PSS: a page that several processes share counts for each in part, so PSS adds up. Own: what no file backs (anonymous
memory), and what a process takes even when the machine is short of memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from tests.flare.faults import FaultyFederation

from benchmarks.real_federation import coordinate, write_federation, write_sites
from benchmarks.report import Column, Report, print_with_options
from collegium.flare.supervise.children import members

SMALL: dict[str, Any] = {"rounds": 12, "sites": 1, "seconds": 2}
_EARLY = 5
_NAMES = {"agent": "agent", "site": "NVFlare's", "server": "NVFlare's", "job": "the session's"}
Taken = dict[str, dict[str, float]]


def report(rounds: int = 600, sites: int = 2, seconds: int = 20) -> Report:
    """Measure one site and the server, early, waiting and late."""
    with tempfile.TemporaryDirectory() as scratch:
        federation = write_federation(Path(scratch), sites)
        write_sites(federation)
        with federation:
            program = coordinate(federation, rounds, Path(scratch) / "out", Path(scratch) / "console.txt")
            wait_for_round(federation, program, _EARLY)
            early = measure(federation)
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(2.0)  # what is under way comes to its end
            before, start = measure(federation), time.monotonic()
            time.sleep(seconds)
            waiting, took = measure(federation), time.monotonic() - start
            os.kill(program.pid, signal.SIGCONT)
            wait_for_round(federation, program, rounds - 2)
            late = measure(federation)
            if program.wait() != 0:
                raise RuntimeError("The study failed.")
    found = []
    for who in early:
        row = {"process": who} | {f"{key} late": value for key, value in late[who].items()} | early[who]
        found.append(row | {"idle": 100 * (waiting[who]["cpu"] - before[who]["cpu"]) / took})
    columns = {"process": Column("process")}
    for key, heading in (("rss", "RSS, MB"), ("pss", "PSS, MB"), ("own", "own, MB")):
        columns |= {heading: Column(key, ".0f"), f"{heading}, late": Column(f"{key} late", ".0f")}
    columns |= {
        "threads": Column("threads"),
        "late": Column("threads late"),
        "waiting, % of a core": Column("idle", ".1f"),
    }
    title = f"Processes of a federation with {sites} sites, at round {_EARLY} and at round {rounds - 2}"
    return Report(title, columns, found, "The server, all sites and the coordinator share the machine.")


def measure(federation: FaultyFederation, names: tuple[str, ...] = ("site-1", "server")) -> Taken:
    """Each process of a site and of the server, and each of the two as a whole."""
    found: Taken = {}
    for name in names:
        parts = {f"{name}: supervisor": psutil.Process(federation.supervisor(name))}
        for process in members(federation.kits / name):
            with contextlib.suppress(psutil.Error, KeyError):
                parts[f"{name}: {_NAMES[process.cmdline()[3]]}"] = process
        measured = {part: _taken(process) for part, process in parts.items()}
        found |= measured
        found[f"{name}: all"] = {key: sum(one[key] for one in measured.values()) for key in _taken(psutil.Process())}
    return found


def _taken(process: psutil.Process) -> dict[str, float]:
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    memory = {key: kilobytes[field] / 1024 for key, field in (("rss", "Rss"), ("pss", "Pss"), ("own", "Anonymous"))}
    times = process.cpu_times()
    return memory | {"threads": process.num_threads(), "cpu": times.user + times.system}


def wait_for_round(federation: FaultyFederation, program: subprocess.Popen[bytes], number: int) -> None:
    """Until site-1 has answered so many rounds: with labels, and with its scores."""
    file = federation.site_kit("site-1") / "agent" / "ledger.db"
    while True:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db,
        ):
            if db.execute("SELECT COUNT(*) FROM ledger").fetchone()[0] >= 2 * number:
                return
        if program.poll() is not None:
            raise RuntimeError(f"The study ended before round {number}.")
        time.sleep(0.1)


if __name__ == "__main__":
    print_with_options(report, __doc__)
