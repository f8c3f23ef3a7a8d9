"""A real server and real sites over loopback: they start, they are refused, they recover, and they end without rest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.flare.conftest import started
from tests.waiting import seconds, until

from collegium.errors import ConfigError
from collegium.flare.coordinator.link import SessionLost
from collegium.flare.kits.federation_file import LeadSection
from collegium.flare.kits.identity import make_agent_folder
from collegium.flare.kits.kit import read_kit
from collegium.flare.kits.provision import provision, renew
from collegium.flare.supervise.dialling import why_unreachable

pytest.importorskip("nvflare")
from tests.flare.faults import FaultyFederation

from collegium.flare.nvflare.admin import connection, registered_sites, set_enabled
from collegium.flare.nvflare.session import NvflareHost
from collegium.flare.supervise.children import members, without_secrets
from collegium.flare.supervise.loopback import LEAD, free_port

pytestmark = pytest.mark.xdist_group("many processes")
COLLEGIUM = [sys.executable, "-c", "from collegium.cli import main; main()"]
PATHS = {"PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path)}
ROGUE = """
import runpy
import nvflare.private.fed.server.shell_cmd as shell
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader, TrainingTopic

def unasked(conn, topic, body, require_authz):
    if body.startswith("cat DELETE "):
        message = Message(topic=TrainingTopic.DELETE_RUN, body="")
        message.set_header(RequestHeader.JOB_ID, body.split()[-1])
        return message
    return Message(topic=topic, body=body)

shell.new_message = unasked
for name in dir(shell):
    executor = getattr(shell, name)
    if isinstance(executor, type) and issubclass(executor, shell._CommandExecutor):
        executor.validate_shell_command = lambda self, args, result: ""
runpy.run_module("nvflare.private.fed.app.server.server_train", run_name="__main__", alter_sys=True)
"""

INTRUDER = """
import os, sys, threading, time

def attack():
    name = "nvflare.fuel.f3.cellnet.core_cell"
    while not hasattr(sys.modules.get(name), "CoreCell"):
        time.sleep(0.05)
    cells = sys.modules[name].CoreCell.ALL_CELLS
    while not getattr(cells.get("site-2"), "running", False):
        time.sleep(0.05)
    from nvflare.fuel.f3.cellnet.utils import new_cell_message
    while True:
        request = new_cell_message({}, b"an order")
        reply = cells["site-2"].send_request("collegium", "order", "site-1", request, timeout=1.0)
        with open(os.environ["INTRUDER"], "a") as file:
            file.write(str(reply.payload) + "\\n")
        time.sleep(0.2)

if "collegium.flare.nvflare.guarded" in sys.orig_argv and "uid=site-2" in sys.orig_argv:
    threading.Thread(target=attack, daemon=True).start()
"""


def gone(kit: Path) -> bool:
    return not members(kit)


def write_site(kit: Path) -> None:
    make_agent_folder(kit)
    (kit / "rows.csv").write_text("a,b,y\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40)))
    (kit / "site.toml").write_text(
        f'name = "{kit.name}"\nlearner = "decision_tree"\n[data]\nsource = "rows.csv"\ntarget = "y"\n'
    )


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """One for the module."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("federation")
        made = FaultyFederation(folder, ("site-1", "site-2", "site-3"))
        for name in made.sites:
            write_site(made.site_kit(name))
        # Python runs it first: site-2 is not to be trusted.
        (folder / "sitecustomize.py").write_text(INTRUDER)
        patch.setenv("PYTHONPATH", os.pathsep.join([PATHS["PYTHONPATH"], str(folder)]))
        patch.setenv("INTRUDER", str(folder / "stolen.txt"))
        with started(made):
            yield made
        for name in ("server", *made.sites):
            assert gone(made.kits / name)


def join(kit: Path) -> subprocess.CompletedProcess[str]:
    command = [*COLLEGIUM, "site", "join", str(kit)]
    return subprocess.run(command, env=os.environ | PATHS, capture_output=True, text=True, timeout=600, check=False)


def start_nvflare(command: list[str], kit: Path, *variables: str) -> subprocess.Popen[bytes]:
    """NVFlare's own process, without a supervisor."""
    settings = "fed_server.json" if kit.name == "server" else "fed_client.json"
    more = ["secure_train=true", "config_folder=config", *variables]
    return subprocess.Popen(
        [sys.executable, *command, "-m", str(kit), "-s", settings, "--set", *more],
        env=os.environ | PATHS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_all_sites_are_registered(federation):
    with connection(read_kit(federation.lead_kit), seconds(20)) as opened:
        assert set(registered_sites(opened)) == {"site-1", "site-2", "site-3"}


def test_the_same_kit_is_not_started_twice(federation):
    done = join(federation.site_kit("site-1"))
    assert done.returncode == 2
    assert f"is already running as process {federation.supervisor('site-1')}" in done.stderr


def test_a_kit_of_another_kind_is_refused(federation):
    done = join(federation.server_kit)
    assert done.returncode == 2
    assert "is a kit for a server, not for a site" in done.stderr


def test_a_port_that_is_taken_is_named(federation, tmp_path):
    other = FaultyFederation(tmp_path, ("site-1",), port=federation.port)
    command = [*COLLEGIUM, "server", "start", str(other.server_kit)]
    done = subprocess.run(command, env=os.environ | PATHS, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert f"Port {federation.port} is in use" in done.stderr


def test_a_kit_of_another_federation_hears_why_and_ctrl_c_ends_it(federation, tmp_path):
    provision(federation.file, tmp_path / "kits")
    kit = tmp_path / "kits" / "site-1"
    write_site(kit)
    console = tmp_path / "console.txt"
    with console.open("w") as output:
        stranger = subprocess.Popen(
            [*COLLEGIUM, "site", "join", str(kit)],
            env=os.environ | PATHS | {"PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until(lambda: "presented a certificate that this federation's authority did not sign" in console.read_text())
    assert len(members(kit)) == 2
    stranger.send_signal(signal.SIGINT)
    assert stranger.wait(seconds(20)) == 0
    assert gone(kit)


def test_another_sites_name_is_refused(federation):
    kit = federation.site_kit("site-2")
    command = ["-m", "nvflare.private.fed.app.client.client_train"]
    thief = start_nvflare(command, kit, "org=owner_of_site_2", "uid=site-1")
    try:
        federation.wait_for("server", "refused: site-2 claimed to be site-1", timeout=seconds(60))
    finally:
        thief.kill()
        thief.wait()


def test_an_agent_that_dies_is_started_again(federation):
    file = federation.site_kit("site-1") / "agent" / "agent.pid"
    old = int(file.read_text())
    assert federation.kill("site-1", "agent") == [old]
    assert until(lambda: file.exists() and int(file.read_text()) != old)
    assert "agent ended (signal SIGKILL), restarting" in federation.console("site-1")


def test_a_connection_that_dies_comes_back(federation):
    seen = len(federation.console("site-1"))
    assert len(federation.kill("site-1", "nvflare")) == 1
    federation.wait_for("site-1", "connected", seen, seconds(60))


def test_a_lead_of_another_organisation_may_not_disable(federation):
    visitor = LeadSection(name="lead@elsewhere.org", organisation="elsewhere")
    file = federation.file.model_copy(update={"leads": [*federation.file.leads, visitor]})
    renew(file, visitor.name, federation.kits)
    with pytest.raises(ConfigError, match="only leads of the organisation that runs the server may"):
        set_enabled(federation.kits / visitor.name, "site-1", enabled=False)


def test_a_supervisor_killed_while_a_job_starts_leaves_no_process_and_sites_come_back(federation):
    seen = {name: len(federation.console(name)) for name in federation.sites}
    host = NvflareHost(federation.server_kit, federation.lead_kit, LEAD)

    def ask() -> None:
        with contextlib.suppress(SessionLost):
            host.begin(frozenset(federation.sites))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until(lambda: len(members(federation.server_kit)) == 2, every=0.01)
    os.kill(federation.supervisor("server"), signal.SIGKILL)
    until(lambda: gone(federation.server_kit), 10)  # NVFlare's own watch would take longer
    federation.kill_server()
    federation.start_server(seconds(60))
    for name, start in seen.items():
        federation.wait_for(name, "connected", start, timeout=seconds(30))
    asking.join(seconds(60))
    host.close()


def test_an_unreachable_server_is_explained(federation, tmp_path):
    other = FaultyFederation(tmp_path, ("site-1",), port=free_port())
    assert "connection refused; no server listens there" in str(why_unreachable(read_kit(other.site_kit("site-1"))))


def test_logs_hold_no_tokens_and_no_keys():
    assert without_secrets("token='0123456789abcdef', x=1") == "token='***', x=1"
    assert without_secrets("-----BEGIN RSA PRIVATE KEY-----MIIEpAIB") == "(a private key)"
    assert without_secrets("a new client with a token. Total: 3") == "a new client with a token. Total: 3"


def test_a_disabled_site_stops_and_says_so_until_it_is_enabled(federation):
    set_enabled(federation.lead_kit, "site-3", enabled=False, absent=True)  # it may be connecting just now
    federation.wait_for("site-3", "site-3 was disabled at", timeout=seconds(60))
    assert "collegium server enable site-3" in federation.console("site-3")
    until(lambda: gone(federation.site_kit("site-3")))
    set_enabled(federation.lead_kit, "site-3", enabled=True)
    federation.start_site("site-3", timeout=seconds(60))


def test_sites_are_kept_apart(federation):
    federation.wait_for("server", "refused: site-2 sent a message for site-1", timeout=seconds(60))
    stolen = federation.kits.parent / "stolen.txt"
    until(stolen.exists)
    assert set(stolen.read_text().split()) == {"None"}


def test_a_killed_or_stopped_site_leaves_no_process(federation):
    killed, stopped = federation.site_kit("site-1"), federation.site_kit("site-2")
    for kit in (killed, stopped):
        assert len(members(kit)) == 2  # NVFlare's, and the agent
    os.kill(federation.supervisor("site-1"), signal.SIGKILL)
    os.kill(federation.supervisor("site-2"), signal.SIGINT)
    until(lambda: gone(stopped), 30)
    until(lambda: gone(killed), 5)


def test_a_server_in_wrong_hands_reads_no_file_and_deletes_no_folder_of_a_site(tmp_path):
    kits = FaultyFederation(tmp_path / "rogue", ("site-1",))
    site, lead = kits.site_kit("site-1"), read_kit(kits.lead_kit)
    write_site(site)
    (tmp_path / "rogue.py").write_text(ROGUE)
    server = start_nvflare([str(tmp_path / "rogue.py")], kits.server_kit, "org=coordinator")
    guarded = start_nvflare(
        ["-m", "collegium.flare.nvflare.guarded", "site"], site, "org=owner_of_site_1", "uid=site-1"
    )
    try:
        until(lambda: why_unreachable(lead) is None)
        with connection(lead, seconds(20)) as opened:
            until(lambda: registered_sites(opened))
            files = [
                opened.api.do_command(f"cat site-1 {file}")["data"][0]["data"]
                for file in (site / "rows.csv", "startup/client.key")
            ]
            for folder in ("agent", "local"):
                opened.api.do_command(f"cat site-1 DELETE {folder}")
        assert files == ["invalid_request", "invalid_request"]
        assert (site / "agent" / "identity.key").exists()
        assert (site / "local" / "resources.json").exists()
    finally:
        for process in (server, guarded):
            process.kill()
            process.wait()
