"""A real federation on this machine: NVFlare, mTLS, a process for everything, and kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from tests.flare.conftest import LEARNERS, MANY_TREES, NAMES
from tests.flare.faults import FaultyFederation
from tests.flare.offices import OfficeHost, write_site
from tests.waiting import seconds, until

from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.coordinator.register import coordinators
from collegium.flare.kits.federation_file import LeadSection
from collegium.flare.kits.kit import read_certificate, read_kit
from collegium.flare.kits.provision import renew
from collegium.flare.kits.renewal import install_renewal, request_renewal, sign_renewal
from collegium.flare.kits.revoked import Revoked
from collegium.flare.nvflare.session import NvflareHost
from collegium.flare.site.open_runs import open_runs
from collegium.flare.supervise.children import members
from collegium.flare.supervise.loopback import LEAD
from collegium.runs.callbacks import Callback
from collegium.runs.loading import load
from collegium.runs.results import Run
from collegium.site.ledger import verify_ledger
from collegium.study.study import Study

# Tests that start many processes do so one after the other: the machine has few cores.
pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("many processes"),
]
STUDY = """
name = "test"
seed = 3
[data]
source = "public.csv"
[algorithm]
name = "fedct"
rounds = {rounds}
[federation]
classes = ["benign", "malignant"]
at_least = 3
patience = {patience}
"""


MAKING = """
name = "made"
[data]
source = "none"
[algorithm]
name = "together"
rows = 40
epsilon = 50.0
[federation]
classes = ["benign", "malignant"]
at_least = 3
[algorithm.columns]
"""


@pytest.fixture(scope="module")
def undisturbed(federation: FaultyFederation, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same sites without NVFlare, in this process."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copy(federation.kits / "public.csv", copy)
    for name in NAMES:
        write_site(copy / name, name, learner=LEARNERS[name], settings=MANY_TREES.get(name, ""))
        shutil.copy(federation.site_kit(name) / "train.csv", copy / name)
    study = write_study(copy, rounds=4)
    host = OfficeHost({name: copy / name for name in NAMES})
    return coordinate(Study.from_toml(study), host, base=copy, out=copy / "out", progress=False)


def write_study(folder: Path, rounds: int, patience: float = 20.0) -> Path:
    file = folder / "study.toml"
    file.write_text(STUDY.format(rounds=rounds, patience=patience), encoding="utf-8")
    return file


class Rounds(Callback):
    """Stops the run at the end of chosen rounds, until the test has done what it wants to do there."""

    def __init__(self, *stops: int) -> None:
        self._reached = {number: threading.Event() for number in stops}
        self._go_on = {number: threading.Event() for number in stops}

    def on_round(self, report: Any) -> None:
        if report.round in self._reached:
            self._reached[report.round].set()
            self._go_on[report.round].wait(seconds(120))

    def at(self, number: int, do: Callable[[], object]) -> None:
        assert self._reached[number].wait(seconds(120))
        do()
        self._go_on[number].set()


class Coordinator(threading.Thread):
    """Runs in a thread, since processes end with the thread that started them, and tests start some."""

    def __init__(self, federation: FaultyFederation, study: Path, out: Path, *callbacks: Callback) -> None:
        super().__init__(daemon=True)
        self._host = NvflareHost(federation.server_kit, federation.lead_kit, LEAD)
        self._work = (Study.from_toml(study), study.parent, out, callbacks)
        self.said: list[str] = []
        self.outcome: Run | BaseException | None = None
        self.start()

    def run(self) -> None:
        study, base, out, callbacks = self._work
        try:
            self.outcome = coordinate(
                study, self._host, base=base, out=out, progress=False, callbacks=callbacks, say=self.said.append
            )
        except BaseException as error:
            self.outcome = error
        finally:
            self._host.close()

    def result(self) -> Run:
        self.join(seconds(180))
        if not isinstance(self.outcome, Run):
            raise AssertionError(f"the run did not end: {self.said}") from self.outcome
        return self.outcome


def assert_same(run: Run, other: Run) -> None:
    assert np.array_equal(run.labels.codes, other.labels.codes)
    assert run.metrics.equals(other.metrics)


def test_real_sites_make_a_public_set(federation: FaultyFederation, tmp_path: Path) -> None:
    own = pd.read_csv(federation.site_kit(NAMES[0]) / "train.csv").drop(columns="diagnosis")
    columns = "".join(f'"{name}" = [0.0, {10 ** np.ceil(np.log10(own[name].max()))}]\n' for name in own)
    made = federation.kits / "made.toml"
    made.write_text(MAKING + columns, encoding="utf-8")
    run = Coordinator(federation, made, tmp_path / "made").result()
    assert run.refusals.empty
    assert {"MaskedCounts", "MaskShares"} <= set(run.releases["kind"])
    assert not run.privacy["kind"].eq("unprotected").any()
    rows = pd.read_parquet(tmp_path / "made" / "public.parquet")
    assert list(rows.columns) == list(own.columns)
    assert len(rows) == 40
    paid = [row for row in ledger_rows(federation, NAMES[0]) if str(row["step"]).startswith("together.")]
    assert [row["step"] for row in paid] == ["together.histograms", "together.pairs", "together.edges"]


def test_kills_of_job_agent_and_server_change_nothing(
    federation: FaultyFederation, undisturbed: Run, tmp_path: Path
) -> None:
    stops = Rounds(0, 1, 2)
    study = write_study(federation.kits, rounds=4)
    before = {name: len(ledger_rows(federation, name)) for name in NAMES}
    coordinator = Coordinator(federation, study, tmp_path / "out", stops)
    said = len(federation.console("site-2"))
    stops.at(0, lambda: kill(federation, "server", "job"))
    stops.at(1, lambda: kill(federation, "site-3", "agent"))
    killed, heard = [], []

    def server() -> None:
        heard.append(federation.console("site-2")[said:])
        assert federation.kill_server()
        killed.append(time.monotonic())
        federation.start_server(seconds(60))

    stops.at(2, server)
    run = coordinator.result()
    assert time.monotonic() - killed[0] < seconds(40), "an idle machine takes less than 20 s"
    assert_same(run, undisturbed)
    assert run.refusals.empty
    assert "the session ended; starting another" in coordinator.said
    assert heard == [""], "a job that was killed is not a lost server"
    for name in NAMES:
        rows = ledger_rows(federation, name)[before[name] :]
        assert len(rows) == 8, "four rounds of labels and scores, each released once"
        assert len({(row["run"], row["number"]) for row in rows}) == 8


@pytest.mark.slow
def test_a_site_that_is_killed_in_the_middle_is_left_out_and_joins_again(
    federation: FaultyFederation, tmp_path: Path
) -> None:
    stops = Rounds(0, 2)
    study = write_study(federation.kits, rounds=6, patience=1.0)
    coordinator = Coordinator(federation, study, tmp_path / "out", stops)
    stops.at(0, lambda: None)
    time.sleep(0.3)  # the next exchange is on its way, and site-2 at work
    start = time.monotonic()
    kill(federation, "site-2", "all")
    stops.at(2, lambda: federation.start_site("site-2", timeout=seconds(60)))
    assert time.monotonic() - start < seconds(60), "it is not waited for to the end of time"
    run = coordinator.result()
    took_part = set(run.releases.query("party == 'site-2' and kind == 'HardLabels'")["round"])
    assert {0, 5} <= took_part
    assert {1, 2} - took_part, "it may have answered in round 1 just before it was killed"
    assert set(run.releases.query("party == 'site-1' and kind == 'HardLabels'")["round"]) == set(range(6))
    assert "site-2 is back" in coordinator.said


@pytest.mark.slow
def test_a_site_that_stands_still_is_waited_for_and_then_left_out(federation: FaultyFederation, tmp_path: Path) -> None:
    stops = Rounds(0, 1)
    coordinator = Coordinator(federation, write_study(federation.kits, rounds=4, patience=1.0), tmp_path / "out", stops)
    pids: list[int] = []

    def signal_all(number: signal.Signals) -> None:
        for pid in pids:
            os.kill(pid, number)

    def stand_still() -> None:
        pids.extend(process.pid for process in members(federation.site_kit("site-3")))
        signal_all(signal.SIGSTOP)

    try:
        stops.at(0, stand_still)
        stops.at(1, lambda: signal_all(signal.SIGCONT))
    finally:
        signal_all(signal.SIGCONT)
    run = coordinator.result()
    assert set(run.refusals["party"]) <= {"site-3"}
    assert run.labels is not None


@pytest.mark.slow
def test_a_killed_coordinator_program_is_resumed(
    federation: FaultyFederation, undisturbed: Run, tmp_path: Path
) -> None:
    study, out = write_study(federation.kits, rounds=4), tmp_path / "out"
    command = [sys.executable, "-c", "from collegium.cli import main; main()", "coordinate", str(study)]
    command += ["--kits", str(federation.kits), "--out", str(out), "--json"]
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (out / "record").exists() or exchanges(out) < 3:
        assert program.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    program.kill()
    program.wait()
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["accuracy"]["mean"] > 0.5
    assert_same(load(out), undisturbed)
    assert (out / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        'name = "fedct"\nrounds = 2\nvotes = "secret"',
        'name = "xclp"\nbits = 128\nk = 5\nhamming = "masked"',
    ],
    ids=["secret votes", "label propagation"],
)
def test_other_algorithms_run_unchanged(federation: FaultyFederation, tmp_path: Path, algorithm: str) -> None:
    study = write_study(federation.kits, rounds=2)
    text = study.read_text()
    start, end = text.index("[algorithm]"), text.index("[federation]")
    study.write_text(f"{text[:start]}[algorithm]\n{algorithm}\n{text[end:]}")
    run = Coordinator(federation, study, tmp_path / "out").result()
    assert run.refusals.empty
    assert set(run.orders["party"]) == set(NAMES)
    for name in NAMES:
        kept = federation.site_kit(name) / "agent" / "runs" / run.about["run"]
        assert (kept / ("labels.csv" if "xclp" in algorithm else "model.pkl")).is_file()
        assert (kept / "report.html").is_file()
        (state,) = kept.glob("state-*.pkl")
        _, _, own, secrets, *_ = cloudpickle.loads(state.read_bytes())
        assert own["names of circles that were joined"]
        assert secrets == {}


@pytest.mark.slow
def test_an_owner_hears_of_a_plan_reads_it_and_signs(federation: FaultyFederation, tmp_path: Path) -> None:
    kit = federation.site_kit("site-1")
    file, since = kit / "site.toml", len(federation.console("site-1"))
    before = file.read_text()
    federation.kill("site-1")
    file.write_text(before.replace('approval = "auto"', 'approval = "plan"'))
    federation.start_site("site-1", timeout=seconds(60))
    try:
        coordinator = Coordinator(federation, write_study(federation.kits, rounds=1), tmp_path / "out")
        federation.wait_for("site-1", "waits for approval", since, timeout=seconds(120))
        told = federation.console("site-1")[since:]
        digest = told.partition("plan ")[2][:12]
        command = [sys.executable, "-c", "from collegium.cli import main; main()", "site", "approve", str(kit), digest]
        signed = subprocess.run([*command, "--yes"], capture_output=True, text=True, timeout=300, check=False)
        assert signed.returncode == 0, signed.stderr
        assert "found here" in signed.stdout
        assert "Warning" not in signed.stdout
        assert coordinator.result().refusals.empty
    finally:
        federation.kill("site-1")
        file.write_text(before)
        federation.start_site("site-1", timeout=seconds(60))


@pytest.mark.slow
def test_two_leads_run_two_studies_at_once(federation: FaultyFederation, undisturbed: Run, tmp_path: Path) -> None:
    """Each as a program of its own, and each comes out as it does alone."""
    second = LeadSection(name="lead@elsewhere.org", organisation="elsewhere")
    file = federation.file.model_copy(update={"leads": [*federation.file.leads, second]})
    renew(file, second.name, federation.kits)
    study = write_study(federation.kits, rounds=4)
    programs = {}
    for lead in (LEAD, second.name):
        command = [sys.executable, "-c", "from collegium.cli import main; main()", "coordinate", str(study)]
        command += ["--server", str(federation.server_kit), "--lead", str(federation.kits / lead)]
        command += ["--out", str(tmp_path / lead), "--json"]
        with (tmp_path / f"{lead}.txt").open("w") as said:
            programs[lead] = subprocess.Popen(command, stdout=said, stderr=said)

    def both_are_open() -> bool:
        assert all(program.poll() is None for program in programs.values()), "one ended before both had begun"
        return [run.state for run in open_runs(federation.site_kit("site-2"))].count("open") == 2

    until(both_are_open, every=0.02)
    assert len([each for each in coordinators(federation.server_kit) if each.alive]) == 2
    for lead, program in programs.items():
        assert program.wait(seconds(300)) == 0, (tmp_path / f"{lead}.txt").read_text()
        assert_same(load(tmp_path / lead), undisturbed)
        assert load(tmp_path / lead).refusals.empty


@pytest.mark.slow
def test_certificates_are_renewed_and_the_old_ones_revoked_while_a_study_runs(
    federation: FaultyFederation, undisturbed: Run, tmp_path: Path
) -> None:
    stops = Rounds(0, 1, 2)
    study = write_study(federation.kits, rounds=4)
    agent = (federation.site_kit("site-1") / "agent" / "agent.pid").read_text()
    supervisors = {name: federation.supervisor(name) for name in ("server", "site-1")}
    coordinator = Coordinator(federation, study, tmp_path / "out", stops)

    def renewed(kit: Path, *speakers: str) -> Callable[[], None]:
        def do() -> None:
            said = {name: len(federation.console(name)) for name in ("server", *NAMES)}
            old = read_certificate(read_kit(kit).certificate).serial_number
            install_renewal(kit, sign_renewal(federation.file, request_renewal(kit), federation.kits))
            for name in speakers:
                federation.wait_for(name, "has a new certificate", said[name], seconds(60))
                federation.wait_for(name, "started" if name == "server" else "connected", said[name], seconds(60))
            Revoked(federation.server_kit).add(f"{old:x}")

        return do

    stops.at(0, renewed(federation.site_kit("site-1"), "site-1"))
    stops.at(1, renewed(federation.server_kit, "server"))
    stops.at(2, renewed(federation.lead_kit))
    run = coordinator.result()
    assert_same(run, undisturbed)
    assert run.refusals.empty
    assert (federation.site_kit("site-1") / "agent" / "agent.pid").read_text() == agent, "the agent was not restarted"
    assert {name: federation.supervisor(name) for name in supervisors} == supervisors
    assert federation.ended() == []


def test_a_long_session_takes_no_more_threads_than_a_short_one(federation: FaultyFederation) -> None:
    host = NvflareHost(federation.server_kit, federation.lead_kit, LEAD)
    try:
        session = host.begin(frozenset({"site-1"}))
        jobs = [process for process in members(federation.server_kit) if "job" in process.cmdline()]
        job = max(jobs, key=lambda process: process.create_time())  # an earlier one may take its time to end
        for _ in range(20):  # its pools fill
            session.request("site-1", b"", seconds(20))
        before = job.num_threads()
        for _ in range(80):
            session.request("site-1", b"", seconds(20))
        assert job.num_threads() < before + 20
        session.close()
    finally:
        host.close()


def kill(federation: FaultyFederation, site: str, what: Any) -> None:
    assert federation.kill(site, what), f"there was no {what} of {site} to kill"


def ledger_rows(federation: FaultyFederation, name: str) -> list[dict[str, Any]]:
    from collegium.site.ledger import read_ledger

    file = federation.site_kit(name) / "agent" / "ledger.db"
    if not file.is_file():
        return []
    verify_ledger(file)
    return read_ledger(file)


def exchanges(out: Path) -> int:
    import sqlite3

    with sqlite3.connect(f"file:{out / 'record'}?mode=ro", uri=True) as db:
        try:
            return int(db.execute("SELECT COUNT(*) FROM exchange").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
