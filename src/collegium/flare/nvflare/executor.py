"""What NVFlare runs in a site's job process: it passes bytes between the relay and the site's agent, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from collegium.flare.supervise.sockets import ConnectionLost
from collegium.flare.supervise.sockets import request as ask_agent

ORDER, PING, BLOB = "collegium.order", "collegium.ping", "blob"
AGENT_SOCKET: Final = "agent/agent.sock"


class LinkExecutor(Executor):  # type: ignore[misc]
    """Thin on purpose: data, learner and gate live in the agent's process, which outlives every job."""

    _agent = Path()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Listen for the relay when a job starts."""
        if event_type == EventType.START_RUN:
            workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
            self._agent = Path(workspace.get_root_dir()) / AGENT_SOCKET
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(topic=ORDER, message_handle_func=self._on_order)
            engine.register_aux_message_handler(topic=PING, message_handle_func=self._on_ping)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        """No tasks: orders come as messages, which are ten times quicker."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _on_ping(self, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
        return make_reply(ReturnCode.OK)

    def _on_order(self, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
        message = request.get(BLOB)
        if not isinstance(message, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        try:
            answer = ask_agent(self._agent, message)
        except ConnectionLost:  # the agent is being started again
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        reply = make_reply(ReturnCode.OK)
        reply[BLOB] = answer
        return reply
