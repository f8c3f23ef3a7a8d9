"""A kit's folder as a running supervisor leaves it, without one."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from collegium.flare.kits.kit import SETTINGS, Kit
from collegium.flare.supervise.standing import FILE, Part, Standing, ToldFile

DAY = 86400
STANDING = Standing(
    process=0, version="1.2", started=time.time() - 100, expires=time.time() + 200 * DAY, connected=True,
    since=time.time() - 50, parts={"agent": Part(12), "nvflare": Part(13, restarts=2)},
)  # fmt: skip


def folder(place: Path, kind: Any = "site") -> Kit:
    """One that says what it is, and no more."""
    kit = place / "kit"
    for part in ("startup", "agent", "coordinator"):
        (kit / part).mkdir(parents=True)
    (kit / "startup" / SETTINGS[kind]).write_text(json.dumps({}))
    (kit / "agent" / "agent.sock").touch()
    return Kit(kit, kind, "north", "hospital", "sepsis", "localhost", 8002, STANDING.expires)


@contextmanager
def running(kit: Kit, **changes: Any) -> Iterator[Standing]:
    """As if this process were its supervisor."""
    told = replace(STANDING, process=os.getpid(), **changes)
    lock = kit.folder / ("server.lock" if kit.kind == "server" else "agent/join.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n")
        file.flush()
        ToldFile(kit.folder / FILE).tell(told)
        yield told
