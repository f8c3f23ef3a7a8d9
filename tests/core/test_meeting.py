"""Threads that wait for each other, so that alike work is done at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from collegium.core.meeting import Attendance, Meeting, meet


@dataclass
class Square:
    value: int
    kind: Any = "square"
    why_alone: str = "nobody else came"
    groups: list[int] = field(default_factory=list)

    def alone(self) -> int:
        return self.value**2

    def together(self, others: Sequence[Square]) -> list[int | Exception]:
        self.groups.append(len(others))
        return [ValueError(str(each.value)) if each.value < 0 else each.value**2 for each in others]


def hold(tasks: Sequence[Any], attendance: Attendance) -> list[Any]:
    """Each task in a thread of its own, as the sites of an exchange are."""
    meeting = Meeting(len(tasks), attendance)

    def attend(task: Any) -> Any:
        with meeting.attended():
            try:
                return task()
            except Exception as error:
                return error

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result(timeout=30) for future in [pool.submit(attend, task) for task in tasks]]


def test_alike_works_are_done_at_once() -> None:
    attendance, groups = Attendance(), list[int]()
    found = hold([lambda n=n: meet(Square(n, groups=groups)) for n in range(8)], attendance)
    assert found == [n**2 for n in range(8)]
    assert groups == [8]
    assert (attendance.largest, attendance.together, attendance.alone) == (8, 8, {})


def test_who_leaves_is_not_waited_for() -> None:
    groups: list[int] = []

    def leave() -> str:
        return "left"

    def fail() -> None:
        raise RuntimeError("failed before the meeting")

    found = hold(
        [lambda: meet(Square(3, groups=groups)), leave, lambda: meet(Square(4, groups=groups)), fail], Attendance()
    )
    assert found[:3] == [9, "left", 16]
    assert isinstance(found[3], RuntimeError)
    assert groups == [2]


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
    assert attendance.to_plain() == {
        "largest": 2,
        "together": 2,
        "alone": {"nobody else came": 1, "it draws random numbers": 2},
    }


def test_sites_meet_as_often_as_they_bring_something() -> None:
    groups: list[int] = []

    def often(times: int) -> int:
        return sum(meet(Square(1, groups=groups)) for _ in range(times))

    assert hold([lambda n=n: often(n) for n in (1, 2, 3, 3)], Attendance()) == [1, 2, 3, 3]
    assert groups == [4, 3, 2]


def test_an_error_of_one_is_its_own() -> None:
    found = hold([lambda n=n: meet(Square(n)) for n in (2, -1, 3)], Attendance())
    assert (found[0], found[2]) == (4, 9)
    assert isinstance(found[1], ValueError)


def test_an_error_of_the_whole_computation_reaches_everybody() -> None:
    class Broken(Square):
        def together(self, others: Sequence[Square]) -> list[int | Exception]:
            raise MemoryError

    found = hold([lambda n=n: meet(Broken(n)) for n in range(3)], Attendance())
    assert all(isinstance(each, MemoryError) for each in found)


def test_without_a_meeting_work_is_done_alone() -> None:
    assert meet(Square(7)) == 49


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_arrival_leaves_anybody_waiting(seed: int) -> None:
    import random

    chance = random.Random(seed)
    gate = threading.Barrier(20)

    def wander(times: int, naps: list[float]) -> int:
        gate.wait(30)
        total = 0
        for nap in naps[:times]:
            threading.Event().wait(nap)
            total += meet(Square(2))
        return total

    plans = [(chance.randrange(5), [chance.random() / 500 for _ in range(5)]) for _ in range(20)]
    assert hold([lambda p=p: wander(*p) for p in plans], Attendance()) == [4 * times for times, _ in plans]
