"""Server-sent events: what a page is told without asking.

A browser that loses the connection asks again by itself, and says which event it had last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

HEARTBEAT: Final = 10.0
"""Seconds of silence after which something is sent that means nothing: both sides see that the other is there."""
_RETRY: Final = 1000
"""Milliseconds after which a browser asks again."""


_AWAITED: Final[set[asyncio.Task[Event]]] = set()
"""What the streams of this process wait for."""


@dataclass(frozen=True)
class Event:
    """One event: its data is text without line breaks, JSON as a rule."""

    data: str
    name: str = "message"
    id: str | None = None
    """What a browser that lost the connection after this event says it had."""

    def encoded(self) -> bytes:
        """As it travels."""
        lines = [] if self.id is None else [f"id: {self.id}"]
        lines += [f"event: {self.name}", *(f"data: {line}" for line in self.data.split("\n"))]
        return ("\n".join(lines) + "\n\n").encode()


def last_event(request: Request) -> str | None:
    """The id of the last event that a browser has had, if it asks again."""
    return request.headers.get("last-event-id", request.query_params.get("after"))


def event_stream(events: AsyncIterator[Event], heartbeat: float = HEARTBEAT) -> StreamingResponse:
    """Send events as they come, for as long as there are any and the browser listens."""
    return StreamingResponse(
        _written(events, heartbeat), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _written(events: AsyncIterator[Event], heartbeat: float) -> AsyncIterator[bytes]:
    yield f"retry: {_RETRY}\n\n".encode()
    coming: asyncio.Task[Event] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.get_running_loop().create_task(_next(events))
                _AWAITED.add(coming)
            done, _ = await asyncio.wait([coming], timeout=heartbeat)
            if not done:
                yield b": here\n\n"
                continue
            finished, coming = coming, None
            _AWAITED.discard(finished)
            try:
                event = finished.result()
            except (StopAsyncIteration, asyncio.CancelledError):
                return
            yield event.encoded()
    finally:
        if coming is not None:
            _AWAITED.discard(coming)
            coming.cancel()


def end_streams() -> None:
    """End the streams of this loop: they would keep a server from ending."""
    loop = asyncio.get_running_loop()
    for awaited in [each for each in _AWAITED if each.get_loop() is loop]:
        awaited.cancel()


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)
