"""What happens at a server, read from NVFlare's log lines: it is reported nowhere else."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final

from collegium.flare import NOTICE

STARTED: Final = re.compile(r"root: Server started$")
_HERE: Final = re.compile(r"New client (\S+?)@\S* joined|Re-activate the client: (\S+)")
_AWAY: Final = re.compile(r"Client Name:(\S+) left|Client (\S+) disabled\.")
_NEWS: Final = (
    (STARTED.pattern, "started; waiting for sites"),
    (r"New client (\S+?)@\S* joined", r"\1 connected"),
    (r"Re-activate the client: (\S+)", r"\1 connected"),
    (r"Remove the dead Client\. Name: (\S+?)\.", r"\1 lost"),
    (r"Client (\S+) (disabled|enabled)\.", r"\1 \2"),
    (r"authenticated as '(\S+)' but claimed (?:endpoint )?'(\S+?)'", r"refused: \1 claimed to be \2"),
    (r"refused: ([^\s.]+)\S* sent a message for ([^\s.]+)", r"refused: \1 sent a message for \2"),
)
"""What NVFlare's server logs, and what the console says then."""


class ServerNews:
    """Says what an operator should know, and remembers who is connected."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()
        self._sites: set[str] = set()
        self._lock = threading.Lock()
        self.started = False

    @property
    def sites(self) -> tuple[str, ...]:
        """Who is connected."""
        with self._lock:
            return tuple(sorted(self._sites))

    def hear(self, line: str) -> None:
        """Learn from one line."""
        hear_notice(line, self._say)
        if STARTED.search(line):
            self.started = True
        with self._lock:
            self._sites |= _names(_HERE, line)
            self._sites -= _names(_AWAY, line)
        for pattern, words in _NEWS:
            if found := re.search(pattern, line):
                text = found.expand(words)
                if text not in self._said:
                    self._say(text)
                if text.startswith("refused"):  # said once: whoever does that tries again and again
                    self._said.add(text)

    def forget(self) -> None:
        """The process is gone."""
        with self._lock:
            self.started = False
            self._sites.clear()


def hear_notice(line: str, say: Callable[[str], None]) -> None:
    """Say what a child wants its owner to know at once."""
    if line.startswith(NOTICE):
        say(line.removeprefix(NOTICE))


def _names(pattern: re.Pattern[str], line: str) -> set[str]:
    found = pattern.search(line)
    return set() if found is None else {name for name in found.groups() if name is not None}
