"""Sites in threads of one process meet where each would do alike work, so that it is done for all of them at once.

A step at a site calls ``site.fit`` and knows of nobody else. Below it, a learner brings its work to the meeting of the
exchange in which its site answers, and waits; when every site of the exchange waits or has left, what was brought is
done together by whoever came last. Work that nobody can share is done alone, as it would be without a meeting.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Cohort = Literal["auto", "on", "off"]
"""Whether sites are trained together: where their learner is on a GPU, wherever they can be, or nowhere."""
NOBODY_ALIKE: Final = "no other site brought a net like its own"
NOBODY_ELSE: Final = "no other site of its process trains with others"
HAD_DEADLINE: Final = "sites that have a deadline do not wait for each other"


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

    def together(self, others: Sequence[Any]) -> Sequence[T_co | Alone]:
        """Do these, of which it is the first: what came of each, or why it must be done alone after all."""


@dataclass
class Attendance:
    """Who was trained with whom, over a whole run."""

    together: set[str] = field(default_factory=set)
    """The sites that were trained with others."""
    largest: int = 0
    """The most sites in one computation."""
    alone: dict[str, str] = field(default_factory=dict)
    """The sites that were trained alone, if only once, and why."""

    def note(self, parties: Sequence[str], why_alone: str) -> None:
        """These sites were trained in one computation."""
        if len(parties) == 1:
            self.alone[parties[0]] = why_alone
        else:
            self.together.update(parties)
            self.largest = max(self.largest, len(parties))

    def to_plain(self, mode: Cohort, parties: Sequence[str]) -> dict[str, Any]:
        """For the run's record."""
        alone = {party: self.alone[party] for party in parties if party in self.alone}
        return {"mode": mode, "together": len(self.together), "largest": self.largest, "alone": alone}

    def add(self, other: Attendance) -> None:
        """What another process noted of its sites."""
        self.together |= other.together
        self.largest = max(self.largest, other.largest)
        self.alone |= other.alone


def resumed(earlier: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """``run.about["cohort"]`` of a run in two parts; where they had different modes, `before` has that of the first."""
    if earlier is None:
        return dict(now)
    most = {name: max(earlier[name], now[name]) for name in ("together", "largest")}
    modes = {earlier["mode"], earlier.get("before", earlier["mode"])} - {now["mode"]}
    before = {"before": min(modes)} if modes else {}
    return {**now, **most, "alone": earlier["alone"] | now["alone"], **before}


def attendance_in_words(cohort: Mapping[str, Any], sites: int) -> str:
    """``run.about["cohort"]`` as one line; nothing where nobody was to be trained together."""
    if cohort["mode"] != "on" and not cohort["together"]:
        return ""
    by_reason: dict[str, list[str]] = {}
    for party, reason in cohort["alone"].items():
        by_reason.setdefault(reason, []).append(party)
    others = [f"{_some(parties)}: {reason}" for reason, parties in by_reason.items()]
    return "; ".join([f"{cohort['together']} of {sites} sites were trained together", *others]) + "."


def _some(parties: Sequence[str]) -> str:
    return ", ".join(parties) if len(parties) <= 3 else f"{', '.join(parties[:2])} and {len(parties) - 2} others"


@dataclass(eq=False)
class _Brought(Generic[T]):
    party: str
    works: Sequence[Work[T]]
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when they are done, or when their bringer is to do all that was brought."""
    done: bool = False
    outcomes: list[Any] = field(default_factory=list)


class Meeting:
    """One exchange: so many sites are expected, each in a thread of its own.

    As many of them as there are `places` are at work at a time: one that waits for the others needs none.
    `why_alone` says why each is there by itself, if it is.
    """

    def __init__(
        self, expected: int, attendance: Attendance, places: threading.Semaphore | None = None, why_alone: str = ""
    ) -> None:
        self._expected = expected
        self._attendance = attendance
        self._places = places or threading.Semaphore(expected)
        self._why_alone = why_alone
        self._brought: list[_Brought[Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def attended(self, party: str, *, joins: bool = True) -> Iterator[None]:
        """A site is at work in this thread; when it has left, nobody waits for it. One that does not join never came.

        The block begins once there is a place for it.
        """
        token = _current.set((self, party) if joins else None)
        if not joins:
            self._leave()
        try:
            with self._places:
                yield
        finally:
            _current.reset(token)
            if joins:
                self._leave()

    def disperse(self) -> None:
        """Nobody else will come: those who wait are not kept waiting, and who comes later works alone."""
        with self._lock:
            self._expected = 0
            self._wake_one()

    def _leave(self) -> None:
        with self._lock:
            self._expected -= 1
            self._wake_one()

    def _wake_one(self) -> None:
        """If everybody has come, one of them does what was brought."""
        if self._brought and self._everybody:
            self._brought[-1].wake.set()

    @property
    def _everybody(self) -> bool:
        return len(self._brought) >= self._expected

    def bring(self, party: str, works: Sequence[Work[T]]) -> list[T]:
        """Wait for the others, and have it done."""
        own = _Brought(party, works)
        with self._lock:
            self._brought.append(own)
            everybody = self._everybody
        if not everybody:
            self._wait(own)
        while not own.done:
            if brought := self._taken_by(own):
                self._do_all(brought)
            else:
                self._wait(own)
        for outcome in own.outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        results: list[T] = own.outcomes
        return results

    def _wait(self, own: _Brought[Any]) -> None:
        self._places.release()
        own.wake.wait()
        self._places.acquire()
        own.wake.clear()

    def _taken_by(self, own: _Brought[Any]) -> list[_Brought[Any]]:
        """All that was brought; nothing where somebody else has taken it, who is about to do it."""
        with self._lock:
            if own not in self._brought:
                return []
            brought, self._brought = self._brought, []
        return sorted(brought, key=lambda each: each.party)  # whoever came first

    def _do_all(self, brought: list[_Brought[Any]]) -> None:
        """All of them wait, so that their works are nobody else's business meanwhile."""
        groups: dict[Hashable, list[tuple[_Brought[Any], int]]] = {}
        for each in brought:
            each.outcomes = [None] * len(each.works)
            for number, work in enumerate(each.works):
                kind = (id(each), number) if work.kind is None else (work.kind,)
                groups.setdefault(kind, []).append((each, number))
        for group in groups.values():
            works = [each.works[number] for each, number in group]
            outcomes = _tried(works)
            shared = [each.party for (each, _), outcome in zip(group, outcomes, strict=True) if not _is_alone(outcome)]
            if works[0].trains and shared:
                why = self._why_alone or works[0].why_alone or NOBODY_ALIKE
                self._attendance.note(list(dict.fromkeys(shared)), why)
            for (each, number), outcome in zip(group, outcomes, strict=True):
                each.outcomes[number] = outcome
                if isinstance(outcome, Alone):
                    each.outcomes[number] = _tried([each.works[number]])[0]
                    if works[0].trains:
                        self._attendance.note([each.party], outcome.why)
        for each in brought:
            each.done = True
            each.wake.set()


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
    meeting, party = current
    return meeting.bring(party, works)


def _is_alone(outcome: Any) -> bool:
    return isinstance(outcome, Alone)


def _tried(works: Sequence[Work[Any]]) -> list[Any]:
    """What came of each, or the error, which is raised where the work was brought."""
    try:
        return [works[0].alone()] if len(works) == 1 else list(works[0].together(works))
    except BaseException as error:
        return [error] * len(works)


_current: ContextVar[tuple[Meeting, str] | None] = ContextVar("meeting", default=None)
"""The meeting that the site in this thread attends, and the site's name."""
