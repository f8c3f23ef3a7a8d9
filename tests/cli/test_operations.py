"""What operators of a server or a site type: status, end, clean, and messages for people and programs."""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import datetime
from pathlib import Path

import pytest
from tests.cli.commands import collegium

from collegium.flare.coordinator.register import registered
from collegium.flare.supervise.loopback import LoopbackFederation
from collegium.flare.supervise.speaking import speaker


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> LoopbackFederation:
    """Kits of a federation that nobody has started."""
    return LoopbackFederation(tmp_path_factory.mktemp("federation"), sites=("north",))


def test_messages_have_a_time_and_a_sender(capsys: pytest.CaptureFixture[str]) -> None:
    speaker("north")("connected [bold]x")
    stamp, words = capsys.readouterr().out[:19], "north: connected [bold]x"
    datetime.fromisoformat(stamp)
    speaker("north")("connected [bold]x")
    assert capsys.readouterr().out[20:].rstrip("\n") == words
    speaker("north", as_json=True, stderr=True)("a line\nand one more")
    said = json.loads(capsys.readouterr().err)
    assert (said["from"], said["message"]) == ("north", "a line\nand one more")
    assert datetime.fromisoformat(said["time"]).tzinfo is not None


def test_a_servers_status_lists_the_studies_that_run(federation: LoopbackFederation) -> None:
    kit = federation.server_kit
    said = collegium("server", "status", str(kit))
    assert "not running" in said.stdout
    assert "No study is being run" in said.stdout
    with registered(kit, "sepsis [/nonsense]", Path("runs/sepsis")):
        facts = json.loads(collegium("server", "status", str(kit), "--json").stdout)
        assert facts["studies"][0]["study"] == "sepsis [/nonsense]"
        assert "sepsis [/nonsense]" in collegium("server", "status", str(kit)).stdout
    wrong = collegium("server", "end", str(kit), "1")
    assert (wrong.returncode, "server status" in wrong.stderr) == (2, True)
    away = collegium("server", "status", str(kit), "--lead", str(federation.lead_kit))
    assert (away.returncode, "cannot reach" in away.stderr.lower()) == (1, True)


@pytest.mark.parametrize("kind", ["server", "site"])
def test_old_sessions_are_deleted_when_somebody_says_yes(kind: str, federation: LoopbackFederation) -> None:
    kit = federation.server_kit if kind == "server" else federation.site_kit("north")
    if kind == "site":
        federation.write_site("north", 'name = "north"\n[data]\nsource = "rows.csv"\n')
    assert "Nothing is old enough" in collegium(kind, "clean", str(kit), "--yes").stdout
    old = kit / str(uuid.uuid4())
    old.mkdir()
    then = time.time() - 100 * 86400
    os.utime(old, (then, then))
    kept = collegium(kind, "clean", str(kit))
    assert (kept.returncode, old.exists()) == (1, True)  # nobody answered
    assert "Nothing is old enough" in collegium(kind, "clean", str(kit), "--days", "200", "--yes").stdout
    said = json.loads(collegium(kind, "clean", str(kit), "--yes", "--json").stdout)
    assert said["deleted"] == [str(old)]
    assert not old.exists()
