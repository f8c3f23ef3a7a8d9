"""An endpoint over HTTP for monitoring programs: /metrics, /healthz and /livez. It reads, and changes nothing.

It has no password, so it listens on this machine only unless its owner says otherwise. One request at a time, each with
little time: nobody can make a supervisor hold many.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from collegium.errors import ConfigError
from collegium.flare.kits.kit import Kit
from collegium.flare.operations.health import Check, health, is_well
from collegium.flare.operations.metrics import KitMetrics, written

_SECONDS: Final = 5.0
"""For a request to come."""
_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class Endpoint:
    """Listens once it is made; answers in a thread of its own from `start` on."""

    def __init__(self, kit: Kit, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = _listening(host.strip("[]"), int(port), _answering(kit, host))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer from now on."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


def is_of_this_machine(host: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int, answer: type[BaseHTTPRequestHandler]) -> HTTPServer:
    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:  # without asking DNS for this machine's name
            socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever hangs up is not worth a line."""

    try:
        return Server((host, port), answer)
    except socket.gaierror:
        raise ConfigError(f"metrics: {host!r} is not an address of this machine.") from None
    except PermissionError:
        raise ConfigError(f"metrics: no permission to listen on port {port}: choose a port above 1023.") from None
    except OSError as error:
        raise ConfigError(f"metrics: cannot listen on {host}:{port} ({error.strerror}): choose another port.") from None


def _answering(kit: Kit, host: str) -> type[BaseHTTPRequestHandler]:
    metrics = KitMetrics(kit)

    class Answering(BaseHTTPRequestHandler):
        timeout = _SECONDS
        server_version, sys_version = "Collegium", ""

        def do_GET(self) -> None:
            """Answer one question."""
            name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            # a website can point its own name to this machine, and read what its visitors' browsers then get
            if is_of_this_machine(host) and name.lower() not in _NAMES:
                self._say(421, "This address is asked for under another name.\n")
            elif self.path == "/metrics":
                body, kind = written(metrics, self.headers.get("Accept", ""))
                self._send(200, body, kind)
            elif self.path in ("/healthz", "/livez"):
                checks, alive = health(kit.folder), self.path == "/livez"
                shown = [check for check in checks if check.alive or not alive]
                self._say(200 if is_well(checks, alive=alive) else 503, "".join(map(_line, shown)))
            else:
                self._say(404, "Only /metrics, /healthz and /livez are here.\n")

        def _say(self, code: int, text: str) -> None:
            self._send(code, text.encode(), "text/plain; charset=utf-8")

        def _send(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            for header, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A program asks four times a minute: that is not news."""

    return Answering


def _line(check: Check) -> str:
    return f"{'ok' if check.ok else 'bad'} {check.name}: {check.text}\n"
