"""A whole federation on one machine: server and sites as real processes with real certificates, over loopback.

For rehearsals and tests. Whatever was started ends with it, also when the program that started it is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from collegium.errors import CollegiumError, ConfigError
from collegium.flare.kits.federation_file import FederationFile, LeadSection, ServerSection, SiteSection
from collegium.flare.kits.identity import make_agent_folder
from collegium.flare.kits.provision import provision
from collegium.flare.nvflare.guarded import PARENT
from collegium.flare.supervise.children import end_members, import_paths

LEAD: Final = "lead@coordinator.org"
_COMMAND: Final = "from collegium.cli import main; main()"
_STOP_SECONDS: Final = 15.0


class LoopbackFederation:
    """Provisions on creation, so that site files can be written; starts everything on entry and stops it on exit.

    `server_options` are further words of `collegium server start`. Use it from the main thread: what it starts ends
    with the thread that started it.
    """

    def __init__(
        self,
        folder: Path,
        sites: Sequence[str] = ("site-1", "site-2", "site-3"),
        port: int | None = None,
        host: str = "localhost",
        server_options: Sequence[str] = (),
    ) -> None:
        self.sites = tuple(sites)
        self.port = free_port() if port is None else port
        self.kits = folder.resolve() / "kits"
        self._server_options = tuple(server_options)
        self._consoles = folder.resolve() / "consoles"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.file = FederationFile(
            name="loopback",
            server=ServerSection(host=host, port=self.port, organisation="coordinator"),
            sites=[SiteSection(name=name, organisation=f"owner-of-{name}") for name in self.sites],
            leads=[LeadSection(name=LEAD, organisation="coordinator")],
        )
        provision(self.file, self.kits)
        self._consoles.mkdir(exist_ok=True)

    @property
    def server_kit(self) -> Path:
        """The server's kit."""
        return self.kits / "server"

    @property
    def lead_kit(self) -> Path:
        """The lead's kit."""
        return self.kits / LEAD

    def site_kit(self, name: str) -> Path:
        """A site's kit."""
        return self.kits / name

    def write_site(self, name: str, text: str) -> Path:
        """Write a site's `site.toml`, and make the key that `collegium site init` would make."""
        make_agent_folder(self.site_kit(name))
        file = self.site_kit(name) / "site.toml"
        file.write_text(text, encoding="utf-8")
        return file

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, timeout: float = 60.0) -> None:
        """Start the server and all sites, and wait until every site is registered."""
        self.launch_server()
        for name in self.sites:
            self._launch(name, "site", "join", self.site_kit(name))
        self.wait_for("server", "started", 0, timeout)
        for name in self.sites:
            self._wait_for_site(name, 0, timeout)

    def launch_server(self) -> None:
        """Start the server, and do not wait for it."""
        self._launch("server", "server", "start", self.server_kit, *self._server_options)

    def stop(self) -> None:
        """End everything that was started."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        for name in ("server", *self.sites):
            end_members(self.kits / name, grace=0.5)

    def console(self, name: str) -> str:
        """What the server's or a site's supervisor has said."""
        file = self._consoles / f"{name}.txt"
        return file.read_text(errors="replace") if file.exists() else ""

    def python(self, name: str) -> Sequence[str]:
        """How Python is started for the server or a site."""
        return (sys.executable,)

    def _launch(self, name: str, *command: object) -> None:
        if name in self._running and self._running[name].poll() is None:
            raise ConfigError(f"{name} is already running.")
        with (self._consoles / f"{name}.txt").open("ab") as console:
            self._running[name] = subprocess.Popen(
                [*self.python(name), "-c", _COMMAND, *map(str, command)],
                env=os.environ | {PARENT: str(os.getpid()), "PYTHONPATH": import_paths(), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, name: str, words: str, since: int = 0, timeout: float = 60.0) -> None:
        """Wait until a supervisor has said `words`, after the first `since` characters of its console."""
        self._until(lambda: words in self.console(name)[since:], name, f"say {words!r}", timeout)

    def _wait_for_site(self, name: str, since: int, timeout: float) -> None:
        """Registered, and its agent listens."""
        self.wait_for(name, "connected", since, timeout)
        self._until((self.site_kit(name) / "agent" / "agent.sock").exists, name, "start its agent", timeout)

    def _until(self, done: Callable[[], bool], name: str, what: str, timeout: float) -> None:
        end = time.monotonic() + timeout
        while True:
            ended = self._running[name].poll() is not None  # before its last words are read
            if done():
                return
            if ended:
                raise CollegiumError(f"{name} ended: {' '.join(self.console(name).strip().splitlines()[-1:])}")
            if time.monotonic() > end:
                raise CollegiumError(f"{name} did not {what} within {timeout:.0f} seconds: {self.console(name)}")
            time.sleep(0.05)


def free_port() -> int:
    """A free port on the loopback interface."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
