"""Who is at the other end of a connection on this machine. Only Linux says; elsewhere signatures must do."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
_ESTABLISHED: Final = "01"
_LINUX: Final = sys.platform.startswith("linux")


def is_own_process(connected: socket.socket) -> bool:
    """Whether a local socket's other end is a process of this user that our own supervisor started, or its child."""
    if not _LINUX:
        return True
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    return user == os.getuid() and _descends(process, os.getppid())


def _descends(process: int, ancestor: int) -> bool:
    with suppress(OSError, ValueError, IndexError):  # it has ended
        while process > 0:  # in a container the supervisor may be process 1
            if process == ancestor:
                return True
            # after the program's name, which may hold anything: state, parent, ...
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def is_own_user(connected: socket.socket) -> bool:
    """Whether the other end of a TCP connection is a program of this user, on this machine."""
    if not _LINUX:
        return True
    with suppress(OSError, ValueError, IndexError):
        ends = [_as_listed(*connected.getpeername()), _as_listed(*connected.getsockname())]
        for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
            columns = line.split()
            # one that was closed in the meantime is listed without its owner
            if columns[1:3] == ends and columns[3] == _ESTABLISHED and columns[9] != "0":
                return int(columns[7]) == os.getuid()
    return False


def _as_listed(host: str, port: int) -> str:
    """An address as the kernel lists it."""
    return f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
