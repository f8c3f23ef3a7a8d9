"""Whether a probe hears what is wrong: with processes, with the connection, with the disk and with the certificate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.commands import collegium
from tests.flare.operations.folders import DAY, folder, running

from collegium.flare.operations.health import Check, health, is_well
from collegium.flare.supervise.standing import AGENT_FILE, FILE, AgentStanding, Part, ToldFile, read_standing


def bad(kit: Path) -> dict[str, str]:
    return {check.name: check.text for check in health(kit) if not check.ok}


def test_a_site_that_runs_and_is_connected_is_well(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit):
        assert is_well(health(kit.folder))
        said = {check.name: check.text for check in health(kit.folder)}
    assert set(said) == {"supervisor", "agent", "nvflare", "connection", "storage", "certificate"}
    assert "restarted 2 times" in said["nvflare"]
    assert bad(kit.folder) == {"supervisor": f"not running: collegium site join {kit.folder}"}, "its lock is free again"


def test_each_thing_that_is_wrong_is_said_and_only_processes_are_a_matter_of_life(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit, connected=False, trouble="cannot resolve fl.org", expires=time.time() - DAY):
        assert "cannot resolve fl.org" in bad(kit.folder)["connection"]
        assert "expired" in bad(kit.folder)["certificate"]
        assert is_well(health(kit.folder), alive=True), "starting it anew would not help"
        ToldFile(kit.folder / AGENT_FILE).tell(AgentStanding(1, 0.0, trouble="No space left on disk"))
        assert bad(kit.folder)["storage"] == "No space left on disk"
    with running(kit, parts={"agent": Part(None, 7), "nvflare": Part(13)}):
        assert "restarted 7 times" in bad(kit.folder)["agent"]
        assert not is_well(health(kit.folder), alive=True)
    with running(kit):
        (kit.folder / "agent" / "agent.sock").unlink()
        assert "is starting" in bad(kit.folder)["agent"]


def test_a_supervisor_that_stands_still_is_found(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit):
        long_ago = time.time() - 300
        os.utime(kit.folder / FILE, (long_ago, long_ago))
        assert "stood still for 300 s" in bad(kit.folder)["supervisor"]


def test_what_an_earlier_supervisor_said_does_not_count(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit):
        (kit.folder / "agent" / "join.lock").write_text("1\n")
        assert read_standing(kit.folder) is None
        (kit.folder / FILE).write_text("{")
        assert "supervisor" in bad(kit.folder)


def test_a_certificate_that_ends_soon_is_named_before_it_does(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit, expires=time.time() + 5 * DAY):
        (said,) = [check for check in health(kit.folder) if check.name == "certificate"]
    assert said == Check("certificate", True, said.text)
    assert "renewed" in said.text


def test_a_server_is_well_when_it_takes_connections(tmp_path: Path) -> None:
    kit = folder(tmp_path, "server")
    with running(kit, parts={"server": Part(5)}, sites=("north", "east")):
        assert is_well(health(kit.folder))
        assert {"2 sites connected"} <= {check.text for check in health(kit.folder)}
    with running(kit, connected=False, parts={"server": Part(5)}):
        assert bad(kit.folder) == {"connection": "starting"}


@pytest.mark.parametrize("kind", ["site", "server"])
def test_the_command_ends_with_a_code_for_probes(tmp_path: Path, kind: str) -> None:
    kit = folder(tmp_path, kind)
    with running(kit, connected=False, parts={}):
        said = collegium(kind, "health", str(kit.folder))
        assert (said.returncode, "bad connection" in said.stdout) == (1, True)
        assert collegium(kind, "health", str(kit.folder), "--live").returncode == 0
        told = json.loads(collegium(kind, "health", str(kit.folder), "--json").stdout)
        assert (told["format"], told["well"]) == (1, False)
    assert "not running" in collegium(kind, "health", str(kit.folder)).stdout
    wrong = collegium(kind, "health", str(tmp_path))
    assert (wrong.returncode, "not a kit for a" in wrong.stderr) == (2, True)


def test_a_probe_loads_nothing_large() -> None:
    program = "import sys, collegium.cli.health, collegium.flare.operations.health as h\n"
    program += "print(*[name for name in ('numpy', 'pandas', 'cryptography', 'nvflare') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
