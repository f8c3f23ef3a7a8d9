"""Sites in worker processes. Each site stays with its worker; only frames of the wire format are exchanged.

Workers are started as plain programs, not forked: numerical libraries with threads of their own do not survive a fork,
and a user's script needs no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
from scipy import sparse

from collegium import wire
from collegium.core.attendance import Attendance
from collegium.core.link import Answer
from collegium.core.observations import Notes
from collegium.errors import CollegiumError
from collegium.links.hosting import Hosting, available_cores
from collegium.links.packing import pack, python_path, split
from collegium.links.simulated import Collected, SimulatedLink
from collegium.wire.limits import MESSAGE

_START_SECONDS = 120.0


class WorkersLink(SimulatedLink):
    """Sites in `workers` processes (0: one per core); each process serves its sites in threads."""

    def __init__(self, hosting: Hosting, workers: int = 0, address: str | None = None, gpus: float = 0.0) -> None:
        super().__init__(hosting, workers, address, gpus)
        self._folder = tempfile.TemporaryDirectory(prefix="collegium-")
        self._exchange = 0
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        parts = split(hosting, min(workers or available_cores(), len(self.parties)))
        self._home = {site.name: worker for worker, part in enumerate(parts) for site in part.sites}
        try:
            self._start(parts, None if hosting.public is None else hosting.public.X)
        except BaseException:
            self.close()
            raise

    def _start(self, parts: list[Hosting], public: Any) -> None:
        folder = Path(self._folder.name)
        joblib.dump(public, folder / "public.joblib")
        with contextlib.ExitStack() as listeners:
            waiting = []
            for worker, part in enumerate(parts):
                setup = folder / f"worker-{worker}.pkl"
                with setup.open("wb") as file:
                    pack((part, _is_mappable(public)), file)
                key = secrets.token_bytes(32)
                listener = listeners.enter_context(Listener(authkey=key))
                waiting.append((listener, self._launch(setup, str(listener.address), key)))
            self._connections = [_accept(listener, process) for listener, process in waiting]

    def _launch(self, setup: Path, address: str, key: bytes) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "collegium.links.worker", str(setup), address],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": python_path()},
        )
        self._processes.append(process)
        if process.stdin is not None:
            process.stdin.write(key)
            process.stdin.close()
        return process

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come. A worker that died leaves its parties out."""
        self._exchange += 1
        pending = set(orders)
        at_worker = Counter(self._home[party] for party in orders)
        for party, frame in orders.items():
            worker = self._home[party]
            head = {"do": "serve", "party": party, "exchange": self._exchange, "deadline": deadline}
            if not self._send(worker, wire.join(head | {"orders": at_worker[worker]}, frame)):
                pending.discard(party)
        end = None if deadline is None else time.monotonic() + deadline
        while pending:
            alive = [connection for connection in self._connections if not connection.closed]
            left = None if end is None else max(0.0, end - time.monotonic())
            ready = wait(alive, timeout=left)
            if not ready:  # those that hang are left behind, so that the next orders find free threads
                for worker in {self._home[party] for party in pending}:
                    self._send(worker, wire.join({"do": "abandon"}, b""))
                return
            for connection in ready:
                header, frame = self._read(connection)  # type: ignore[arg-type]
                if header is None:
                    pending -= {party for party in pending if self._connections[self._home[party]].closed}
                elif header.get("exchange") == self._exchange and header["party"] in pending:
                    pending.discard(header["party"])
                    if header.get("answered"):
                        yield Answer(header["party"], frame, Notes.from_json(header.get("notes")))

    def _send(self, worker: int, frame: bytes) -> bool:
        try:
            self._connections[worker].send_bytes(frame)
        except OSError:
            return False
        return True

    def _read(self, connection: Connection) -> tuple[dict[str, Any] | None, bytes]:
        try:
            return wire.cut(connection.recv_bytes(), MESSAGE)
        except (EOFError, OSError):
            connection.close()
            return None, b""

    @cached_property
    def _collected(self) -> Collected:
        collected = Collected({}, Attendance())
        for worker, connection in enumerate(self._connections):
            self._send(worker, wire.join({"do": "collect"}, b""))
            header: dict[str, Any] | None = {}
            while header is not None and "collected" not in header:  # late replies may still be on the way
                header, packed = self._read(connection)
            if header is not None:
                sites, attendance = cloudpickle.loads(packed)
                collected.sites.update(sites)
                collected.attendance.add(attendance)
        return collected

    def close(self) -> None:
        """End the workers and remove what was shared with them."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()


def _is_mappable(table: Any) -> bool:
    """Arrays of numbers can be shared between workers through one mapped file."""
    return sparse.issparse(table) or (isinstance(table, np.ndarray) and table.dtype != object)


def _accept(listener: Listener, process: subprocess.Popen[bytes]) -> Connection:
    """Wait for the worker to connect, but not for one that died before it could."""
    socket = getattr(listener._listener, "_socket", None)  # type: ignore[attr-defined]
    if socket is not None:  # a named pipe (Windows) has none, and waits
        socket.settimeout(0.2)
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            return listener.accept()
        except TimeoutError:
            if process.poll() is not None or time.monotonic() > end:
                raise CollegiumError("A worker process did not start; its output says why.") from None
