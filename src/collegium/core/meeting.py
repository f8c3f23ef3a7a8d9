"""Sites in threads of one process meet where each would do alike work, so that it is done for all of them at once.

A step at a site calls ``site.fit`` and knows of nobody else. Below it, a learner brings its work to the meeting of the
exchange in which its site answers, and waits; when every site of the exchange waits or has left, alike works are done
at once by one of those who brought them. Work that nobody can share is done alone, as it would be without a meeting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from collegium.core.attendance import NOBODY_ALIKE, Attendance
from collegium.core.places import Places, locked

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MANY_BYTES: Final = 1 << 18
"""To hash them takes longer than a change of threads."""


@dataclass(frozen=True)
class Alone:
    """Instead of an outcome: a work could not be done with others."""

    why: str


class Work(Protocol[T_co]):
    """Something that a site does, and that could be done with others of its kind."""

    @property
    def kind(self) -> Hashable | None:
        """Equal for works that can be done together; None: only alone."""

    @property
    def why_alone(self) -> str:
        """Why it can only be done alone, for the run's record."""

    @property
    def trains(self) -> bool:
        """Whether a model learns in it: the run's record counts such works only."""

    def alone(self) -> T_co:
        """Do it."""

    def together(self, others: Sequence[Any]) -> Sequence[T_co | Alone | Exception]:
        """Do these, of which it is the first: what came of each, what went wrong, or why it must be done alone."""


class _Brought:
    """What a site waits for, and what it does for others meanwhile."""

    def __init__(self, party: str, works: Sequence[Work[Any]], order: tuple[int, ...] = ()) -> None:
        self.party, self.works, self.order = party, works, order
        """`order`: which of the site's tasks it is from, where it does several abreast."""
        self.outcomes: list[Any] = [None] * len(works)
        self.unsettled = len(works)
        self.leads: list[_Group] = []
        """Works that it does, its own among them."""
        self.waits = False
        """Whether it is to be called, when there is something to do or nothing more to wait for."""
        self.turn = locked()


_Group = list[tuple[_Brought, int]]
"""Alike works: what each was brought with, and its number there."""


class Meeting:
    """One exchange: so many sites are expected, each in a thread of its own.

    As many of them as there are `places` are at work at a time: one that waits for the others needs none.
    `why_alone` says why each is there by itself, if it is.
    """

    def __init__(
        self, expected: int, attendance: Attendance, places: Places | None = None, why_alone: str = ""
    ) -> None:
        self._expected = expected
        self._attendance = attendance
        self.places = places or Places(expected)
        """For those who are at work."""
        self._why_alone = why_alone
        self._brought: list[tuple[_Brought, list[Hashable | None]]] = []
        self._lock = threading.Lock()

    def attended(self, party: str, *, has_place: bool = False) -> AbstractContextManager[None]:
        """A site is at work in this thread; when it has left, nobody waits for it.

        The block begins once there is a place for it, unless its thread `has_place` already, and gives it back itself.
        """
        return _Attended(_Attending(self, party), self.leave, has_place=has_place)

    def disperse(self) -> None:
        """Nobody else will come: those who wait are not kept waiting, and who comes later works alone."""
        with self._lock:
            self._expected = 0
            self._begin_if_complete()

    def leave(self) -> None:
        """One of those who were expected has left, or never comes."""
        with self._lock:
            self._expected -= 1
            self._begin_if_complete()

    def expect(self, more: int) -> None:
        """So many more will come."""
        with self._lock:
            self._expected += more

    def abreast(self, by: _Attending, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Do a site's tasks in threads of their own, each of which attends, while its own thread waits."""
        instead = Delegation(by, len(tasks))

        def attend(task: Callable[[], T], place: AbstractContextManager[None]) -> T:
            with place:
                return task()

        attending = [partial(attend, task, instead.attended(str(number))) for number, task in enumerate(tasks)]
        with self.places.given_up():
            return in_threads(attending)

    def bring(self, party: str, works: Sequence[Work[T]], order: tuple[int, ...] = ()) -> list[T]:
        """Wait for the others, and have it done."""
        own = _Brought(party, works, order)
        kinds = [work.kind for work in works]
        with self._lock:
            self._brought.append((own, kinds))
            self._begin_if_complete()
        while own.unsettled or own.leads:
            with self._lock:
                group = own.leads.pop() if own.leads else None
                waits = own.waits = group is None and own.unsettled > 0
            if group is not None:
                self._do(group)
            elif waits:
                self.places.give_back()
                own.turn.acquire()
        results: list[T] = []
        for work, outcome in zip(works, own.outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(work.alone() if isinstance(outcome, Alone) else outcome)
        return results

    def _begin_if_complete(self) -> None:
        """If everybody waits, say who does what; works that are alone of their kind are left to those who brought them.

        Groups are the same, and in the same order, whoever came first.
        """
        if len(self._brought) < self._expected:
            return
        brought, self._brought = sorted(self._brought, key=lambda each: (each[0].party, each[0].order)), []
        groups: dict[Hashable, _Group] = {}
        for own, kinds in brought:
            for number, kind in enumerate(kinds):
                groups.setdefault((id(own), number) if kind is None else (kind,), []).append((own, number))
        for group in groups.values():
            if len(group) == 1:
                own, number = group[0]
                self._settle(group, [Alone(own.works[number].why_alone)])
            else:
                leader = min((own for own, _ in group), key=lambda own: len(own.leads))
                leader.leads.append(group)
                self._call(leader)

    def _do(self, group: _Group) -> None:
        works = [own.works[number] for own, number in group]
        try:
            outcomes = works[0].together(works)
        except BaseException as error:  # raised where each was brought
            outcomes = [error] * len(works)
        with self._lock:
            self._settle(group, outcomes)

    def _settle(self, group: _Group, outcomes: Sequence[Any]) -> None:
        """What came of alike works, for those who brought them and for the record."""
        together: dict[str, None] = {}
        for (own, number), outcome in zip(group, outcomes, strict=True):
            if own.works[number].trains:
                if isinstance(outcome, Alone):
                    self._note([own.party], outcome.why)
                else:
                    together[own.party] = None
            own.outcomes[number] = outcome
            own.unsettled -= 1
            if not own.unsettled:
                self._call(own)
        if together:
            self._note(list(together), "")

    def _call(self, own: _Brought) -> None:
        if own.waits:
            own.waits = False
            self.places.call(own.turn)

    def _note(self, parties: Sequence[str], why_alone: str) -> None:
        self._attendance.note(parties, self._why_alone or why_alone or NOBODY_ALIKE)


class Delegation:
    """Several attend a meeting instead of one who waits for them; when the last has left, that one attends again."""

    def __init__(self, by: _Attending, number: int) -> None:
        self._by, self._left = by, number
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        by.meeting.expect(number - 1)

    def attended(self, name: str, *, has_place: bool = False) -> AbstractContextManager[None]:
        """As in `Meeting.attended`: what these do is noted for the one that they are there for."""
        number = self._numbers.setdefault(name, len(self._numbers))
        attending = _Attending(self._by.meeting, self._by.party, (*self._by.order, number))
        return _Attended(attending, self.leave, has_place=has_place)

    def leave(self) -> None:
        """One of them has left, or never comes."""
        self._leave(1)

    def disperse(self) -> None:
        """Nobody else will come, and nobody waits for those who have."""
        self._leave(self._left)

    def _leave(self, number: int) -> None:
        with self._lock:
            leaving = min(number, self._left)
            self._left -= leaving
            returns = leaving > 0 and self._left == 0  # the one that they were there for takes the last one's place
        for _ in range(leaving - returns):
            self._by.meeting.leave()


def convene(tasks: Mapping[str, Callable[[], T]], attendance: Attendance, places: Places) -> dict[str, T]:
    """Do tasks in threads of their own, where each attends one meeting by its name; the first error is raised.

    Exchanges that a task holds in this process are part of that meeting: sites of all tasks meet in it.
    """
    meeting = Meeting(len(tasks), attendance, places)

    def attend(name: str, task: Callable[[], T]) -> T:
        with meeting.attended(name):
            return task()

    found = in_threads([partial(attend, name, task) for name, task in tasks.items()])
    return dict(zip(tasks, found, strict=True))


def in_threads(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """What came of each task, in a thread of its own; if some of them fail, the first error is raised."""
    outcomes: list[Any] = [None] * len(tasks)

    def do(number: int) -> None:
        try:
            outcomes[number] = tasks[number]()
        except BaseException as error:  # raised where it is waited for
            outcomes[number] = error

    threads = [threading.Thread(target=do, args=(number,), daemon=True) for number in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def meet(work: Work[T]) -> T:
    """Do this work with what the other sites of this exchange bring, or alone where there is no meeting."""
    return meet_all([work])[0]


def meet_all(works: Sequence[Work[T]]) -> list[T]:
    """Do several works of one site, with each other and with what the other sites bring; alone without a meeting.

    If some of them fail, the first error is raised.
    """
    current = _current.get()
    if current is None or not works:
        return [work.alone() for work in works]
    return current.meeting.bring(current.party, works, current.order)


def beside_others(nbytes: int) -> AbstractContextManager[None]:
    """Other sites of this exchange may be at work during a block that goes through so many bytes, if they are many.

    For work that leaves Python to them, such as hashing. It takes a change of threads, which short work is not worth.
    """
    current = _current.get() if nbytes > MANY_BYTES else None
    return nullcontext() if current is None else current.meeting.places.left()


def places_here() -> int:
    """How many threads of this meeting may be at work at a time; 1 without a meeting."""
    current = _current.get()
    return 1 if current is None else current.meeting.places.number


def in_places(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Do parts of a common work, as many at a time as there are places; one after the other without a meeting.

    For work that leaves Python to others. If some of them fail, the first error is raised.
    """
    current = _current.get()
    if current is None or len(tasks) < 2 or current.meeting.places.number < 2:
        return [task() for task in tasks]
    places = current.meeting.places

    def do(task: Callable[[], T]) -> T:
        places.take()
        try:
            return task()
        finally:
            places.give_back()

    with places.given_up():
        return in_threads([partial(do, task) for task in tasks])


def abreast(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Do several tasks of one site, which meet each other and the other sites; one after the other without a meeting.

    If some of them fail, the first error is raised.
    """
    current = _current.get()
    if current is None or len(tasks) < 2:
        return [task() for task in tasks]
    return current.meeting.abreast(current, tasks)


class _Attending(NamedTuple):
    """Where the site in this thread is, and which of its tasks it does."""

    meeting: Meeting
    party: str
    order: tuple[int, ...] = ()


class _Attended(AbstractContextManager[None]):
    """Be there during a block, with a place; `leave` says that one has left."""

    def __init__(self, attending: _Attending, leave: Callable[[], None], *, has_place: bool) -> None:
        self._attending, self._leave, self._has_place = attending, leave, has_place

    def __enter__(self) -> None:
        self._token = _current.set(self._attending)
        if not self._has_place:
            self._attending.meeting.places.take()

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)
        self._leave()
        if not self._has_place:
            self._attending.meeting.places.give_back()


_current: ContextVar[_Attending | None] = ContextVar("meeting", default=None)


def attending() -> _Attending | None:
    """The meeting that this thread attends, if it does."""
    return _current.get()
