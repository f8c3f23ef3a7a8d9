"""The program of one worker process: ``python -m collegium.links.worker SETUP ADDRESS``, the key on standard input.

The setup file was written by the process that started this one, for it alone.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import cloudpickle
import joblib

from collegium import wire
from collegium.core.federation import Answer
from collegium.core.public_set import PublicSet
from collegium.links.hosting import threads_per_site
from collegium.links.local import AgentPool
from collegium.links.packing import unpack


def main() -> None:
    """Serve sites until the connection ends."""
    setup, address = Path(sys.argv[1]), sys.argv[2]
    connection = Client(address, authkey=sys.stdin.buffer.read())
    with setup.open("rb") as file:
        hosting, mappable = unpack(file)
    public = joblib.load(setup.parent / "public.joblib", mmap_mode="r" if mappable else None)
    shared = replace(hosting, public=None if public is None else PublicSet(public))
    with threads_per_site():
        _serve(connection, AgentPool(shared.agents()))
    os._exit(0)  # a site that hangs in a thread must not keep the process


def _serve(connection: Connection, pool: AgentPool) -> None:
    sending = threading.Lock()

    def send(header: dict[str, Any], payload: bytes) -> None:
        with sending:
            connection.send_bytes(wire.join(header, payload))

    while True:
        try:
            header, frame = wire.cut(connection.recv_bytes())
        except (EOFError, OSError):
            pool.close()
            return
        if header["do"] == "collect":
            parties = sorted(pool.agents)
            for party in parties:
                file = Path(header["folder"]) / f"model-{header['order'].index(party)}.pkl"
                site = pool.agents[party].site
                file.write_bytes(cloudpickle.dumps((site.model, site.found_labels)))
            send({"logs": {party: pool.agents[party].log.lines for party in parties}}, b"")
        elif header["do"] == "abandon":
            pool.abandon()
        else:
            _answer(pool, header, frame, send)


def _answer(pool: AgentPool, header: dict[str, Any], frame: bytes, send: Any) -> None:
    def done(future: Future[Answer | None]) -> None:
        failed = future.cancelled() or future.exception() is not None
        answer = None if failed else future.result()
        head = {"party": header["party"], "exchange": header["exchange"], "answered": answer is not None}
        if answer is not None and answer.notes is not None:
            head["notes"] = answer.notes.to_json()
        send(head, b"" if answer is None else answer.frame)

    pool.submit(header["party"], frame, header["deadline"]).add_done_callback(done)


if __name__ == "__main__":
    main()
