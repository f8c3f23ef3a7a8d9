from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from collegium.flare.supervise.sockets import ConnectionLost, LocalListener, connect, request, tagged, untagged


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    listener = LocalListener(tmp_path / "echo.sock")
    threading.Thread(target=listener.serve, args=(lambda message: message[::-1],), daemon=True).start()
    yield listener.path
    listener.close()


def test_whole_messages_come_back(echo: Path) -> None:
    assert request(echo, b"abc") == b"cba"
    assert request(echo, b"") == b""
    assert request(echo, b"x" * 5_000_000) == b"x" * 5_000_000


def test_several_at_a_time(echo: Path) -> None:
    first, second = connect(echo), connect(echo)
    first.send(b"12")
    second.send(b"34")
    assert (second.receive(), first.receive()) == (b"43", b"21")


def test_only_its_owner_can_open_it(echo: Path) -> None:
    assert stat.S_IMODE(echo.stat().st_mode) == 0o600


def test_a_path_that_is_too_long_for_the_system(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("deeper" * 20)
    folder.mkdir(parents=True)
    listener = LocalListener(folder / "a.sock")
    threading.Thread(target=listener.serve, args=(lambda message: message,), daemon=True).start()
    assert request(folder / "a.sock", b"hello") == b"hello"
    listener.close()


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match="Cannot connect"):
        request(tmp_path / "none.sock", b"")


def test_no_message_in_time(echo: Path) -> None:
    assert connect(echo).receive(timeout=0.05) is None


def test_the_other_end_is_gone(tmp_path: Path) -> None:
    listener = LocalListener(tmp_path / "a.sock")
    here = connect(listener.path)
    there = listener.accept(timeout=60)
    assert there is not None
    there.close()
    with pytest.raises(ConnectionLost):
        here.receive()
    listener.close()
    assert not listener.path.exists()


def test_a_listener_that_was_closed_serves_nobody(tmp_path: Path) -> None:
    listener = LocalListener(tmp_path / "a.sock")
    listener.close()
    with pytest.raises(ConnectionLost):
        listener.accept()
    listener.serve(lambda message: message)  # returns


def test_a_message_over_the_limit_ends_the_connection(tmp_path: Path) -> None:
    listener = LocalListener(tmp_path / "a.sock")
    here = connect(listener.path, limit=10)
    there = listener.accept(timeout=60)
    assert there is not None
    there.send(b"x" * 11)
    with pytest.raises(ConnectionLost, match="limit"):
        here.receive()
    listener.close()


def test_a_tag_stands_before_the_payload() -> None:
    assert untagged(tagged({"id": 3, "code": "OK"}, b"\x00rest")) == ({"id": 3, "code": "OK"}, b"\x00rest")
