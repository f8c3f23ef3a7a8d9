"""What NVFlare runs in the server's job process: it passes bytes between the coordinator and the sites.

The coordinator listens at a local socket in the server's kit; its name, which nobody can guess, comes with the job.
When that connection ends, so does the job.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.impl.controller import Controller
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from collegium.flare.nvflare.orders import CHANNEL, ORDER, PING, RAW
from collegium.flare.supervise.sockets import MAX_MESSAGE, Channel, ConnectionLost, connect, tagged, untagged

COORDINATOR_FOLDER: Final = "coordinator"
_READY_SECONDS, _PING_SECONDS, _MISSES = 15.0, 2.0, 3
_POLL_SECONDS: Final = 0.2
_LONGEST_ANSWER: Final = MAX_MESSAGE - (1 << 16)  # a longer one would end everybody's session


class LinkRelay(Controller):  # type: ignore[misc]
    """One exchange at a time for each site; a site that does not answer pings while it is waited for is lost."""

    def __init__(self, session: str = "", sites: Sequence[str] = ()) -> None:
        super().__init__(task_check_period=1.0)
        self._session = session
        self._sites = [str(site) for site in sites]
        self._waiting: dict[int, str] = {}
        self._misses: dict[str, int] = {}
        self._lock = threading.Lock()

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing to clean up: the job's process ends."""

    def process_result_of_unknown_task(self, client: Any, task_name: str, task_id: str, result: Any, ctx: Any) -> None:
        """There are no tasks."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Serve the coordinator until its connection ends."""
        if not re.fullmatch(r"[0-9a-f]{32}", self._session):
            return
        root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
        try:
            channel = connect(root / COORDINATOR_FOLDER / f"{self._session}.sock")
        except ConnectionLost:
            return  # the coordinator is gone
        try:
            here = self._roll_call(abort_signal, fl_ctx)
            channel.send(tagged({"ready": here}))
            _in_background(self._watch, channel, abort_signal, fl_ctx)
            while not abort_signal.triggered:
                message = channel.receive(timeout=_POLL_SECONDS)
                if message is not None:
                    _in_background(self._pass_on, channel, message, fl_ctx)
        except ConnectionLost:
            pass
        finally:
            self._session = ""  # ends the watch
            channel.close()

    def _roll_call(self, abort_signal: Any, fl_ctx: Any) -> list[str]:
        """The sites that can be reached."""
        with ThreadPoolExecutor(max(1, len(self._sites))) as pool:
            answered = list(pool.map(lambda site: self._wait_until_ready(site, abort_signal, fl_ctx), self._sites))
        return sorted(site for site, ready in zip(self._sites, answered, strict=True) if ready)

    def _wait_until_ready(self, site: str, abort_signal: Any, fl_ctx: Any) -> bool:
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and not abort_signal.triggered:
            if self._ping(site, fl_ctx):
                return True
            time.sleep(0.05)
        return False

    def _ping(self, site: str, fl_ctx: Any) -> bool:
        code, _ = self._send(site, PING, b"", 1.0, fl_ctx)
        return code == str(ReturnCode.OK)

    def _send(self, site: str, topic: str, message: bytes, timeout: float, fl_ctx: Any) -> tuple[str, bytes]:
        reply = (
            fl_ctx.get_engine()
            .get_cell()
            .send_request(
                channel=CHANNEL,
                topic=topic,
                target=site,
                request=new_cell_message({}, message),
                timeout=timeout,
                optional=True,
            )
        )
        fits = isinstance(reply.payload, RAW) and len(reply.payload) <= _LONGEST_ANSWER
        return str(reply.get_header(MessageHeaderKey.RETURN_CODE)), bytes(reply.payload) if fits else b""

    def _pass_on(self, channel: Channel, message: bytes, fl_ctx: Any) -> None:
        header, payload = untagged(message)
        number, site = int(header["id"]), str(header["party"])
        with self._lock:
            self._waiting[number] = site
        code, answer = self._send(site, ORDER, payload, float(header["timeout"]), fl_ctx)
        self._answer(channel, number, code, answer)

    def _answer(self, channel: Channel, number: int, code: str, answer: bytes) -> None:
        with self._lock:
            if self._waiting.pop(number, None) is None:
                return  # it was given up
        try:
            channel.send(tagged({"id": number, "code": code}, answer))
        except ConnectionLost:
            return  # the coordinator is gone; the main thread finds out by itself

    def _watch(self, channel: Channel, abort_signal: Any, fl_ctx: Any) -> None:
        """A killed site leaves its requests waiting to the end of their time: ping it meanwhile."""
        while self._session and not abort_signal.triggered:
            time.sleep(_PING_SECONDS / 2)
            with self._lock:
                busy = set(self._waiting.values())
            for site in busy:
                self._misses[site] = 0 if self._ping(site, fl_ctx) else self._misses.get(site, 0) + 1
                if self._misses[site] >= _MISSES:
                    self._misses[site] = 0
                    with self._lock:
                        numbers = [number for number, party in self._waiting.items() if party == site]
                    for number in numbers:
                        self._answer(channel, number, ReturnCode.COMM_ERROR, b"")


def _in_background(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()
