"""NVFlare's received messages are forgotten in time, and no thread waits for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")
from nvflare.fuel.f3.streaming.blob_streamer import BlobStream
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import TxTask

from collegium.flare.nvflare import streams


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(RxTask, "rx_task_map", {})
    forgetting = streams.Forgetting()
    monkeypatch.setattr(RxTask, "_schedule_remove_task", lambda task, ttl=None: forgetting.later(task, ttl))
    clock = [0.0]
    # only there: with another clock for the whole process, an event loop in another thread sleeps for hours
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def receive(number: int, seconds: float | None = None) -> None:
    task = RxTask(number, "site-1", cell=None, reliable=True)
    RxTask.rx_task_map[task.origin, task.sid] = task
    task._schedule_remove_task(seconds)


def known() -> list[int]:
    return sorted(number for _, number in RxTask.rx_task_map)


def test_no_thread_waits_for_each_message(now: list[float]) -> None:
    before = threading.active_count()
    for number in range(100):
        receive(number)
    assert threading.active_count() == before
    assert len(known()) == 100


def test_each_is_forgotten_when_its_own_time_is_over(now: list[float]) -> None:
    receive(1, 3600.0)  # a sender may ask for that long, and holds nobody else up
    receive(2)
    receive(3, 5.0)
    now[0] = 10.0
    receive(4)
    assert known() == [1, 2, 4]
    now[0] = 90.0
    receive(5)
    assert known() == [1, 5]


def test_a_busy_process_remembers_for_a_shorter_time(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    forgetting = streams.Forgetting(at_most=15.0)
    monkeypatch.setattr(RxTask, "_schedule_remove_task", lambda task, ttl=None: forgetting.later(task, ttl))
    receive(1)
    now[0] = 20.0
    receive(2)
    assert known() == [2]


@pytest.mark.parametrize(("size", "buffer"), [(100, 1 << 17), (200_000, 200_000), (1 << 24, 1 << 20), (0, 1 << 20)])
def test_a_short_message_takes_a_small_buffer(monkeypatch: pytest.MonkeyPatch, size: int, buffer: int) -> None:
    monkeypatch.setattr(TxTask, "__init__", streams._with_small_buffer(TxTask.__init__))
    stream = BlobStream(bytes(size), None)
    task = TxTask(None, 1 << 20, "aux", "order", "site-1", {}, stream, False, False, False)
    assert len(task.buffer) == task.chunk_size == buffer
