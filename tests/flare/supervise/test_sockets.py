from __future__ import annotations

import socket
import stat
import struct
import threading
from pathlib import Path

import pytest
from tests.waiting import seconds, until

from collegium.flare.supervise.sockets import (
    MOST_CONNECTIONS,
    ConnectionLost,
    LocalListener,
    connect,
    request,
    tagged,
    untagged,
)


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


def serving() -> int:
    """How many threads serve a connection."""
    return sum("(_serve)" in thread.name for thread in threading.enumerate())


def test_connections_that_say_nothing_keep_nobody_out_and_take_few_threads(echo: Path) -> None:
    before, idle = serving(), []
    for number in range(300):
        idle.append(connected := socket.socket(socket.AF_UNIX))
        connected.connect(str(echo))
        if number % 2:  # half of them begin a message, and go no further
            connected.sendall(struct.pack(">Q", 1 << 30) + b"x")
        if number % 50 == 0:
            assert request(echo, b"abc") == b"cba"
    assert request(echo, b"abc") == b"cba"
    assert until(lambda: serving() - before <= MOST_CONNECTIONS), "threads of dropped ones end"
    assert idle[0].recv(1) == b"", "the first made place"
    for each in idle:
        each.close()


def test_connections_that_are_being_answered_are_kept_and_more_are_turned_away(tmp_path: Path) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slowly(message: bytes) -> bytes:
        begun.release()
        go_on.wait(seconds(30))
        return message

    listener = LocalListener(tmp_path / "a.sock")
    threading.Thread(target=listener.serve, args=(slowly,), daemon=True).start()
    busy = [connect(listener.path) for _ in range(MOST_CONNECTIONS)]
    for each in busy:
        each.send(b"x")
        assert begun.acquire(timeout=seconds(30))
    with pytest.raises(ConnectionLost):
        request(listener.path, b"y")
    go_on.set()
    assert [each.receive(timeout=seconds(30)) for each in busy] == [b"x"] * MOST_CONNECTIONS
    listener.close()


def test_how_long_a_message_may_be_can_change(tmp_path: Path) -> None:
    listener, limit = LocalListener(tmp_path / "a.sock"), [10]
    threading.Thread(target=listener.serve, args=(lambda message: message, lambda: limit[0]), daemon=True).start()
    assert request(listener.path, b"x" * 10) == b"x" * 10
    with pytest.raises(ConnectionLost):
        request(listener.path, b"x" * 11)
    limit[0] = 11
    assert request(listener.path, b"x" * 11) == b"x" * 11
    listener.close()
