"""Why a server cannot be reached, said by a real socket that misbehaves."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collegium.flare.kits.federation_file import FederationFile, LeadSection, ServerSection, SiteSection
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.kits.provision import provision
from collegium.flare.supervise.dialling import why_unreachable

pytest.importorskip("nvflare")
RESET = struct.pack("ii", 1, 0)  # lingering for no time: the connection is reset, not closed


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("localhost", 0)) as made:
        yield made


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory, listener: socket.socket) -> Path:
    """Of two federations with the same names."""
    folder = tmp_path_factory.mktemp("dialling")
    file = FederationFile(
        name="dialled",
        server=ServerSection(host="localhost", port=listener.getsockname()[1], organisation="coordinator"),
        sites=[SiteSection(name="site-1", organisation="owner")],
        leads=[LeadSection(name="lead@coordinator.org", organisation="coordinator")],
    )
    for name in ("ours", "theirs"):
        provision(file, folder / name)
    return folder


@pytest.fixture
def kit(kits: Path) -> Kit:
    return read_kit(kits / "ours" / "site-1")


def dialled(kit: Kit, listener: socket.socket, answer: Callable[[socket.socket], None]) -> str | None:
    def once() -> None:
        connected, _ = listener.accept()
        with connected, contextlib.suppress(OSError):
            answer(connected)

    thread = threading.Thread(target=once, daemon=True)
    thread.start()
    try:
        return why_unreachable(kit)
    finally:
        thread.join()


def reset(connected: socket.socket) -> None:
    connected.recv(1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def secured(kits: Path, trusting: str) -> ssl.SSLContext:
    startup = kits / "ours" / "server" / "startup"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(kits / trusting / "server" / "startup" / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("answer", [reset, lambda connected: connected.recv(1 << 16)], ids=["reset", "closed"])
def test_a_lost_connection_is_no_bad_certificate(
    kit: Kit, listener: socket.socket, answer: Callable[[socket.socket], None]
) -> None:
    reason = dialled(kit, listener, answer)
    assert reason is not None
    assert "closed the connection: the server is being restarted" in reason
    assert "certificate" not in reason


def test_a_connection_that_is_lost_once_it_is_secured(kit: Kit, kits: Path, listener: socket.socket) -> None:
    context = secured(kits, "ours")
    reason = dialled(kit, listener, lambda connected: context.wrap_socket(connected, server_side=True).close())
    assert "closed the connection" in str(reason)


def test_another_program_at_the_port(kit: Kit, listener: socket.socket) -> None:
    reason = dialled(kit, listener, lambda connected: connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert "does not speak TLS" in str(reason)


def test_a_certificate_that_is_rejected(kit: Kit, kits: Path, listener: socket.socket) -> None:
    context = secured(kits, "theirs")
    reason = dialled(kit, listener, lambda connected: context.wrap_socket(connected, server_side=True).close())
    assert "rejected this kit's certificate" in str(reason)


def test_a_server_that_answers(kit: Kit, kits: Path, listener: socket.socket) -> None:
    context = secured(kits, "ours")

    def answer(connected: socket.socket) -> None:
        with context.wrap_socket(connected, server_side=True) as secure:
            secure.sendall(b"settings")
            secure.recv(1)

    assert dialled(kit, listener, answer) is None
