"""A console: pages behind a guard, on a socket of this machine."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from collegium.console.access import Access, Role
from collegium.console.events import end_streams
from collegium.console.guard import Guard
from collegium.console.hosts import Hosts, is_loopback, written
from collegium.console.static_files import STATIC
from collegium.errors import CollegiumError, ConfigError, in_one_line

LOOPBACK: Final = "127.0.0.1"
_LOG: Final = logging.getLogger(__name__)
_MOST_CONNECTIONS: Final = 256
_GRACE: Final = 1
"""Seconds that open connections have when the console ends."""
_TICK: Final = 1.0
"""Seconds by which the Date of answers may be late: nothing else needs a console that wakes up by itself."""
_PATIENCE: Final = 30.0
"""Seconds after which a console that was told to end, and has not, is left to itself: nobody waits for ever."""


class Console:
    """Pages for one browser that may act, and for others that may look.

    Args:
        routes: The pages.
        command: The command that was typed: browsers without a link are told to run it.
        host: The address to listen on. Anything but this machine's own is a decision to take with care.
        port: The port (0: any that is free).
        names: Further names under which browsers may ask, such as that of a proxy.
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        command: str,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        self._socket = listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._access = Access()
        pages = Starlette(routes=[*routes, STATIC], exception_handlers={CollegiumError: _in_one_line})
        hosts = Hosts(host, self.port, names)
        app: ASGIApp = Guard(pages, self._access, hosts, command, f"collegium-{self.port}")
        self._server = _Server(
            uvicorn.Config(
                app,
                log_level=logging.WARNING,
                access_log=False,  # it would write the tokens of links
                server_header=False,
                lifespan="off",
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_GRACE,
                ws="none",
            )
        )

    def link(self, role: Role = "owner") -> str:
        """A link that works once: for whoever may act, or for a guest, who may look."""
        host = LOOPBACK if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        return f"http://{written(host)}:{self.port}/?token={self._access.link(role)}"

    @property
    def is_local(self) -> bool:
        """Can only this machine reach it?"""
        return is_loopback(self.host)

    def run(self) -> None:
        """Serve until interrupted."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.end()

    def close(self) -> None:
        """Leave the port to others."""
        self._socket.close()

    @contextmanager
    def in_background(self) -> Iterator[Console]:
        """Serve from a thread of its own for as long as the block lasts."""
        thread = threading.Thread(target=self.run, name="console", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join(_PATIENCE)
            if thread.is_alive():
                _LOG.error("the console on port %d has not ended after %g s", self.port, _PATIENCE)


class _Server(uvicorn.Server):
    """One that does not wait for browsers that listen: they would listen for ever."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Wait until it is told to end. It wakes up less often than uvicorn does: pages stay open for days."""
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._told.wait()

    def end(self) -> None:
        """End soon, whichever thread says so."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._told.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn does at a signal, and at once."""
        super().handle_exit(sig, frame)
        self.end()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        end_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; an address that cannot be had is an error that says what to do."""
    if not host.strip():  # to the system that would mean every address
        raise ConfigError(_why_not(host, port, OSError()))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, OverflowError) as error:
        bound.close()
        raise ConfigError(_why_not(host, port, error)) from None
    return bound


def _why_not(host: str, port: int, error: OSError | OverflowError) -> str:
    where = f"{written(host)}:{port}"
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"{where} is in use by another program: choose another port, or leave --port out to get a free one."
    if number == errno.EACCES:
        return f"{where} is not open to this user: choose a port above 1023, or leave --port out to get a free one."
    if isinstance(error, OverflowError):
        return f"There is no port {port}: choose one from 1024 to 65535, or leave --port out to get a free one."
    return f"This machine has no address {host!r} to listen on: leave --host out for {LOOPBACK}."


async def _in_one_line(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{in_one_line(error)}\n", 409)
