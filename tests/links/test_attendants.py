"""Threads that are woken seldom, and answers that lie in a row meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future

import pytest
from tests.waiting import seconds, until

from collegium.core.places import Places
from collegium.links.attendants import Attendants, Inbox


def test_tasks_begin_when_there_is_a_place_in_as_few_threads_as_can_be() -> None:
    begun, ran_in, places = list[int](), list[int](), Places(1)
    attendants = Attendants(places, lambda: begun.append(threading.get_ident()))
    first, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        first.set()
        assert go_on.wait(seconds(30))
        return "waited"

    waiting = attendants.submit(wait)
    assert first.wait(seconds(30))
    others = [attendants.submit(lambda: ran_in.append(threading.get_ident())) for _ in range(50)]
    assert places.awaited
    assert not ran_in
    go_on.set()
    assert waiting.result(seconds(30)) == "waited"
    for other in others:
        other.result(seconds(30))
    assert ran_in == begun * 50  # each was done before the next began, so that one thread was enough
    attendants.close()
    until(lambda: not any(thread.ident in begun for thread in threading.enumerate()), every=0.001)
    assert places._free == 1


def test_a_task_that_waits_without_a_place_keeps_its_thread() -> None:
    places, go_on = Places(1), threading.Event()
    attendants = Attendants(places, lambda: None)

    def away() -> int:
        with places.left():
            assert go_on.wait(seconds(30))
        return threading.get_ident()

    waiting = [attendants.submit(away) for _ in range(3)]
    attendants.submit(go_on.set).result(seconds(30))
    assert len({each.result(seconds(30)) for each in waiting}) == 3
    attendants.close()
    until(lambda: places._free == 1, every=0.001)


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    attendants = Attendants(Places(1), lambda: None)
    with pytest.raises(ZeroDivisionError):
        attendants.submit(lambda: 1 // 0).result(seconds(30))
    attendants.close()


def test_what_is_not_begun_when_the_threads_are_closed_is_cancelled() -> None:
    places, done = Places(1), list[int]()
    places.take()
    attendants = Attendants(places, lambda: None)
    late = attendants.submit(done.append, 1)
    attendants.close()
    places.give_back()
    with pytest.raises(CancelledError):
        late.result(seconds(30))
    assert not done


def test_no_more_threads_is_an_error_that_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    inbox = Inbox[bytes](2, lambda: True, len)
    Attendants(Places(1), lambda: None).submit(bytes).add_done_callback(inbox.put)
    with pytest.raises(RuntimeError, match="new thread"):
        next(inbox.drained(seconds(30)))


def done(value: bytes) -> Future[bytes]:
    future: Future[bytes] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize(("busy", "size", "woken"), [(True, 10, False), (False, 10, True), (True, 1 << 20, True)])
def test_answers_lie_in_a_row_while_others_are_about_to_come(busy: bool, size: int, woken: bool) -> None:
    inbox = Inbox(3, lambda: busy, len)
    inbox.put(done(bytes(size)))
    assert inbox._ready.locked() is not woken
    inbox.put(done(b"b"))
    inbox.put(done(b"c"))
    assert list(inbox.drained())[1:] == [b"b", b"c"]


def test_a_deadline_ends_the_wait_and_errors_are_passed_on() -> None:
    inbox = Inbox(2, lambda: False, len)
    inbox.put(done(b"a"))
    came = inbox.drained(0.0)
    assert next(came) == b"a"
    with pytest.raises(TimeoutError):
        next(came)
    broken: Future[bytes] = Future()
    broken.set_exception(OSError("no"))
    inbox.put(broken)
    with pytest.raises(OSError, match="no"):
        next(inbox.drained())
