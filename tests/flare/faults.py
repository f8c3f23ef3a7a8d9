"""A federation on this machine whose parts tests kill, stop and start again."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil

from collegium.flare.supervise.children import members
from collegium.flare.supervise.loopback import LoopbackFederation

Part = Literal["all", "job", "agent", "nvflare"]
_WORDS = {"job": ("job",), "agent": ("agent",), "nvflare": ("site", "server")}


class FaultyFederation(LoopbackFederation):
    """A federation that can be taken apart."""

    metrics: Mapping[str, int]
    """Where the server and sites let Prometheus read."""

    def start_server(self, timeout: float = 60.0) -> None:
        """Start the server again."""
        seen = len(self.console("server"))
        self.launch_server()
        self.wait_for("server", "started", seen, timeout)

    def start_site(self, name: str, timeout: float = 60.0) -> None:
        """Start a site again, and wait until it is registered."""
        seen = len(self.console(name))
        (self.site_kit(name) / "agent" / "agent.sock").unlink(missing_ok=True)  # a killed agent leaves it behind
        self._launch(name, "site", "join", self.site_kit(name))
        self._wait_for_site(name, seen, timeout)

    def kill(self, site: str, what: Part = "all") -> list[int]:
        """Kill -9 a site's processes, or the server's; returns their ids. `job`, `agent` and `nvflare` leave the
        supervisor, which starts agent and NVFlare again."""
        return self._kill(site, self.kits / site, what)

    def kill_server(self) -> list[int]:
        """Kill -9 the server, its supervisor and its jobs."""
        return self.kill("server")

    def supervisor(self, name: str) -> int:
        """The process id of the server's or a site's supervisor."""
        return self._running[name].pid

    def ended(self) -> list[str]:
        """Whose supervisors have ended though nobody killed them."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def orphans(self) -> list[str]:
        """Processes that run though the one that started them has ended."""
        found = []
        for name, supervisor in self._running.items():
            with contextlib.suppress(psutil.Error):  # one has just ended: its children follow
                processes = members(self.kits / name)
                parents = {supervisor.pid, *(process.pid for process in processes)}
                found += [f"{name}: {process.pid}" for process in processes if process.ppid() not in parents]
        return found

    def stop_politely(self) -> list[str]:
        """Stop everything as its owners would; returns whose processes are left."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()
        return [name for name in self._running if members(self.kits / name)]

    def _kill(self, name: str, kit: Path, what: Part) -> list[int]:
        found = []
        for process in members(kit):
            with contextlib.suppress(Exception):  # it has just ended
                if what == "all" or _role(process.cmdline()) in _WORDS[what]:
                    found.append(process.pid)
        if what == "all" and (supervisor := self._running.pop(name, None)) is not None:
            supervisor.kill()
            supervisor.wait()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found


def _role(command: list[str]) -> str:
    """What a process of a kit is: the word after our module's name."""
    for before, word in itertools.pairwise(command):
        if before == "collegium.flare.nvflare.guarded":
            return word
    return ""
