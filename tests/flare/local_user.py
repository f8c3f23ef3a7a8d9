"""What a local user at a site's machine can try: join NVFlare's cells through the loopback port, and give orders.

    python local_user.py KIT USER-ID

Prints what came back, as JSON: whether the session's process was reached, the agent's answers to a hello and to an
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
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.private.defs import CellChannel, new_cell_message
from nvflare.private.fed.utils.fed_utils import fobs_initialize

from collegium import wire


def main() -> None:
    kit, user = sys.argv[1], int(sys.argv[2])
    command = next(" ".join(each.cmdline()) for each in psutil.process_iter() if is_job(each, kit))
    job, port = str(found(r"-n (\S+)", command)), str(found(r"-p tcp://\w+:(\d+)", command))
    site = str(found(r"-c (\S+)", command))
    fobs_initialize()
    communicator.load_comm_drivers()
    os.setgid(user)
    os.setuid(user)
    CoreCell._create_bb_external_connector = lambda self: None  # it has no certificate for the server
    cell = Cell(
        fqcn=f"{site}.{secrets.token_hex(4)}",
        root_url="grpc://localhost:1",
        secure=False,
        credentials={},
        create_internal_listener=False,
        parent_url=f"tcp://localhost:{port}",
        parent_resources={"connection_security": "clear"},
    )
    cell.start()
    end = time.monotonic() + 5.0
    while site not in cell.core_cell.agents and time.monotonic() < end:
        time.sleep(0.05)

    def send(topic: str, channel: str, words: dict[str, Any] | None) -> Any:
        message = Shareable()
        if words is not None:
            message["blob"] = wire.join(words, b"")
        message.set_peer_props({"__run_num__": job, "__identity_name__": "server"})
        request = new_cell_message({}, message)
        reply = cell.send_request(channel=channel, topic=topic, target=f"{site}.{job}", request=request, timeout=5.0)
        blob = reply.payload.get("blob") if isinstance(reply.payload, Shareable) else None
        return wire.cut(blob)[0] if isinstance(blob, bytes) else None

    said: dict[str, Any] = {"joined": site in cell.core_cell.agents}
    said["hello"] = send("collegium.order", CellChannel.AUX_COMMUNICATION, {"do": "hello"})
    run = secrets.token_hex(16)
    said["open"] = send("collegium.order", CellChannel.AUX_COMMUNICATION, {"do": "open", "run": run})
    if user:  # a program of the site's own user may end its processes in any case
        send("abort", CellChannel.CLIENT_COMMAND, None)
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
