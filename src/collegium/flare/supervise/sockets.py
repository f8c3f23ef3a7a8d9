"""Messages over local sockets that only this user can open: a length, then that many bytes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumError

MAX_MESSAGE: Final = 1 << 31
_SIZE: Final = struct.Struct(">Q")
_TAG_SIZE: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 20
MOST_CONNECTIONS: Final = 64
"""At one socket. A site's job needs one for each run that waits for a reply, and one more for the next question."""
_LONGEST_PATH: Final = 100  # of a socket's name; the system's own limit is a little above


class ConnectionLost(CollegiumError):
    """The other end of a local connection is gone."""


def tagged(tag: dict[str, Any], payload: bytes = b"") -> bytes:
    """A payload behind a few plain words about it. Job processes read this without loading the whole library."""
    head = json.dumps(tag).encode()
    return _TAG_SIZE.pack(len(head)) + head + payload


def untagged(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Undo `tagged`."""
    start = _TAG_SIZE.size
    size = _TAG_SIZE.unpack_from(message)[0]
    return dict(json.loads(message[start : start + size])), message[start + size :]


class Channel:
    """One end of a local connection. Whole messages only; several threads may send."""

    def __init__(self, connected: socket.socket, limit: int = MAX_MESSAGE) -> None:
        self._socket = connected
        self._limit = limit
        self._sending = threading.Lock()

    def send(self, message: bytes) -> None:
        """Send one message."""
        try:
            with self._sending:
                self._socket.sendall(_SIZE.pack(len(message)))
                self._socket.sendall(message)
        except OSError:
            raise ConnectionLost("A local connection was closed.") from None

    def receive(self, timeout: float | None = None, limit: Callable[[], int] | None = None) -> bytes | None:
        """The next message; None if none began within `timeout` seconds. `limit` says how long it may be just then."""
        try:
            if not wait([self._socket], timeout):
                return None
            size = _SIZE.unpack(self._exactly(_SIZE.size))[0]
            if size <= (self._limit if limit is None else limit()):
                return self._exactly(size)
        except (OSError, ValueError):  # a closed socket has no number to wait for
            pass
        self.close()  # what follows cannot be told from the next message
        raise ConnectionLost("A local connection was closed, or sent a message over its limit.")

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(_CHUNK, size - len(parts)))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)

    def shut(self) -> None:
        """End the connection, and wake a thread that waits for a message."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end, and wake a thread that waits for a message."""
        self.shut()
        self._socket.close()


class LocalListener:
    """A local socket, open to this user alone, at a path that is removed at the end. `admit` may refuse a caller."""

    def __init__(self, path: Path, admit: Callable[[socket.socket], bool] = lambda connected: True) -> None:
        self.path = path
        self._admit = admit
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)  # nobody else may connect in the moment before a chmod
        try:
            with short(path) as name:
                self._socket.bind(name)
        finally:
            os.umask(before)
        self._socket.listen(64)

    def accept(self, timeout: float | None = None) -> Channel | None:
        """The next connection; None if it was refused, or there was none within `timeout` seconds."""
        try:
            self._socket.settimeout(timeout)
            connected, _ = self._socket.accept()
        except TimeoutError:
            return None
        except OSError:
            raise ConnectionLost("A local socket was closed.") from None
        if not self._admit(connected):
            connected.close()
            return None
        return Channel(connected)

    def serve(self, answer: Callable[[bytes], bytes], limit: Callable[[], int] = lambda: MAX_MESSAGE) -> None:
        """Answer requests, each connection in a thread of its own, until the socket is closed.

        No message may be longer than `limit` says at the time. Of `MOST_CONNECTIONS` the one that has been silent
        longest makes place for the next; if all are being answered, the next is turned away.
        """
        served = _Served(answer, limit)
        while True:
            try:
                channel = self.accept()
            except ConnectionLost:
                return
            if channel is not None:
                served.add(channel)

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):  # wakes a thread that waits in accept
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)


class _Served:
    """The connections of a listener: which there are, and which of them have sent no whole message yet."""

    def __init__(self, answer: Callable[[bytes], bytes], limit: Callable[[], int]) -> None:
        self._answer = answer
        self._limit = limit
        self._all: set[Channel] = set()
        self._silent: dict[Channel, None] = {}
        self._lock = threading.Lock()

    def add(self, channel: Channel) -> None:
        """Serve a connection."""
        with self._lock:
            silent = next(iter(self._silent), None)
            if len(self._all) >= MOST_CONNECTIONS and silent is not None:
                self._forget(silent)
                silent.shut()  # its own thread closes it: another connection could get its number before that sees it
            if len(self._all) >= MOST_CONNECTIONS:
                channel.close()
                return
            self._all.add(channel)
            self._silent[channel] = None
        threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: Channel) -> None:
        with contextlib.suppress(ConnectionLost):
            while (message := channel.receive(limit=self._limit)) is not None:
                with self._lock:
                    self._silent.pop(channel, None)
                channel.send(self._answer(message))
                with self._lock:
                    if channel in self._all:
                        self._silent[channel] = None
        with self._lock:
            self._forget(channel)
        channel.close()

    def _forget(self, channel: Channel) -> None:
        self._all.discard(channel)
        self._silent.pop(channel, None)


def connect(path: Path, limit: int = MAX_MESSAGE) -> Channel:
    """A connection to the socket at that path."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        with short(path) as name:
            connected.connect(name)
    except OSError:
        connected.close()
        raise ConnectionLost(f"Cannot connect to {path}.") from None
    return Channel(connected, limit)


def request(path: Path, message: bytes) -> bytes:
    """Ask one question over a connection of its own."""
    channel = connect(path)
    try:
        channel.send(message)
        reply = channel.receive()
    finally:
        channel.close()
    if reply is None:
        raise ConnectionLost(f"{path} did not answer.")
    return reply


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """A name for a socket that is short enough for the system, however deep its folder is."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
