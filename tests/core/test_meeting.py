from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.waiting import seconds, until

from collegium.core.attendance import NOBODY_ALIKE, Attendance, attendance_in_words
from collegium.core.meeting import (
    Alone,
    Delegation,
    Meeting,
    _current,
    abreast,
    attending,
    beside_others,
    convene,
    in_places,
    in_threads,
    meet,
    meet_all,
    places_here,
)
from collegium.core.places import Places


@dataclass
class Square:
    value: int
    kind: Any = "square"
    why_alone: str = ""
    trains: bool = True
    groups: list[list[int]] = field(default_factory=list)

    def alone(self) -> int:
        if self.value < 0:
            raise ValueError(str(self.value))
        return self.value**2

    def together(self, others: Sequence[Square]) -> list[int | Exception]:
        self.groups.append([each.value for each in others])
        return [ValueError(str(each.value)) if each.value < 0 else each.value**2 for each in others]


def hold(tasks: Sequence[Callable[[], Any]], attendance: Attendance | None = None, **settings: Any) -> list[Any]:
    """Each task in a thread of its own, as the sites a, b, c ... of an exchange are."""
    meeting = Meeting(len(tasks), attendance or Attendance(), **settings)

    def attend(party: str, task: Callable[[], Any]) -> Any:
        with meeting.attended(party):
            try:
                return task()
            except Exception as error:
                return error

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(attend, chr(97 + number), task) for number, task in enumerate(tasks)]
        return [future.result(timeout=seconds(30)) for future in futures]


def test_alike_works_are_done_at_once_in_the_order_of_the_sites() -> None:
    attendance, groups = Attendance(), list[list[int]]()

    def come_after_the_next(n: int) -> int:
        meeting = (_current.get() or pytest.fail("nobody meets")).meeting
        until(lambda: len(meeting._brought) == 7 - n, every=0.001)
        return meet(Square(n, groups=groups))

    found = hold([lambda n=n: come_after_the_next(n) for n in range(8)], attendance)
    assert found == [n**2 for n in range(8)]
    assert groups == [list(range(8))]
    assert attendance == Attendance(set("abcdefgh"), 8)


def test_who_leaves_is_not_waited_for() -> None:
    groups: list[list[int]] = []

    def leave() -> str:
        return "left"

    def fail() -> None:
        raise RuntimeError("failed before the meeting")

    found = hold([lambda: meet(Square(3, groups=groups)), leave, lambda: meet(Square(4, groups=groups)), fail])
    assert found[:3] == [9, "left", 16]
    assert isinstance(found[3], RuntimeError)
    assert groups == [[3, 4]]


def test_who_does_not_join_is_not_waited_for_and_meets_nobody() -> None:
    attendance, release = Attendance(), threading.Event()
    meeting = Meeting(3, attendance)

    def attend(party: str) -> int:
        if party == "c":
            meeting.leave()
            release.wait(seconds(30))
            return meet(Square(3))
        with meeting.attended(party):
            return meet(Square(3))

    with ThreadPoolExecutor(3) as pool:
        a, b, c = (pool.submit(attend, party) for party in "abc")
        assert (a.result(seconds(30)), b.result(seconds(30))) == (9, 9)
        assert not c.done()
        release.set()
        assert c.result(seconds(30)) == 9
    assert attendance == Attendance({"a", "b"}, 2)


def test_unlike_works_are_done_apart_and_the_record_says_why() -> None:
    attendance = Attendance()
    tasks = [
        lambda: meet(Square(1)),
        lambda: meet(Square(2)),
        lambda: meet(Square(3, kind="cube")),
        lambda: meet(Square(4, kind=None, why_alone="it draws random numbers")),
        lambda: meet(Square(5, kind=None, why_alone="it draws random numbers")),
    ]
    assert hold(tasks, attendance) == [1, 4, 9, 16, 25]
    alone = {"c": NOBODY_ALIKE, "d": "it draws random numbers", "e": "it draws random numbers"}
    assert attendance == Attendance({"a", "b"}, 2, alone)


def test_what_trains_nothing_is_not_recorded() -> None:
    attendance, groups = Attendance(), list[list[int]]()
    assert hold([lambda: meet(Square(3, trains=False, groups=groups))] * 4, attendance) == [9] * 4
    assert groups == [[3] * 4]
    assert attendance == Attendance()


def test_sites_meet_as_often_as_they_bring_something() -> None:
    groups: list[list[int]] = []

    def often(times: int) -> int:
        return sum(meet(Square(times, groups=groups)) for _ in range(times))

    attendance = Attendance()
    assert hold([lambda n=n: often(n) for n in (1, 2, 4, 3)], attendance) == [1, 8, 64, 27]
    assert groups == [[1, 2, 4, 3], [2, 4, 3], [4, 3]]
    assert attendance == Attendance(set("abcd"), 4, {"c": NOBODY_ALIKE})


def test_a_site_brings_several_works_at_once_and_counts_once() -> None:
    attendance, groups = Attendance(), list[list[int]]()

    def many(*values: int) -> Callable[[], list[int]]:
        return lambda: meet_all([Square(value, kind=value % 2, groups=groups) for value in values])

    assert hold([many(1, 2, 3), many(4, 5), many(7)], attendance) == [[1, 4, 9], [16, 25], [49]]
    assert sorted(groups) == [[1, 3, 5, 7], [2, 4]]
    assert attendance == Attendance(set("abc"), 3)
    assert hold([many(1, 3, 5)], attendance, why_alone="nobody is here") == [[1, 9, 25]]
    assert groups[-1] == [1, 3, 5]
    assert attendance == Attendance(set("abc"), 3, {"a": "nobody is here"})


def test_an_error_of_one_is_its_own() -> None:
    found = hold([lambda n=n: meet(Square(n)) for n in (2, -1, 3)])
    assert (found[0], found[2]) == (4, 9)
    assert isinstance(found[1], ValueError)
    found = hold([lambda: meet(Square(2)), lambda: meet_all([Square(1), Square(-5, kind=None)]), lambda: 0])
    assert (found[0], found[2]) == (4, 0)
    assert isinstance(found[1], ValueError)


def test_what_cannot_be_done_with_the_others_after_all_is_done_alone() -> None:
    class Shy(Square):
        def together(self, others: Sequence[Square]) -> list[int | Alone]:
            return [each.value**2 if each.value > 1 else Alone("it is small") for each in others]

    attendance = Attendance()
    assert hold([lambda n=n: meet(Shy(n)) for n in (1, 2, 3)], attendance) == [1, 4, 9]
    assert attendance == Attendance({"b", "c"}, 2, {"a": "it is small"})
    assert hold([lambda n=n: meet(Shy(n)) for n in (0, 1, 2)], attendance) == [0, 1, 4]
    assert attendance == Attendance({"b", "c"}, 2, {"a": "it is small", "b": "it is small", "c": NOBODY_ALIKE})


def test_works_that_are_alone_of_their_kind_are_done_side_by_side() -> None:
    at_once = threading.Barrier(3)

    class Slow(Square):
        def alone(self) -> int:
            at_once.wait(seconds(30))
            return super().alone()

        def together(self, others: Sequence[Square]) -> list[int | Exception]:
            at_once.wait(seconds(30))
            return super().together(others)

    assert hold([lambda n=n: meet(Slow(n, kind=n // 2)) for n in (0, 1, 2, 4)]) == [0, 1, 4, 16]


def test_an_error_of_the_whole_computation_reaches_everybody() -> None:
    class Broken(Square):
        def together(self, others: Sequence[Square]) -> list[int | Exception]:
            raise MemoryError

    found = hold([lambda n=n: meet(Broken(n)) for n in range(3)])
    assert all(isinstance(each, MemoryError) for each in found)


def test_without_a_meeting_work_is_done_alone() -> None:
    assert meet(Square(7)) == 49
    assert meet_all([Square(2), Square(3)]) == [4, 9]
    assert meet_all([]) == []


def test_no_more_sites_are_at_work_than_there_are_places() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def work(change: int) -> None:
        with lock:
            now[0] += change
            most[0] = max(most[0], now[0])

    def visit() -> int:
        total = 0
        for _ in range(5):
            work(1)
            threading.Event().wait(0.001)
            work(-1)
            total += meet(Square(1))
        return total

    places = Places(3)
    assert hold([visit] * 12, places=places) == [5] * 12
    assert 1 <= most[0] <= 3
    assert places._free == 3


def test_those_who_wait_are_let_go_when_nobody_else_will_come() -> None:
    meeting = Meeting(5, Attendance())

    def attend(party: str) -> list[int]:
        with meeting.attended(party):
            return [meet(Square(3)), meet(Square(4))]

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(attend, party) for party in "abc"]
        until(lambda: len(meeting._brought) == 3, every=0.001)
        meeting.disperse()
        assert [future.result(seconds(30)) for future in futures] == [[9, 16]] * 3


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_arrival_leaves_anybody_waiting(seed: int) -> None:
    chance, places = random.Random(seed), Places(4)

    def wander(times: int, naps: list[float]) -> int:
        total = 0
        for nap in naps[:times]:
            threading.Event().wait(nap)
            total += sum(meet_all([Square(2, kind=times), Square(0)]))
        return total

    plans = [(chance.randrange(5), [chance.random() / 500 for _ in range(5)]) for _ in range(20)]
    found = hold([lambda p=p: wander(*p) for p in plans], places=places)
    assert found == [4 * times for times, _ in plans]
    assert places._free == 4


def test_attendance_in_words() -> None:
    alone = {"c": "its net draws random numbers", "d": "its device is the CPU", "e": "its device is the CPU"}
    cohort = {"mode": "auto", "together": 2, "largest": 2, "alone": alone}
    assert attendance_in_words(cohort, 5) == (
        "2 of 5 sites were trained together; c: its net draws random numbers; d, e: its device is the CPU."
    )
    many = {f"s{n}": "it is a tree" for n in range(9)}
    assert attendance_in_words({"mode": "on", "together": 0, "alone": many}, 9) == (
        "0 of 9 sites were trained together; s0, s1 and 7 others: it is a tree."
    )
    assert attendance_in_words({"mode": "auto", "together": 0, "alone": many}, 9) == ""


def test_attendance_of_several_processes_adds_up() -> None:
    here = Attendance({"a", "b"}, 2, {"a": "once"})
    here.add(Attendance({"c", "d", "e"}, 3, {"f": "always"}))
    assert here == Attendance(set("abcde"), 3, {"a": "once", "f": "always"})


def test_a_site_does_several_tasks_abreast_and_they_meet_those_of_others() -> None:
    attendance, groups = Attendance(), list[list[int]]()

    def several(first: int) -> list[int]:
        found = abreast([lambda n=n: meet(Square(n, groups=groups)) for n in range(first, first + 3)])
        return [*found, meet(Square(10 * first, groups=groups))]

    found = hold([lambda: several(1), lambda: several(4)], attendance, places=Places(1))
    assert found == [[1, 4, 9, 100], [16, 25, 36, 1600]]
    assert groups == [[1, 2, 3, 4, 5, 6], [10, 40]]
    assert attendance == Attendance({"a", "b"}, 2)


def test_tasks_abreast_may_meet_different_numbers_of_times() -> None:
    groups: list[list[int]] = []

    def often(times: int) -> list[int]:
        return [meet(Square(times, groups=groups)) for _ in range(times)]

    found = hold([lambda: abreast([lambda n=n: often(n) for n in (1, 3)]), lambda: often(2)])
    assert found == [[[1], [9, 9, 9]], [4, 4]]
    assert groups == [[1, 3, 2], [3, 2]]


def test_a_task_that_fails_is_its_sites_error_after_the_others_are_done() -> None:
    done: list[int] = []

    def task(n: int) -> int:
        if n == 0:
            raise KeyError("first")
        done.append(meet(Square(n)))
        return n

    found = hold([lambda: abreast([lambda n=n: task(n) for n in range(3)]), lambda: meet(Square(5))])
    assert isinstance(found[0], KeyError)
    assert found[1] == 25
    assert sorted(done) == [1, 4]


def test_without_a_meeting_tasks_are_done_one_after_the_other() -> None:
    order: list[int] = []
    assert abreast([lambda n=n: order.append(n) or n for n in range(3)]) == [0, 1, 2]  # type: ignore[func-returns-value]
    assert order == [0, 1, 2]


def test_parts_of_a_work_are_done_in_as_many_threads_as_there_are_places() -> None:
    places, free = Places(2), []
    both = threading.Barrier(2, lambda: free.append(places._free))

    def part(number: int) -> int:
        both.wait(seconds(60))  # two are there at a time, or it breaks
        return number

    with Meeting(1, Attendance(), places).attended("a"):
        assert places_here() == 2
        assert in_places([partial(part, number) for number in range(4)]) == [0, 1, 2, 3]
        assert free == [0, 0]  # each had one
        with pytest.raises(ZeroDivisionError):
            in_places([lambda: 1 // 0, lambda: 1])
        assert places._free == 1  # whoever asked has its place again
    assert places._free == 2
    assert places_here() == 1
    mine = threading.get_ident()
    assert in_places([threading.get_ident] * 2) == [mine, mine]


def test_who_does_something_beside_the_others_needs_no_place_meanwhile() -> None:
    at_once, places = threading.Barrier(3), Places(1)

    def hash_much() -> int:
        with beside_others(1 << 20):
            at_once.wait(seconds(30))  # all three are there, although one is at work at a time
        return meet(Square(3))

    assert hold([hash_much] * 3, places=places) == [9] * 3
    assert places._free == 1
    with beside_others(1 << 20):  # without a meeting there is nobody to make place for
        pass


def test_what_is_short_is_done_in_ones_own_place() -> None:
    places = Places(1)
    with Meeting(1, Attendance(), places).attended("a"):
        with beside_others(1000):
            assert places._free == 0
        with beside_others(1 << 20):
            assert places._free == 1


def test_who_comes_back_does_not_wait_for_somebody_who_waits_for_it() -> None:
    ledger, places, order = threading.Lock(), Places(1), list[str]()

    def first() -> None:
        with ledger:
            with beside_others(1 << 20):
                until(lambda: bool(order), every=0.001)
            order.append("first")

    def second() -> None:
        until(ledger.locked, every=0.001)
        order.append("second has the place")
        with ledger:
            order.append("second")

    hold([first, second], places=places)
    assert order == ["second has the place", "first", "second"]
    assert places._free == 1


def test_sites_of_several_runs_meet_and_each_run_counts_once() -> None:
    attendance, groups = Attendance(), list[list[int]]()

    def exchange(*values: int | None) -> list[Any]:
        """One site for each value, of which it brings a work, or none."""
        own = attending() or pytest.fail("nobody meets")
        instead = Delegation(own, len(values))

        def site(value: int | None, place: Any) -> Any:
            with place:
                return None if value is None else meet(Square(value, groups=groups))

        tasks = [partial(site, value, instead.attended(str(value))) for value in values]
        with own.meeting.places.given_up():
            return in_threads(tasks)

    def run(first: int) -> list[Any]:
        return [*exchange(first, first + 1), *exchange(None), meet(Square(first + 2, groups=groups))]

    runs = {"a": partial(run, 0), "b": partial(run, 10), "c": partial(run, 20)}
    found = convene(runs, attendance, Places(1))
    expected = [[n**2, (n + 1) ** 2, None, (n + 2) ** 2] for n in (0, 10, 20)]
    assert found == dict(zip("abc", expected, strict=True))
    assert groups == [[0, 1, 10, 11, 20, 21], [2, 12, 22]]
    assert attendance == Attendance(set("abc"), 3)


def test_a_run_that_ends_with_sites_that_never_came_keeps_nobody_waiting() -> None:
    groups: list[list[int]] = []

    def ends() -> None:
        Delegation(attending() or pytest.fail("nobody meets"), 3).disperse()

    others = {name: partial(meet, Square(n, groups=groups)) for n, name in enumerate("bc")}
    assert convene({"a": ends, **others}, Attendance(), Places(3)) == {"a": None, "b": 0, "c": 1}
    assert groups == [[0, 1]]
