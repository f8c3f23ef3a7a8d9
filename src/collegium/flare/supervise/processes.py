"""Run a federation's server, or a site, in the foreground: start its processes, keep them running, end them all.

A site is two processes: NVFlare's, which talks to the server, and the agent, which has the data. What they print goes
to `logs` in the kit; the console gets a line when something changes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from collegium.errors import CollegiumError, ConfigError
from collegium.flare import NOTICE
from collegium.flare.kits.kit import SETTINGS, Kit
from collegium.flare.kits.local_policy import server_resources
from collegium.flare.nvflare.guarded import die_with_parent
from collegium.flare.supervise.children import Child, end_members, locked
from collegium.flare.supervise.connection import Connection
from collegium.flare.supervise.dialling import check_port, why_unreachable

Say = Callable[[str], None]
_NEWS: Final = (
    (r"root: Server started$", "started; waiting for sites"),
    (r"New client (\S+?)@\S* joined", r"\1 connected"),
    (r"Re-activate the client: (\S+)", r"\1 connected"),
    (r"Remove the dead Client\. Name: (\S+?)\.", r"\1 lost"),
    (r"Client (\S+) (disabled|enabled)\.", r"\1 \2"),
    (r"authenticated as '(\S+)' but claimed (?:endpoint )?'(\S+?)'", r"refused: \1 claimed to be \2"),
    (r"refused: ([^\s.]+)\S* sent a message for ([^\s.]+)", r"refused: \1 sent a message for \2"),
)
"""What NVFlare's server logs, and what the console says then."""
_TICK_SECONDS: Final = 0.2
_FIRST_DIAL_SECONDS, _DIAL_SECONDS = 4.0, 5.0
_OWNER_MUST_ACT: Final = 2  # the agent's exit code when site.toml or the data need a change


class Stopped(CollegiumError):
    """A process cannot go on; restarting it would not help."""


class Supervisor:
    """Keeps children running until a signal comes, or one of them cannot go on."""

    def __init__(self, kit: Kit, children: list[Child], say: Say) -> None:
        self.kit = kit
        self._children = children
        self._say = say
        self._stop = threading.Event()

    def run(self) -> None:
        """Start all, and end all."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self._stop.set())
        end_members(self.kit.folder)  # left behind by a supervisor that was killed
        try:
            for child in self._children:
                child.start()
            while not self._stop.wait(_TICK_SECONDS):
                for child in self._children:
                    self._tend(child)
                self.watch()
            self._say("stopping")
        finally:
            end_members(self.kit.folder)
            for child in self._children:
                child.forget()

    def watch(self) -> None:
        """Called at every tick."""

    def on_end(self, child: Child, code: int) -> None:
        """Called when a child has ended; raises where starting it again would not help."""

    def _tend(self, child: Child) -> None:
        code = child.ended()
        if code is not None:
            self.on_end(child, code)
            self._say(f"{child.name} ended ({_ending(code)}), restarting; see {self.kit.folder / 'logs'}")
        if child.restart_at is not None and time.monotonic() >= child.restart_at:
            child.start()


def run_server(kit: Kit, say: Say) -> None:
    """Run a federation's server until a signal comes."""
    _prepare(kit)
    with locked(kit.folder / "server.lock", kit.folder):
        check_port(kit)
        (kit.folder / "coordinator").mkdir(mode=0o700, exist_ok=True)
        resources = kit.folder / "local" / "resources.json"
        resources.write_text(json.dumps(server_resources(kit.folder), indent=1) + "\n", encoding="utf-8")
        arguments, said = _nvflare_arguments(kit), set[str]()
        server = Child("server", arguments, kit.folder, lambda line: _hear_server(line, said, say))
        Supervisor(kit, [server], say).run()


def _hear_server(line: str, said: set[str], say: Say) -> None:
    _hear_notice(line, say)
    for pattern, words in _NEWS:
        if found := re.search(pattern, line):
            text = found.expand(words)
            if text not in said:
                say(text)
            if text.startswith("refused"):  # said once: whoever does that tries again and again
                said.add(text)
            return


def _hear_notice(line: str, say: Say) -> None:
    if line.startswith(NOTICE):
        say(line.removeprefix(NOTICE))


def run_site(kit: Kit, say: Say) -> None:
    """Run a site until a signal comes, or the server has disabled it."""
    _prepare(kit)
    with locked(kit.folder / "agent" / "join.lock", kit.folder):
        _SiteSupervisor(kit, say).run()


class _SiteSupervisor(Supervisor):
    """Also says when a site's connection changes, and why it cannot connect."""

    def __init__(self, kit: Kit, say: Say) -> None:
        self._connection = Connection()
        self._nvflare = Child("nvflare", _nvflare_arguments(kit), kit.folder, self._connection.hear)
        pid_file = kit.folder / "agent" / "agent.pid"
        agent = Child("agent", ["agent", str(kit.folder)], kit.folder, lambda line: _hear_notice(line, say), pid_file)
        super().__init__(kit, [agent, self._nvflare], say)
        self._was_up = False
        self._reason = ""
        self._dial_at = time.monotonic() + _FIRST_DIAL_SECONDS

    def watch(self) -> None:
        self._check_rejected()
        if self._connection.disowned:
            self._connection.forget()
            self._nvflare.end()
        up = self._connection.up
        if up and not self._was_up:
            self._say(f"connected to {self.kit.address}")
            self._reason = ""
        elif self._was_up and not up:
            self._say(f"lost the connection to {self.kit.address}; reconnecting")
            self._dial_at = time.monotonic() + 1.0
        self._was_up = up
        if not up and time.monotonic() >= self._dial_at:
            self._explain()

    def on_end(self, child: Child, code: int) -> None:
        if child.name == "agent" and code == _OWNER_MUST_ACT:
            raise ConfigError(child.last_line.removeprefix("collegium: "))
        if child is self._nvflare:
            self._check_rejected()
            self._connection.forget()

    def _explain(self) -> None:
        reason = why_unreachable(self.kit) or ""
        if reason and reason != self._reason:
            self._say(f"{reason} (retrying every few seconds)")
        self._reason = reason
        self._dial_at = time.monotonic() + _DIAL_SECONDS

    def _check_rejected(self) -> None:
        reason, name, address = self._connection.rejected, self.kit.name, self.kit.address
        if reason.endswith("is disabled"):
            undo = f"ask the coordinator to enable it again (collegium server enable {name})"
            raise Stopped(f"{name} was disabled at {address}: {undo}.")
        if reason:
            raise Stopped(f"{address} refused {name}: {reason}.")


def _prepare(kit: Kit) -> None:
    die_with_parent()
    os.umask(0o077)  # whatever the children write is private
    for name in ("transfer", "logs"):
        (kit.folder / name).mkdir(exist_ok=True)


def _nvflare_arguments(kit: Kit) -> list[str]:
    variables = ["secure_train=true", f"org={kit.organisation}", "config_folder=config"]
    if kit.kind == "site":
        variables += [f"uid={kit.name}", "heart_beat_interval=4"]
    return [kit.kind, "-m", str(kit.folder), "-s", SETTINGS[kit.kind], "--set", *variables]


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
