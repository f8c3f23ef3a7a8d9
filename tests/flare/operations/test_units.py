"""Units for systemd: it takes them, they leave few rights, and what they start says that it is ready and alive."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import collegium
from tests.waiting import seconds

from collegium.errors import ConfigError
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.operations.units import unit
from collegium.flare.supervise.notifying import Notifier

KIT = Kit(Path("/srv/collegium/north"), "site", "north", "hospital", "sepsis", "fl.org", 8002, 0.0)
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def settings(text: str) -> dict[str, list[str]]:
    """What a unit sets, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_it_may_write_to_its_kit_and_has_no_rights() -> None:
    said = settings(unit(KIT, user="collegium"))
    expected = {
        "Type": ["notify"], "User": ["collegium"], "ReadWritePaths": ["/srv/collegium/north"],
        "ProtectSystem": ["strict"], "CapabilityBoundingSet": [""], "NoNewPrivileges": ["yes"],
        "PrivateDevices": ["yes"], "RestartPreventExitStatus": ["1 2"], "UMask": ["0077"],
    }  # fmt: skip
    assert {name: said[name] for name in expected} == expected
    assert said["ExecStart"][0].endswith("site join /srv/collegium/north")
    assert "PrivateDevices" not in settings(unit(KIT, user="collegium", gpu=True))


def test_strange_names_are_written_as_systemd_reads_them() -> None:
    strange = Kit(Path("/srv/St. Mary 100%"), "site", "north", "hospital", "sepsis", "fl.org", 8002, 0.0)
    said = settings(unit(strange, user="collegium"))
    assert said["ExecStart"][0].endswith('site join "/srv/St. Mary 100%%"')
    for user in ("", "a b", "%u"):
        with pytest.raises(ConfigError, match="not a user"):
            unit(KIT, user=user)
    at_home = Kit(Path("/home/lea/north"), "site", "north", "hospital", "sepsis", "fl.org", 8002, 0.0)
    assert settings(unit(at_home, user="lea"))["ProtectHome"] == ["read-only"]


@needs_systemd
@pytest.mark.parametrize("kind", ["site", "server"])
def test_systemd_takes_it_and_finds_few_rights(kind: str, tmp_path: Path) -> None:
    kit = Kit(tmp_path / "kit", kind, "north", "hospital", "sepsis", "fl.org", 8002, 0.0)  # type: ignore[arg-type]
    kit.folder.mkdir()
    file = tmp_path / "collegium-north.service"
    file.write_text(unit(kit, user="daemon"))
    checked = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    own = [line for line in checked.stderr.splitlines() if file.name in line]
    assert own == [], checked.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-500:]


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(seconds(10))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ, "children do not speak for it"
        notifier.ready()
        for _ in range(3):
            notifier.alive()
        notifier.status("connected\nto x")
        notifier.stopping()
        said = [heard.recv(1000).decode() for _ in range(4)]
    assert said == ["READY=1", "WATCHDOG=1", "STATUS=connected to x", "STOPPING=1"]
    Notifier().ready()  # without systemd: nothing


def test_the_command_prints_or_installs(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from collegium.flare.supervise.loopback import LoopbackFederation

    federation = LoopbackFederation(tmp_path, sites=("north",))
    server = str(federation.server_kit)
    assert "--metrics-port 9464" in collegium("server", "systemd", server, "--metrics-port", "9464").stdout
    installed = collegium("site", "systemd", str(federation.site_kit("north")), "--out", str(tmp_path))
    assert "systemctl" in installed.stdout
    assert "site join" in (tmp_path / "collegium-north.service").read_text()
    assert collegium("site", "systemd", server).returncode == 2
    assert collegium("server", "systemd", server, "--out", str(tmp_path / "no")).returncode == 1


@pytest.mark.slow
@pytest.mark.xdist_group("many processes")
def test_what_a_unit_starts_says_that_it_is_ready_and_alive_and_ends_when_asked(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from collegium.flare.supervise.loopback import LoopbackFederation

    kit = read_kit(LoopbackFederation(tmp_path, sites=("north",)).server_kit)
    words = shlex.split(settings(unit(kit, user="collegium"))["ExecStart"][0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(seconds(60))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        started = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        said: list[str] = []
        try:
            while "STATUS=started; waiting for sites" not in said or said.count("WATCHDOG=1") < 2:
                said.append(heard.recv(1000).decode())
            started.send_signal(signal.SIGTERM)
            while "STOPPING=1" not in said:
                said.append(heard.recv(1000).decode())
            assert started.wait(seconds(30)) == 0
        finally:
            started.kill()
            started.wait()
    assert "READY=1" in said
