"""A systemd unit for a server or a site: it may write to its kit, dial and listen, and little else."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError
from collegium.flare.kits.kit import Kit

_HOMES: Final = ("/home", "/root", "/run/user")
_UNIT: Final = """\
# {place}: written by `{command}`; write it again after you moved the kit or the program.
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
User={user}
ExecStart={start}
Restart=on-failure
RestartSec=10
# 1: disabled or refused by the server; 2: a mistake in a file. Starting it again would not help.
RestartPreventExitStatus=1 2
WatchdogSec=120
TimeoutStopSec=30
KillMode=mixed
UMask=0077
Environment=PYTHONUNBUFFERED=1

# It writes to its kit, and to nothing else.
ProtectSystem=strict
ReadWritePaths={kit}
ProtectHome={homes}
PrivateTmp=yes
{devices}
# It has no rights beyond its user's, and gets none.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
KeyringMode=private
RemoveIPC=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
_NO_DEVICES: Final = "PrivateDevices=yes\nDevicePolicy=closed\n"
_GPU: Final = "DevicePolicy=closed\nDeviceAllow=char-nvidia rw\nDeviceAllow=char-nvidia-uvm rw\n"


def unit(kit: Kit, *, user: str, options: tuple[str, ...] = (), gpu: bool = False) -> str:
    """The unit for a server's or a site's kit, which runs as this user."""
    if not user or any(sign.isspace() or sign in "%\\" for sign in user):
        raise ConfigError(f"{user!r} is not a user: give the name of an account that does nothing else.")
    command = ["server", "start"] if kit.kind == "server" else ["site", "join"]
    program = _program()
    in_homes = any(str(path).startswith(f"{home}/") for path in (kit.folder, program[0]) for home in _HOMES)
    what = f"server of {kit.federation}" if kit.kind == "server" else f"site {kit.name} of {kit.federation}"
    return _UNIT.format(
        place=unit_name(kit),
        command=f"collegium {kit.kind} systemd",
        description=f"Collegium: {what}",
        user=user,
        start=" ".join(map(_quoted, [*program, *command, str(kit.folder), *options])),
        kit=_quoted(str(kit.folder)),
        homes="read-only" if in_homes else "yes",
        devices=_GPU if gpu else _NO_DEVICES,
    )


def unit_name(kit: Kit) -> str:
    """What its file is called."""
    return f"collegium-server-{kit.federation}.service" if kit.kind == "server" else f"collegium-{kit.name}.service"


def _program() -> list[str]:
    script = Path(sys.executable).with_name("collegium")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "collegium"]


def _quoted(word: str) -> str:
    """As systemd reads it: % begins a specifier, and blanks end a word."""
    safe = word.replace("%", "%%")
    return safe if shlex.quote(word) == word else '"' + safe.replace("\\", "\\\\").replace('"', '\\"') + '"'
