"""What NVFlare's process at a site does with a message that is no order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from collegium.flare.nvflare import orders
from collegium.flare.supervise.sockets import ConnectionLost


def answer(payload: Any, topic: str = orders.ORDER) -> Any:
    request = new_cell_message({MessageHeaderKey.TOPIC: topic}, payload)
    return orders._answer(request, agent=Path("agent.sock"))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the agent was asked."""
    asked: list[bytes] = []
    monkeypatch.setattr(orders, "ask_agent", lambda _agent, message: asked.append(message) or b"answered")
    return asked


@pytest.mark.parametrize("payload", [2**62, None, "text", {"do": "hello"}, [1, 2]])
def test_what_is_no_bytes_does_not_reach_the_agent(payload: Any, heard: list[bytes]) -> None:
    assert answer(payload).get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST
    assert not heard


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_passed_on_as_they_are(kind: Any, heard: list[bytes]) -> None:
    assert answer(kind(b"an order")).payload == b"answered"
    assert heard == [b"an order"]


def test_a_ping_is_answered_without_the_agent(heard: list[bytes]) -> None:
    assert answer(None, orders.PING).get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK
    assert not heard


def test_an_agent_that_is_being_started_again_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_agent: Path, _message: bytes) -> bytes:
        raise ConnectionLost("gone")

    monkeypatch.setattr(orders, "ask_agent", gone)
    assert answer(b"an order").get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.SERVICE_UNAVAILABLE
