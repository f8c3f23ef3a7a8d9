"""What NVFlare's process at a site does with orders: it passes bytes between relay and agent, and no more.

NVFlare would start a process at every site for every session, from settings that the server sends. Orders come here
without: they are messages of a channel of their own to the process that is there already.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.private.fed.client import fed_client_base
from nvflare.private.fed.client.fed_client_base import FederatedClientBase

from collegium.flare.supervise.sockets import ConnectionLost
from collegium.flare.supervise.sockets import request as ask_agent

CHANNEL, ORDER, PING = "collegium", "order", "ping"
RAW: Final = (bytes, bytearray, memoryview)
"""As what bytes arrive."""
AGENT_SOCKET: Final = "agent/agent.sock"


def pass_orders_on(kit: Path) -> None:
    """Answer the relay as soon as this site is connected. Data, learner and gate live in the agent's process."""
    create = FederatedClientBase._create_cell

    def create_and_answer(client: Any, location: str, scheme: str) -> None:
        create(client, location, scheme)
        answer = partial(_answer, agent=kit / AGENT_SOCKET)
        client.cell.register_request_cb(channel=CHANNEL, topic="*", cb=answer)

    FederatedClientBase._create_cell = create_and_answer


def listen_to_nobody() -> None:
    """Open no port: NVFlare would, for the processes of sessions, and other users of the machine could dial it."""
    fed_client_base.Cell = lambda **options: Cell(**options | {"create_internal_listener": False})


def _answer(request: Any, agent: Path) -> Any:
    if request.get_header(MessageHeaderKey.TOPIC) == PING:
        return make_reply(ReturnCode.OK)
    if not isinstance(request.payload, RAW):
        return make_reply(ReturnCode.INVALID_REQUEST)
    try:
        return make_reply(ReturnCode.OK, body=ask_agent(agent, bytes(request.payload)))
    except ConnectionLost:  # the agent is being started again
        return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
