"""Run a federation's server, or a site, in the foreground: start its processes, keep them running, end them all.

A site is two processes: NVFlare's, which talks to the server, and the agent, which has the data. What they print goes
to `logs` in the kit; the console gets a line when something changes.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from collegium import __version__
from collegium.errors import CollegiumError, ConfigError
from collegium.flare.kits.kit import SETTINGS, Kit
from collegium.flare.kits.local_policy import server_resources
from collegium.flare.nvflare.guarded import die_with_parent
from collegium.flare.supervise.children import Child, end_members, locked
from collegium.flare.supervise.connection import Connection
from collegium.flare.supervise.dialling import check_port, why_unreachable
from collegium.flare.supervise.news import ServerNews, hear_notice
from collegium.flare.supervise.notifying import Notifier
from collegium.flare.supervise.renewed import Expiry, Renewed
from collegium.flare.supervise.standing import FILE, Standing, ToldFile

Say = Callable[[str], None]
_TICK_SECONDS: Final = 0.2
_FIRST_DIAL_SECONDS, _DIAL_SECONDS = 4.0, 5.0
_AGENT: Final = "agent"
_OWNER_MUST_ACT: Final = 2  # the agent's exit code when site.toml or the data need a change


class Stopped(CollegiumError):
    """A process cannot go on; restarting it would not help."""


class Supervisor:
    """Keeps children running until a signal comes, or one of them cannot go on."""

    def __init__(self, kit: Kit, children: list[Child], say: Say, notifier: Notifier) -> None:
        self.kit = kit
        self._children = children
        self._say, self._notifier = say, notifier
        self._stop = threading.Event()
        self._renewed = Renewed(kit, say)
        self._file = ToldFile(kit.folder / FILE)
        self._started = self._since = time.time()
        self._was_up = False
        self._reason = ""

    def run(self) -> None:
        """Start all, and end all."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self._stop.set())
        end_members(self.kit.folder)  # left behind by a supervisor that was killed
        try:
            for child in self._children:
                child.start()
            self._notifier.ready()  # a site may wait long for a server that is away: that is no reason to end it
            while not self._stop.wait(_TICK_SECONDS):
                self._notifier.alive()
                for child in self._children:
                    self._tend(child)
                self.watch()
                self._file.tell(self.standing())
            self._say("stopping")
            self._notifier.stopping()
        finally:
            end_members(self.kit.folder)
            for child in self._children:
                child.forget()

    @property
    def up(self) -> bool:
        """A site: connected to the server. A server: it takes connections."""
        return True

    @property
    def sites(self) -> tuple[str, ...]:
        """Who is connected to a server."""
        return ()

    def standing(self) -> Standing:
        """What it says of itself."""
        return Standing(
            os.getpid(), __version__, self._started, self.kit.expires, self._was_up, self._since, self._reason,
            self.sites, {child.name: child.part for child in self._children},
        )  # fmt: skip

    def watch(self) -> None:
        """Called at every tick."""
        if (kit := self._renewed.look()) is not None:
            self.kit = kit
            self._say(f"has a new certificate, valid for {kit.days_left:.0f} days; connecting with it")
            self.reconnect()
        up = self.up
        if up != self._was_up:
            self._was_up, self._since = up, time.time()
            self.turned(up)

    def reconnect(self) -> None:
        """Called when there is a new certificate: whatever holds the old one is started again."""
        for child in self._children:
            if child.name != _AGENT:  # which looks for itself, and goes on with what it does
                child.end()

    def turned(self, up: bool) -> None:
        """Called when it is connected, and when it is no longer."""

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
    notifier = Notifier()
    _prepare(kit)
    with locked(kit.folder / "server.lock", kit.folder):
        check_port(kit)
        (kit.folder / "coordinator").mkdir(mode=0o700, exist_ok=True)
        resources = kit.folder / "local" / "resources.json"
        resources.write_text(json.dumps(server_resources(kit.folder), indent=1) + "\n", encoding="utf-8")
        _ServerSupervisor(kit, _telling(say, notifier), notifier).run()


class _ServerSupervisor(Supervisor):
    """Also knows which sites are connected."""

    def __init__(self, kit: Kit, say: Say, notifier: Notifier) -> None:
        self._news, self._expiry = ServerNews(say), Expiry(say)
        super().__init__(kit, [Child("server", _nvflare_arguments(kit), kit.folder, self._news.hear)], say, notifier)

    @property
    def up(self) -> bool:
        return self._news.started

    @property
    def sites(self) -> tuple[str, ...]:
        return self._news.sites

    def watch(self) -> None:
        super().watch()
        self._expiry.look("the server", self.kit.days_left)

    def on_end(self, child: Child, code: int) -> None:
        self._news.forget()


def run_site(kit: Kit, say: Say) -> None:
    """Run a site until a signal comes, or the server has disabled it."""
    notifier = Notifier()
    _prepare(kit)
    with locked(kit.folder / "agent" / "join.lock", kit.folder):
        _SiteSupervisor(kit, _telling(say, notifier), notifier).run()


class _SiteSupervisor(Supervisor):
    """Also says when a site's connection changes, and why it cannot connect."""

    def __init__(self, kit: Kit, say: Say, notifier: Notifier) -> None:
        self._connection = Connection()
        self._nvflare = Child("nvflare", _nvflare_arguments(kit), kit.folder, self._connection.hear)
        pid_file = kit.folder / "agent" / "agent.pid"
        agent = Child(_AGENT, ["agent", str(kit.folder)], kit.folder, lambda line: hear_notice(line, say), pid_file)
        super().__init__(kit, [agent, self._nvflare], say, notifier)
        self._dial_at = time.monotonic() + _FIRST_DIAL_SECONDS

    @property
    def up(self) -> bool:
        return self._connection.up

    def watch(self) -> None:
        self._check_rejected()
        if self._connection.disowned:
            self._connection.forget()
            self._nvflare.end()
        super().watch()
        if not self._was_up and time.monotonic() >= self._dial_at:
            self._explain()

    def turned(self, up: bool) -> None:
        if up:
            self._say(f"connected to {self.kit.address}")
            self._reason = ""
        else:
            self._say(f"lost the connection to {self.kit.address}; reconnecting")
            self._dial_at = time.monotonic() + 1.0

    def on_end(self, child: Child, code: int) -> None:
        if child.name == _AGENT and code == _OWNER_MUST_ACT:
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


def _telling(say: Say, notifier: Notifier) -> Say:
    """Say it on the console, and to systemd."""

    def tell(text: str) -> None:
        say(text)
        notifier.status(text)

    return tell


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
