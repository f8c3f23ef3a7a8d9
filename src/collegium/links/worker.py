"""The program of one worker process: ``python -m collegium.links.worker SETUP ADDRESS``, the key on standard input.

The setup file was written by the process that started this one, for it alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import cloudpickle
import joblib

from collegium import wire
from collegium.core.link import Answer
from collegium.links.hosting import threads_per_site
from collegium.links.local import AgentPool, Exchange
from collegium.links.packing import unpack
from collegium.wire.limits import MESSAGE

Send = Callable[[dict[str, Any], bytes], None]


def main() -> None:
    """Serve sites until the connection ends."""
    setup, address = Path(sys.argv[1]), sys.argv[2]
    connection = Client(address, authkey=sys.stdin.buffer.read())
    with setup.open("rb") as file:
        hosting, mappable = unpack(file)
    public = joblib.load(setup.parent / "public.joblib", mmap_mode="r" if mappable else None)
    with threads_per_site():
        _serve(connection, AgentPool(hosting, public))
    os._exit(0)  # a site that hangs in a thread must not keep the process


def _serve(connection: Connection, pool: AgentPool) -> None:
    sending = threading.Lock()

    def send(header: dict[str, Any], payload: bytes) -> None:
        with sending:
            connection.send_bytes(wire.join(header, payload))

    while True:
        try:
            header, frame = wire.cut(connection.recv_bytes(), MESSAGE)
        except (EOFError, OSError):
            pool.close()
            return
        if header["do"] == "collect":
            send({"collected": True}, cloudpickle.dumps(pool.collect()))
        elif header["do"] == "abandon":
            pool.abandon()
        else:
            exchange = Exchange(header["exchange"], header["orders"], header["deadline"])
            future = pool.submit(header["party"], frame, exchange)
            future.add_done_callback(partial(_answer, send, {key: header[key] for key in ("party", "exchange")}))


def _answer(send: Send, about: dict[str, Any], future: Future[Answer | None]) -> None:
    failed = future.cancelled() or future.exception() is not None
    answer = None if failed else future.result()
    notes = None if answer is None or answer.notes is None else answer.notes.to_json()
    send(about | {"answered": answer is not None, "notes": notes}, b"" if answer is None else answer.frame)


if __name__ == "__main__":
    main()
