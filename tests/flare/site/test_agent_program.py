"""The agent's program with a ledger that is not as it was left: it says so, and does not start."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flare.conftest import NAMES
from tests.flare.coordinator.test_link import At, carry_out
from tests.flare.offices import OfficeHost

from collegium.flare.site.agent import main
from collegium.flare.supervise.processes import _OWNER_MUST_ACT


def start(kit: Path) -> tuple[int, str]:
    """The program as the supervisor starts it: how it ends, and what it says."""
    command = [sys.executable, "-m", "collegium.flare.site.agent", str(kit)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    return ended.returncode, ended.stderr


def change(ledger: Path, statement: str) -> None:
    db = sqlite3.connect(ledger)
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "what", ["garbage", "a changed row", pytest.param("overwritten pages", marks=pytest.mark.slow)]
)
def test_a_ledger_that_was_changed_stops_the_site_and_its_owner_is_told(
    what: str, host: OfficeHost, kits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(host, kits)
    ledger = kits / "site-1" / "agent" / "ledger.db"
    host.offices["site-1"]._ledger.close()
    change(ledger, "PRAGMA wal_checkpoint(TRUNCATE)")
    if what == "garbage":
        ledger.write_bytes(b"not a database at all" * 300)
    elif what == "a changed row":
        change(ledger, "UPDATE ledger SET bytes = bytes + 1 WHERE seq = 2")
    else:
        pages = bytearray(ledger.read_bytes())
        pages[4096::64] = b"\xff" * len(pages[4096::64])
        ledger.write_bytes(pages)
    for file in ledger.parent.glob("ledger.db-*"):
        file.unlink()
    if what == "a changed row":
        code, said = start(kits / "site-1")
    else:  # the same program, without the seconds that a process takes to start
        monkeypatch.setattr(sys, "argv", ["agent", str(kits / "site-1")])
        with pytest.raises(SystemExit) as ended:
            main()
        code, said = ended.value.code, capsys.readouterr().err
    assert code == _OWNER_MUST_ACT, said
    assert len(said.strip().splitlines()) == 1
    assert f"restore {ledger} from a backup" in said
    assert f"collegium ledger verify {ledger}" in said


@pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET bytes = bytes + 1 WHERE seq = (SELECT MAX(seq) FROM ledger)",
        "DELETE FROM ledger WHERE seq = (SELECT MAX(seq) FROM ledger)",
        "UPDATE head SET hash = 'x'",
    ],
)
def test_nothing_leaves_once_the_end_of_a_ledger_was_changed_during_a_run(
    statement: str, host: OfficeHost, kits: Path
) -> None:
    ledger = kits / "site-2" / "agent" / "ledger.db"
    run = carry_out(host, kits, callbacks=[At(0, lambda: change(ledger, statement))])
    assert set(run.refusals["party"]) == {"site-2"}
    assert set(run.refusals["code"]) == {"ledger-damaged"}
    assert set(run.releases.query("party == 'site-2'")["round"]) == {0}
    assert set(run.releases.query("party == 'site-1'")["round"]) == {0, 1, 2}
    assert "changed or removed" in (next((kits / "site-2" / "agent" / "runs").glob("*/site.log"))).read_text()
    assert set(NAMES) == set(run.about["parties"])
