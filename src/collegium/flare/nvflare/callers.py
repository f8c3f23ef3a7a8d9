"""Two processes that take part under one name at the same time: a kit is in use twice, whether or not both answer.

NVFlare's server has one connection for each name, and closes the old one when a new one comes: a copy of a kit pushes
the site out, the site dials again and pushes the copy out, and nobody is told. Here every process of a site says which
one it is and how often it has dialled. One that was replaced does not come back, unless both are running: a site that
was killed comes back as another process, and one whose connection broke as the same, having dialled once more.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any, Final

from collegium.flare import NOTICE

_KEY: Final = "collegium_process"
_LONGEST_NAME: Final = 64
_MOST_ENDPOINTS, _MOST_REPLACED = 4096, 1024


class Callers:
    """Which process was last connected under each name, and which ones it has replaced."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._replaced: dict[str, deque[str]] = {}
        self._lock = threading.Lock()

    def is_second(self, name: str, process: str, dialled: int) -> bool:
        """Whether this connection shows that two processes have the name. Without a process: an older version's."""
        with self._lock:
            before, count = self._last.get(name, ("", 0))
            self._last[name] = process, dialled
            self._last.move_to_end(name)
            replaced = self._replaced.setdefault(name, deque(maxlen=_MOST_REPLACED))
            if before and before != process:
                replaced.append(before)
            while len(self._last) > _MOST_ENDPOINTS:
                self._replaced.pop(self._last.popitem(last=False)[0])
            if process and process == before:
                return dialled <= count  # a clone of the running machine counts as this one does
            return process in replaced


def say_which_process() -> None:
    """Tell whoever this process dials which one it is, for as long as it runs, and how often it has dialled."""
    from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

    process, numbers, shake_hands = secrets.token_hex(16), itertools.count(1), SfmConnection.send_handshake

    def send_handshake(connection: Any, frame_type: int) -> None:
        connection.local_endpoint.properties[_KEY] = [process, next(numbers)]
        shake_hands(connection, frame_type)

    SfmConnection.send_handshake = send_handshake


def shut_out_second(kit: Path) -> None:
    """Write into the server's book, and say, that a site takes part twice: until a lead confirms one, neither does."""
    from nvflare.fuel.f3.cellnet.identity import is_mtls_connection
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager
    from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name

    callers, update = Callers(), ConnManager.update_endpoint

    def update_endpoint(connections: Any, connection: Any, data: dict[str, Any]) -> None:
        update(connections, connection, data)  # raises where the certificate does not have the name
        name = connection.sfm_endpoint.endpoint.name
        if is_valid_admin_client_name(name) or not is_mtls_connection(connection.conn.connector.params):
            return
        if callers.is_second(name, *_process(data.get(_KEY))):
            _shut_out(name.partition(".")[0], kit)

    ConnManager.update_endpoint = update_endpoint


def _shut_out(site: str, kit: Path) -> None:
    from collegium.flare.coordinator.installations import Installations  # not in sites and jobs

    if Installations(kit / "coordinator").shut_out(site):
        print(  # noqa: T201 - read by the supervisor
            f"{NOTICE}{site} takes part twice at the same time: its kit is in use elsewhere. It is asked nothing until "
            f"a lead confirms one installation (collegium server confirm {kit} {site})",
            flush=True,
        )


def _process(said: object) -> tuple[str, int]:
    match said:
        case [str(process), int(dialled)] if len(process) <= _LONGEST_NAME:
            return process, dialled
    return "", 0
