"""A real federation with somebody on its machines who does not belong there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.flare.conftest import NAMES
from tests.flare.faults import FaultyFederation
from tests.flare.test_federation import Coordinator, Rounds, ledger_rows, write_study
from tests.waiting import seconds

from collegium.errors import CollegiumError, ConfigError
from collegium.flare.coordinator.installations import Installations
from collegium.flare.kits.kit import read_certificate, read_kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.nvflare.admin import ServerAway, connection, registered_sites, set_enabled
from collegium.flare.nvflare.session import NvflareHost
from collegium.flare.supervise.children import members
from collegium.flare.supervise.loopback import LEAD

pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("many processes"),
]
NOBODY = 65534


def attack(federation: FaultyFederation, user: int) -> dict[str, Any]:
    program = Path(__file__).with_name("local_user.py")
    command = [sys.executable, str(program), str(federation.server_kit), "site-1", str(user)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs root, to become another user")
def test_a_local_user_joins_the_servers_cells_and_gives_orders(federation: FaultyFederation, tmp_path: Path) -> None:
    stops, before = Rounds(0), len(ledger_rows(federation, "site-1"))
    coordinator = Coordinator(federation, write_study(federation.kits, rounds=3), tmp_path / "out", stops)
    said: dict[str, dict[str, Any]] = {}

    def intrude() -> None:
        said["nobody"] = attack(federation, NOBODY)
        said["root"] = attack(federation, 0)

    stops.at(0, intrude)
    run = coordinator.result()
    assert said["nobody"] == {"joined": False, "hello": None, "open": None}
    # a program of the server's own user is let in, and without the session's token nothing is passed on for it
    assert said["root"] == {"joined": True, "hello": None, "open": None}
    assert "unauthenticated msg" in (federation.server_kit / "logs" / "server.log").read_text()
    assert run.refusals.empty
    assert "the session ended; starting another" not in coordinator.said
    assert {row["run"] for row in ledger_rows(federation, "site-1")[before:]} == {run.about["run"]}


def test_a_site_opens_no_port_and_starts_no_process_for_a_session(federation: FaultyFederation) -> None:
    kit = federation.site_kit("site-1")
    before = {process.pid for process in members(kit)}
    host = NvflareHost(federation.server_kit, federation.lead_kit, LEAD)
    try:
        session = host.begin(frozenset({"site-1"}))
        assert session.ready == {"site-1"}
        processes = members(kit)
        assert {process.pid for process in processes} == before
        connections = [each for process in processes for each in process.net_connections("inet")]
        assert connections, "it is connected to the server"
        assert not [each for each in connections if each.status == psutil.CONN_LISTEN]
        session.close()
    finally:
        host.close()


@pytest.mark.parametrize("by", ["serial", pytest.param("name", marks=pytest.mark.slow)])
def test_a_lead_is_revoked_while_the_server_runs(federation: FaultyFederation, by: str) -> None:
    lead, revoked = read_kit(federation.lead_kit), Revoked(federation.server_kit)
    word = f"{read_certificate(lead.certificate).serial_number:x}" if by == "serial" else LEAD
    with connection(lead, seconds(20)) as opened:
        assert set(registered_sites(opened)) == set(NAMES)
        revoked.add(word)
        with pytest.raises(Exception, match="revoked"):  # NVFlare has many kinds
            registered_sites(opened)
    with pytest.raises(ServerAway), connection(lead, seconds(10)):
        pass
    with pytest.raises(ConfigError, match="was revoked"):
        NvflareHost(federation.server_kit, federation.lead_kit, LEAD)
    revoked.remove(word)
    with connection(lead, seconds(20)) as opened:
        assert set(registered_sites(opened)) == set(NAMES)


def test_a_name_that_nobody_has_is_disabled(federation: FaultyFederation) -> None:
    with pytest.raises(ConfigError, match=r"No site 'nosuch' is connected .*connected: site-1, site-2, site-3"):
        set_enabled(federation.lead_kit, "nosuch", enabled=False)
    with pytest.raises(CollegiumError, match="No site 'nosuch' is disabled"):
        set_enabled(federation.lead_kit, "nosuch", enabled=True)


@pytest.mark.slow
def test_a_copied_kit_joins_in_the_sites_place_until_a_lead_confirms_one(
    federation: FaultyFederation, tmp_path: Path
) -> None:
    study = write_study(federation.kits, rounds=1)
    assert Coordinator(federation, study, tmp_path / "before").result().refusals.empty
    thief = tmp_path / "site-2"
    shutil.copytree(federation.site_kit("site-2"), thief, ignore=shutil.ignore_patterns("*.sock", "*.lock", "*.pid"))
    federation.kill("site-2")
    federation._launch("thief", "site", "join", thief)
    try:
        federation.wait_for("thief", "connected", timeout=seconds(60))
        stolen = Coordinator(federation, study, tmp_path / "stolen")
        assert set(stolen.result().refusals["code"]) == {"other-installation"}
        assert any("collegium server confirm" in line for line in stolen.said)
        federation.wait_for("thief", "two installations", timeout=seconds(60))
    finally:
        process = federation._running.pop("thief")
        process.terminate()
        process.wait(seconds(60))
    federation.start_site("site-2", timeout=seconds(60))
    shut_out = Coordinator(federation, study, tmp_path / "shut out").result()
    assert set(shut_out.refusals["party"]) == {"site-2"}, "the owner's own, too"
    federation.wait_for("site-2", "two installations", timeout=seconds(60))
    true = federation.console("site-2").rpartition("This one is ")[2][:12]
    Installations(federation.server_kit / "coordinator").confirm("site-2", true, LEAD)
    assert Coordinator(federation, study, tmp_path / "after").result().refusals.empty


@pytest.mark.slow
def test_a_copy_that_is_connected_beside_the_site_shuts_both_out(federation: FaultyFederation, tmp_path: Path) -> None:
    """It need not answer anything: NVFlare would send one of them, at random, what is meant for the other."""
    study, book = write_study(federation.kits, rounds=1), Installations(federation.server_kit / "coordinator")
    assert Coordinator(federation, study, tmp_path / "before").result().refusals.empty
    federation.kill("site-2")
    federation.start_site("site-2", timeout=seconds(60))
    assert not book.is_shut_out("site-2"), "one that was killed, and is back at once, is one"
    copy = tmp_path / "site-2"
    shutil.copytree(federation.site_kit("site-2"), copy, ignore=shutil.ignore_patterns("*.sock", "*.lock", "*.pid"))
    since = len(federation.console("server"))
    federation._launch("copy", "site", "join", copy)
    try:
        federation.wait_for("server", "site-2 takes part twice at the same time", since, seconds(60))
        stolen = Coordinator(federation, study, tmp_path / "twice").result()
        assert set(stolen.refusals["party"]) == {"site-2"}
    finally:
        process = federation._running.pop("copy")
        process.terminate()
        process.wait(seconds(60))
    connect_again(federation)  # the server may have heard the copy last, which the site takes half a minute to notice
    shut_out = Coordinator(federation, study, tmp_path / "shut out").result()
    assert set(shut_out.refusals["code"]) == {"other-installation"}, "until somebody has said which one it is"
    federation.wait_for("site-2", "two installations", timeout=seconds(60))
    true = federation.console("site-2").rpartition("This one is ")[2][:12]
    book.confirm("site-2", true, LEAD)
    assert Coordinator(federation, study, tmp_path / "after").result().refusals.empty
    connect_again(federation)
    assert not book.is_shut_out("site-2")


def connect_again(federation: FaultyFederation) -> None:
    """A new connection of site-2's."""
    since = len(federation.console("site-2"))
    federation.kill("site-2", "nvflare")
    federation.wait_for("site-2", "connected to", since, seconds(60))
