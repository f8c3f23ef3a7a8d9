"""Old runs and sessions go; ledger, keys, approvals that hold, and whatever is in use stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.plan import Plan, PlannedStep
from collegium.flare.kits.identity import make_agent_folder, read_keys
from collegium.flare.supervise.children import MARK
from collegium.flare.supervise.cleaning import remove, server_leftovers, site_leftovers

STEP = PlannedStep("fedct.label", "0" * 16, "HardLabels", None, True, 3, 80, 3)


def plan(sha256: str) -> Plan:
    return Plan("study", {"name": "fedct"}, 0, ("a", "b"), sha256, 9, ("north",), (STEP,), True)


def make(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("something")
    age(path, days)
    age(path.parent, days)
    return path


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "north"
    folder.mkdir()
    (folder / "site.toml").write_text('name = "north"\n[data]\nsource = "rows.csv"\n')
    make_agent_folder(folder)
    return folder


def test_a_site_forgets_what_is_old_and_keeps_what_it_needs(kit: Path) -> None:
    agent = kit / "agent"
    approvals = Approvals(agent, read_keys(agent, "north"))
    signed, spent, waiting = plan("a" * 64), plan("b" * 64), plan("c" * 64)
    for each in (signed, spent, waiting):
        approvals.propose(each)
        age(agent / "plans" / f"{each.digest}.json", 200)
    approvals.approve(signed.digest)
    old_run, new_run, open_run = "1" * 32, "2" * 32, "3" * 32
    gone = [
        make(agent / "runs" / old_run / "model.pkl", 100).parent,
        make(agent / "orders" / "abababab-3.json", 100),
        make(kit / str(uuid.uuid4()) / "meta.json", 100).parent,
        make(kit / "logs" / "agent.log.1", 100),
        agent / "plans" / f"{spent.digest}.json",
        agent / "plans" / f"{waiting.digest}.json",
    ]
    kept = [
        make(agent / "runs" / new_run / "model.pkl", 10),
        make(agent / "runs" / open_run / "state.bin", 100),
        make(agent / "ledger.db", 1000),
        make(agent / "public" / f"{'a' * 64}.table", 200),
        make(kit / "logs" / "agent.log", 100),
        make(kit / "rows.csv", 1000),
        make(kit / "not-a-session" / "file", 1000),
        agent / "identity.key",
        agent / "plans" / f"{signed.digest}.json",
    ]
    found = site_leftovers(kit, 90, open_runs={open_run})
    assert {each.path for each in found} == set(gone)
    assert all(each.bytes > 0 and each.days > 89 for each in found)
    remove(found)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)
    unused = make(agent / "public" / f"{'d' * 64}.table", 200)
    assert [each.path for each in site_leftovers(kit, 90)] == [agent / "runs" / open_run, unused]


def test_links_to_elsewhere_are_not_followed(kit: Path, tmp_path: Path) -> None:
    elsewhere = make(tmp_path / "elsewhere" / "patients.csv", 100)
    inside = make(kit / "agent" / "runs" / ("1" * 32) / "model.pkl", 100).parent
    for link in (kit / "agent" / "runs" / ("2" * 32), inside / "models"):
        link.symlink_to(elsewhere.parent)
    remove(site_leftovers(kit, 0))
    assert list((kit / "agent" / "runs").iterdir()) == []
    assert elsewhere.exists()


def test_a_server_forgets_old_sessions_but_none_that_has_a_process(tmp_path: Path) -> None:
    over, working = str(uuid.uuid4()), str(uuid.uuid4())
    gone = [make(tmp_path / name / over / "meta", 100).parent for name in ("jobs", "snapshots", "transfer", ".")]
    kept = [make(tmp_path / name / working / "meta", 100).parent for name in ("jobs", ".")]
    kept.append(make(tmp_path / "audit.log", 1000))
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", working]
    child = subprocess.Popen(
        wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {MARK: str(tmp_path)}
    )
    try:
        child.stdout.readline()
        found = server_leftovers(tmp_path, 90)
    finally:
        child.communicate()
    assert {each.path.resolve() for each in found} == {path.resolve() for path in gone}
    remove(found)
    assert all(path.exists() for path in kept)
