"""The state of a site's connection, read from NVFlare's log lines: it is reported nowhere else."""

from __future__ import annotations

import re
import threading
import time
from typing import Final

_CONNECTED_SECONDS: Final = 1.0  # a refused connection is closed sooner
_MISSES: Final = 2
_UNANSWERED: Final = re.compile(r"timeout on Request \S+ for \['heart_beat'\]")
_REJECTIONS: Final = (re.compile(r"registration rejected: (.*)"), re.compile(r"(Client '\S+' is disabled)"))
_DIALLED: Final = re.compile(r"Connection \[(\w+) \S+ => \S+\] is created: PID: (\d+)")
_CLOSED: Final = re.compile(r"Connection \[(\w+) .*\] is closed PID: (\d+)")


class Connection:
    """The state of one site's connection, from the lines of its NVFlare process."""

    def __init__(self) -> None:
        self.rejected = ""
        self._registered = False
        self._open_since: float | None = None
        self._misses = 0
        self._unanswered = 0
        self._redialled = False
        self._dialled: tuple[str, ...] | None = None
        self._lock = threading.Lock()

    def hear(self, line: str) -> None:
        """Learn from one line. Of a connection that was replaced, or of a process before this one, some come late."""
        with self._lock:
            if "Successfully registered client" in line:
                self._registered, self._misses = True, 0
                self._unanswered, self._redialled = 0, False
                self._open_since = time.monotonic() - _CONNECTED_SECONDS
            elif made := _DIALLED.search(line):
                self._dialled, self._open_since = made.groups(), time.monotonic()
                self._redialled, self._unanswered = self._registered, 0
            elif (closed := _CLOSED.search(line)) and closed.groups() == self._dialled:
                self._open_since, self._misses = None, 0
            elif "Failed to send heartbeat" in line:
                self._misses += 1
            elif _UNANSWERED.search(line):
                self._unanswered += 1
            for pattern in _REJECTIONS:
                if found := pattern.search(line):
                    self.rejected = found[1]

    def forget(self) -> None:
        """The process is gone."""
        with self._lock:
            self._registered, self._open_since, self._misses = False, None, 0
            self._dialled, self._unanswered, self._redialled = None, 0, False

    @property
    def up(self) -> bool:
        """Registered, and not just dialling."""
        with self._lock:
            since = self._open_since
            return self._registered and since is not None and time.monotonic() - since >= _CONNECTED_SECONDS

    @property
    def disowned(self) -> bool:
        """The server no longer knows this site; NVFlare would carry on as if nothing had happened.

        A server with another key, which was renewed, does not answer what it cannot verify. One that does not answer
        may also be busy: it is given more time, unless it was started anew since the site registered.
        """
        with self._lock:
            patience = 1 if self._redialled else _MISSES
            return self._misses >= _MISSES or (self._registered and self._unanswered >= patience)
