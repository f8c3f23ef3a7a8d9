"""What a local user at the server's machine can try: join NVFlare's cells through the loopback port, and give orders.

    python local_user.py KIT-OF-THE-SERVER SITE USER-ID

Prints what came back, as JSON: whether the server's process was reached, the site's answers to a hello and to an
unsigned order, and whether the session could be ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from typing import Any

import psutil
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.private.defs import CellChannel, new_cell_message
from nvflare.private.fed.utils.fed_utils import fobs_initialize

from collegium import wire
from collegium.flare.nvflare.orders import CHANNEL, ORDER


def main() -> None:
    kit, site, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
    command = next(" ".join(each.cmdline()) for each in psutil.process_iter() if is_job(each, kit))
    job, port = str(found(r"-n (\S+)", command)), str(found(r"-p tcp://[\w.]+:(\d+)", command))
    fobs_initialize()
    communicator.load_comm_drivers()
    os.setgid(user)
    os.setuid(user)
    CoreCell._create_bb_external_connector = lambda self: None  # it has no certificate for the server
    cell = Cell(
        fqcn=f"server.{secrets.token_hex(4)}",
        root_url="grpc://localhost:1",
        secure=False,
        credentials={},
        create_internal_listener=False,
        parent_url=f"tcp://localhost:{port}",
        parent_resources={"connection_security": "clear"},
    )
    cell.start()
    end = time.monotonic() + 5.0
    while "server" not in cell.core_cell.agents and time.monotonic() < end:
        time.sleep(0.05)

    def order(words: dict[str, Any]) -> Any:
        request = new_cell_message({}, wire.join(words, b""))
        reply = cell.send_request(channel=CHANNEL, topic=ORDER, target=site, request=request, timeout=2.0)
        return wire.cut(bytes(reply.payload))[0] if reply.payload else None

    said: dict[str, Any] = {"joined": "server" in cell.core_cell.agents}
    said["hello"] = order({"do": "hello"})
    said["open"] = order({"do": "open", "run": secrets.token_hex(16)})
    if user:  # a program of the server's own user may end its processes in any case
        abort = new_cell_message({}, b"")
        cell.send_request(
            channel=CellChannel.SERVER_COMMAND, topic="abort", target=f"server.{job}", request=abort, timeout=2.0
        )
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a cell has threads that do not end


def is_job(process: psutil.Process, kit: str) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "-p tcp://" in command and kit in command


def found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


if __name__ == "__main__":
    main()
