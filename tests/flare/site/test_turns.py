"""Runs of a site that compute at the same time, or one after the other where its owner wants that."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from tests.waiting import seconds, until

from collegium.flare.site.turns import Turns


@pytest.mark.parametrize(("at_once", "most"), [(None, 4), (1, 1), (2, 2)])
def test_so_many_compute_at_the_same_time(at_once: int | None, most: int) -> None:
    inside, seen, lock = set[int](), list[int](), threading.Lock()
    full, leave = threading.Semaphore(0), threading.Event()
    turns = Turns(at_once)

    def compute(number: int) -> None:
        with turns.taken(str(number)):
            with lock:
                inside.add(number)
                seen.append(len(inside))
            full.release()
            leave.wait(seconds(30))
            with lock:
                inside.discard(number)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(most):
        assert full.acquire(timeout=seconds(30))
    assert not full.acquire(blocking=False), "one more than may"
    leave.set()
    for thread in threads:
        thread.join(seconds(30))
    assert max(seen) == most
    assert len(seen) == 4


def test_who_asked_first_computes_first_and_a_failure_gives_the_turn_back() -> None:
    waiting, order = list[tuple[str, int]](), list[str]()
    turns = Turns(1, lambda run, at_work: waiting.append((run, at_work)))

    def compute(run: str) -> None:
        with turns.taken(run):
            order.append(run)

    threads = []
    with suppress(ValueError), turns.taken("first"):
        for run in ("second", "third"):
            threads.append(threading.Thread(target=compute, args=(run,)))
            threads[-1].start()
            until(lambda run=run: (run, 1) in waiting)
        raise ValueError
    for thread in threads:
        thread.join(seconds(30))
    assert order == ["second", "third"]
