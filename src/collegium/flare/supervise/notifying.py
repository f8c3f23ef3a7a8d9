"""Tell systemd how a service is (sd_notify): ready, alive, and what it does. Where there is no systemd, nothing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Final

_SOCKET, _WATCHDOG = "NOTIFY_SOCKET", "WATCHDOG_USEC"
_MOST_SECONDS: Final = 10.0


class Notifier:
    """Of one service. Its children are not told where systemd listens."""

    def __init__(self) -> None:
        self._address = os.environ.pop(_SOCKET, "").replace("@", "\0", 1)
        wanted = float(os.environ.pop(_WATCHDOG, "") or 0) / 1e6
        self._every = min(_MOST_SECONDS, wanted / 3) if wanted else None
        self._told = 0.0

    def ready(self) -> None:
        """It has started."""
        self._send("READY=1")

    def alive(self) -> None:
        """Called often; said as often as is wanted."""
        if self._every is not None and time.monotonic() - self._told >= self._every:
            self._told = time.monotonic()
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
        self._send(f"STATUS={' '.join(text.split())}")

    def stopping(self) -> None:
        """It ends."""
        self._send("STOPPING=1")

    def _send(self, words: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.sendto(words.encode(), self._address)
