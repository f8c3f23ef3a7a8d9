"""Bad days: a study is run again and again while processes are killed and disks fill up, and nothing may differ.

    python -m benchmarks soak [--minutes 60] [--sites 8] [--rounds 200] [--seed 1] [--disks 1]

First the study is run once undisturbed. Then, until the minutes are over, it is run again and again over one server
and sites, all of them real processes over loopback, while at random moments a process is killed (kill -9) or a disk is
full for 5 to 30 seconds; a coordinator that was killed, or that stopped because of a fault, is resumed. The run that is
under way when the time is over is left to finish. Every run must give the labels of the first one, and every site's
ledger the same releases in the same order, each once, in an unbroken chain; in the end no process may be left.

Full disks are small file systems in memory, mounted over each site's agent folder and the coordinator's runs, in a
mount namespace of this program's own. That needs root, or: unshare --map-root-user --mount python -m benchmarks soak.
Where it is not allowed, and with --disks 0, disks do not fill, and the table says so.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.real_federation import coordinate, write_federation, write_sites
from benchmarks.report import Column, Report, print_with_options
from collegium.errors import CollegiumError
from collegium.site.ledger import read_ledger, verify_ledger

SMALL: dict[str, Any] = {"minutes": 1, "sites": 3, "rounds": 20}
_NEW_MOUNTS = 0x00020000
_DISK = "400m"
_PAUSE = (4.0, 22.0)
_FULL = (5.0, 30.0)
_STOPS = 10
"""A coordinator that stops so often in one run, with all disks free, does not recover."""
_LAST_RUN_SECONDS = 1800.0
_WEIGHTS = {
    "agent": 4.0, "nvflare": 4.0, "whole site": 2.0, "server's nvflare": 1.5, "server's job": 2.0,
    "whole server": 1.0, "coordinator": 1.5, "site's disk full": 2.0, "coordinator's disk full": 1.0,
}  # fmt: skip


def report(minutes: int = 60, sites: int = 8, rounds: int = 200, seed: int = 1, disks: int = 1) -> Report:
    """Let it run, and compare."""
    place = Path(tempfile.mkdtemp(prefix="collegium-soak-"))
    soak = Soak(place, sites, rounds, random.Random(seed), disks=bool(disks) and _own_mounts())  # noqa: S311
    print(f"soak: {minutes} minutes, {sites} sites, {rounds} rounds a run; consoles and kits in {place}", flush=True)
    try:
        soak.run(60.0 * minutes)
    finally:
        soak.unmount()
    verdict = "Equal: labels, ledgers, chains; no process left." if not soak.wrong else "NOT EQUAL."
    found = [
        {"event": event, "count": len(took), "sooner": sum(seconds is None for seconds in took)}
        | _recovery([seconds for seconds in took if seconds is not None])
        for event, took in soak.events.items()
    ]
    columns = {
        "event": Column("event"),
        "times": Column("count"),
        "until all sites went on, s (median)": Column("median", ".1f"),
        "(longest)": Column("longest", ".1f"),
        "fault or end came sooner": Column("sooner"),
    }
    notes = [verdict, *soak.wrong, soak.in_words(), *([] if soak.disks else ["Disks did not fill."])]
    done = Report(f"{minutes} minutes of faults, {sites} sites, seed {seed}", columns, found, "\n".join(notes))
    if soak.wrong:
        done.print()
        raise SystemExit(1)
    shutil.rmtree(place, ignore_errors=True)
    return done


def _recovery(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "longest": max(seconds)} if seconds else {}


def _own_mounts() -> bool:
    """Leave the machine's mounts alone: what is mounted from here ends with this program."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0


class Soak:
    """A federation, what befell it, and what came out different."""

    def __init__(self, place: Path, sites: int, rounds: int, rng: random.Random, *, disks: bool) -> None:
        self.disks = disks
        self.events: dict[str, list[float | None]] = defaultdict(list)
        self.wrong: list[str] = []
        self.finished = 0
        self._rounds, self._rng = rounds, rng
        self._federation = write_federation(place, sites)
        self._runs, self._console = place / "runs", place / "consoles" / "coordinator.txt"
        self._runs.mkdir()
        self._mounted = [self._runs, *map(self._agent, self._federation.sites)] if disks else []
        for folder in self._mounted:
            folder.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=700", "tmpfs", folder], check=True)
        write_sites(self._federation)  # keys lie in the agent's folder
        self._program: subprocess.Popen[bytes] | None = None
        self._out = self._runs
        self._stops = 0
        self._begin = time.monotonic()

    def run(self, seconds: float) -> None:
        """All of it."""
        try:
            self._federation.start(timeout=300.0)
            self._start(self._runs / "undisturbed")
            self._wait(lambda: False, _LAST_RUN_SECONDS)
            self._right = self._outcome()
            self._say(f"undisturbed: {Counter(map(len, self._right[1].values()))} releases of each site")
            self._begin = time.monotonic()
            end = self._begin + seconds
            while time.monotonic() < end and len(self.wrong) == 0:
                self._disturbed_run(end)
            if self._program is not None:
                self._program.kill()
                self._program.wait()
            self.wrong += [f"A process without its parent: {process}." for process in self._federation.orphans()]
            self.wrong += [f"Processes of {name} are left." for name in self._federation.stop_politely()]
        finally:
            self._federation.stop()

    def unmount(self) -> None:
        """Put what is in the small file systems, which end with this program, on the disk."""
        for folder in self._mounted:
            kept = folder.with_name(f"{folder.name} copied")
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.sock"))
            subprocess.run(["umount", "--lazy", folder], check=True)
            shutil.rmtree(folder)
            kept.rename(folder)

    def in_words(self) -> str:
        """How much was done."""
        kills = sum(len(took) for event, took in self.events.items() if "stopped" not in event)
        return f"{self.finished} runs of {self._rounds} rounds finished through {kills} faults."

    def _disturbed_run(self, end: float) -> None:
        self._start(self._runs / f"run-{self.finished + 1}")
        kinds = [kind for kind in _WEIGHTS if self.disks or "disk" not in kind]
        self._wait(lambda: False, self._rng.uniform(*_PAUSE))
        while self._program is not None and time.monotonic() < end:
            self._befall(self._rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0])
        self._wait(lambda: False, _LAST_RUN_SECONDS)
        if self._program is not None:
            self.wrong.append(f"{self._out.name} did not finish: {self._last_words(self._console)}")
            return
        self.finished += 1
        self._compare()
        if not self.wrong:
            shutil.rmtree(self._out)  # the next one needs the space

    def _befall(self, kind: str) -> None:
        """One fault, and how long it takes until every site has released something more. The next may come before."""
        site = self._rng.choice(self._federation.sites)
        self._say(f"{kind} {site if kind in ('agent', 'nvflare') or 'site' in kind else ''}")
        if kind == "coordinator":
            self._kill_coordinator()
        elif "disk" in kind:
            self._fill(self._runs if "coordinator" in kind else self._agent(site))
        elif kind in ("whole site", "whole server"):
            name = site if kind == "whole site" else "server"
            self._federation.kill(name)
            time.sleep(self._rng.uniform(0.5, 6.0))
            self._start_again(name)
        else:
            name, part = ("server", kind.split()[-1]) if "server" in kind else (site, kind)
            if not self._federation.kill(name, part):  # type: ignore[arg-type]
                return  # it was just being started again
        before, start, pause = self._released(), time.monotonic(), self._rng.uniform(*_PAUSE)
        self._wait(lambda: self._all_beyond(before), pause)
        went_on = self._program is not None and self._all_beyond(before)
        self.events[kind].append(time.monotonic() - start if went_on else None)
        self._wait(lambda: False, start + pause - time.monotonic())

    def _all_beyond(self, before: list[int]) -> bool:
        return all(now > then for now, then in zip(self._released(), before, strict=True))

    def _kill_coordinator(self) -> None:
        assert self._program is not None
        self._program.kill()
        self._program.wait()
        time.sleep(self._rng.uniform(0.5, 3.0))
        self._start(self._out, resume=True)

    def _fill(self, folder: Path) -> None:
        ballast = folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        time.sleep(self._rng.uniform(*_FULL))
        ballast.unlink()

    def _start(self, out: Path, *, resume: bool = False) -> None:
        if resume and not (out / "record").exists():  # it was killed before it had begun
            shutil.rmtree(out, ignore_errors=True)
            resume = False
        if out != self._out:
            self._out, self._stops = out, 0
        self._program = coordinate(self._federation, self._rounds, out, self._console, resume=resume)

    def _start_again(self, name: str) -> None:
        start = (
            self._federation.start_server
            if name == "server"
            else lambda timeout: self._federation.start_site(name, timeout)
        )
        try:
            start(timeout=180.0)
        except CollegiumError as error:
            self.wrong.append(f"{name} did not start again: {str(error)[-300:]}")

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Until it is done, the run is finished, or the time is over. Whoever stopped by itself is started again."""
        end = time.monotonic() + seconds
        while self._program is not None and time.monotonic() < end and not done():
            code = self._program.poll()
            if code == 0:
                self._program = None
            elif code is not None:
                self._stopped(f"coordinator (exit code {code})", self._console)
                self._start(self._out, resume=True)
            for name in self._federation.ended():
                self._stopped(name, self._console.with_name(f"{name}.txt"))
                self.wrong.append(f"{name} stopped by itself.")
                self._start_again(name)
            time.sleep(0.1)

    def _stopped(self, who: str, console: Path) -> None:
        self._say(f"{who} stopped by itself: {self._last_words(console)}")
        self.events[f"{who.split()[0]} stopped by itself"].append(None)
        self._stops += 1
        if self._stops > _STOPS:
            raise SystemExit(f"soak: {who} stops again and again: {self._last_words(console)}")
        time.sleep(2.0)

    def _compare(self) -> None:
        labels, ledgers, twice = self._outcome()
        right_labels, right_ledgers, _ = self._right
        name = self._out.name
        if not np.array_equal(labels, right_labels):
            self.wrong.append(f"{name}: {np.sum(labels != right_labels)} of {len(labels)} labels differ.")
        for site, rows in ledgers.items():
            if rows != right_ledgers[site]:
                self.wrong.append(
                    f"{name}: the ledger of {site} differs ({len(rows)} and {len(right_ledgers[site])} rows)."
                )
        self.wrong += [f"{name}: {site} released {number} things twice." for site, number in twice.items() if number]
        self._say(f"{name} finished: {'as undisturbed' if not self.wrong else self.wrong[-1]}")

    def _outcome(self) -> tuple[Any, dict[str, list[tuple[Any, ...]]], dict[str, int]]:
        """Labels, each site's releases, and how many were released twice. Ledgers are verified."""
        from collegium.runs.loading import load

        run = load(self._out)
        ledgers, twice = {}, {}
        for site in self._federation.sites:
            file = self._agent(site) / "ledger.db"
            verify_ledger(file)
            rows = [row for row in read_ledger(file) if row["run"] == run.about["run"]]
            ledgers[site] = [(row["round"], row["step"], row["kind"], row["sha256"]) for row in rows]
            twice[site] = len(rows) - len({row["number"] for row in rows})
        return run.labels.codes, ledgers, twice

    def _released(self) -> list[int]:
        found = []
        for site in self._federation.sites:
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(f"file:{self._agent(site)}/ledger.db?mode=ro", uri=True)) as db,
            ):
                found.append(int(db.execute("SELECT COUNT(*) FROM ledger").fetchone()[0]))
                continue
            found.append(0)
        return found

    def _agent(self, site: str) -> Path:
        return self._federation.site_kit(site) / "agent"

    def _last_words(self, console: Path) -> str:
        lines = console.read_text(errors="replace").strip().splitlines() if console.exists() else []
        return " ".join(lines[-2:])[-300:]

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begin:7.0f} s  {text}", flush=True)


if __name__ == "__main__":
    print_with_options(report, __doc__)
