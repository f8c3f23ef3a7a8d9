"""Many sites as real processes on one machine: the memory of all of them, and seconds for a round.

    python -m benchmarks real_sites [--sites 12] [--rounds 30]

Server, sites (each a supervisor, an agent and NVFlare's process) and coordinator, over loopback.
Memory is PSS, which adds up, of all processes but the coordinator's, in the last rounds of a study. A round asks every
site to train, for labels of 150 public rows, and for its scores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.footprint import measure, wait_for_round
from benchmarks.real_federation import coordinate, write_federation, write_sites
from benchmarks.report import Column, Report, print_with_options

SMALL: dict[str, Any] = {"sites": 2, "rounds": 10}
_EARLY, _AT_MOST = 5, 2000.0


def report(sites: int = 12, rounds: int = 30) -> Report:
    """Run a study over all of them."""
    with tempfile.TemporaryDirectory() as scratch:
        federation = write_federation(Path(scratch), sites)
        write_sites(federation)
        begin = time.monotonic()
        federation.start(timeout=300.0)
        try:
            up = time.monotonic() - begin
            program = coordinate(federation, rounds, Path(scratch) / "out", Path(scratch) / "console.txt")
            wait_for_round(federation, program, _EARLY)
            start = time.monotonic()
            wait_for_round(federation, program, rounds - 1)
            each = (time.monotonic() - start) / (rounds - 1 - _EARLY)
            taken = measure(federation, ("server", *federation.sites))
            if program.wait() != 0:
                raise RuntimeError("The study failed.")
        finally:
            federation.stop()
    whole = [numbers for who, numbers in taken.items() if who.endswith(": all")]
    memory = {key: sum(numbers[key] for numbers in whole) for key in ("rss", "pss", "own")}
    row = {
        "sites": f"{sites} sites",
        "up": up,
        "round": each,
        "most": _AT_MOST,
        "fits": memory["pss"] < _AT_MOST,
    } | memory
    columns = {
        "real processes": Column("sites"),
        "all up, s": Column("up", ".0f"),
        "a round, s": Column("round", ".2f"),
        "PSS, MB": Column("pss", ".0f"),
        "at most, MB": Column("most", ".0f"),
        "fits": Column("fits"),
        "own, MB": Column("own", ".0f"),
        "sum of RSS, MB": Column("rss", ".0f"),
    }
    return Report(f"{sites} sites and a server on one machine", columns, [row])


if __name__ == "__main__":
    print_with_options(report, __doc__)
