"""Events from the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from tests.console.visiting import Visitor

from collegium.console.events import Event, event_stream


def test_events_have_names_and_ids(console):
    answer = Visitor.of(console).get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: 1000\n\n")
    assert 'id: 1\nevent: count\ndata: {"number": 1}\n\n' in answer.text
    assert answer.text.count("event: count") == 3


def test_who_asks_again_gets_what_it_has_not_had(console):
    visitor = Visitor.of(console)
    assert visitor.get("/events", Last_Event_ID="2").text.count("event: count") == 1
    assert visitor.get("/events?after=1").text.count("event: count") == 2
    assert visitor.get("/events?after=0", Last_Event_ID="2").text.count("event: count") == 1


def test_silence_is_broken_by_a_heartbeat():
    async def seldom() -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        yield Event("never")

    async def first() -> list[bytes]:
        stream = event_stream(seldom(), heartbeat=0.01).body_iterator
        return [bytes(await anext(stream)) for _ in range(3)]  # type: ignore[call-overload]

    with ThreadPoolExecutor(1) as thread:  # a browser's driver may have a loop in this one
        found = thread.submit(asyncio.run, first()).result()
    assert found == [b"retry: 1000\n\n", b": here\n\n", b": here\n\n"]


def test_text_cannot_end_an_event():
    assert Event("a\n\nevent: x").encoded() == b"event: message\ndata: a\ndata: \ndata: event: x\n\n"
