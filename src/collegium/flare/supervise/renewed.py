"""Notice that a kit's certificate was renewed while its programs run, and that it ends soon.

A certificate and its key are two files: while one of them is new and the other is not, nothing is renewed yet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from collegium.flare.kits.kit import Kit
from collegium.flare.supervise.children import import_paths

_LOOK_SECONDS: Final = 1.0
_READ_SECONDS: Final = 60.0
_WARN_DAYS: Final = (30, 14, 7, 3, 2, 1, 0)


class Renewed:
    """Watches the certificate of one kit."""

    def __init__(self, kit: Kit, say: Callable[[str], None]) -> None:
        self._kit, self._say = kit, say
        self._stamp = self._files()
        self._next = 0.0

    def look(self) -> Kit | None:
        """The kit with its new certificate, once, when there is one that can be used."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + _LOOK_SECONDS
        stamp = self._files()
        if stamp == self._stamp:
            return None
        read = _read(self._kit.folder)
        if self._files() != stamp:
            return None  # it has gone on changing: look again
        self._stamp = stamp
        if isinstance(read, str):
            self._say(f"the certificate was replaced, but cannot be used: {read} The old one is used until it can")
            return None
        self._kit = read
        return read

    def _files(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for file in (self._kit.certificate, self._kit.key):
            try:
                state = file.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((state.st_mtime_ns, state.st_ino, state.st_size))
        return tuple(found)


class Expiry:
    """Says that a certificate ends, a few times before it does."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: int | None = None

    def look(self, name: str, days: float) -> None:
        """Say so if it is time."""
        passed = [limit for limit in _WARN_DAYS if days < limit]
        reached = min(passed, default=None)
        if reached is not None and reached != self._said:
            when = f"expires in {days:.0f} days" if days > 0 else "has expired"
            self._say(f"the certificate of {name} {when}: have it renewed (collegium site renew, server renew)")
        self._said = reached


def _read(kit: Path) -> Kit | str:
    """The kit, read and checked by another program: this one stays small. Or what is wrong with it."""
    command = [sys.executable, "-m", "collegium.flare.supervise.program", "--read", str(kit)]
    environment = os.environ | {"PYTHONPATH": import_paths()}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_READ_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}."
    if done.returncode:
        return " ".join(done.stderr.split()) or "it cannot be read."
    return kit_from_json(done.stdout)


def kit_from_json(text: str) -> Kit:
    """A kit that another program has read and checked."""
    read = json.loads(text)
    return Kit(**read | {"folder": Path(read["folder"])})
