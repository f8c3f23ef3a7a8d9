"""Sites in threads of one process meet where each would do alike work, so that it is done for all of them at once.

A step at a site calls ``site.fit`` and knows of nobody else. Below it, a learner brings its work to the meeting of the
exchange in which its site answers, and waits; when every site of the exchange waits or has left, what was brought is
done together by whoever came last. Work that nobody can share is done alone, as it would be without a meeting.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
Cohort = Literal["auto", "on", "off"]
"""Whether sites are trained together: where their learner is on a GPU, wherever they can be, or nowhere."""


@dataclass(frozen=True)
class Alone:
    """Instead of an outcome: a work could not be done with others."""

    why: str


class Work(Protocol[T]):
    """Something that a site does, and that could be done with others of its kind."""

    @property
    def kind(self) -> Hashable | None:
        """Equal for works that can be done together; None: only alone."""

    @property
    def why_alone(self) -> str:
        """Why it can only be done alone, for the run's record."""

    def alone(self) -> T:
        """Do it."""

    def together(self, others: Sequence[Any]) -> Sequence[T | Alone]:
        """Do these, of which it is the first: what came of each, or why it must be done alone after all."""


@dataclass(eq=False)
class _Brought(Generic[T]):
    work: Work[T]
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or when its bringer is to do all that was brought."""
    done: bool = False
    outcome: Any = None


@dataclass
class Attendance:
    """Who was trained with whom, over a whole run."""

    largest: int = 0
    """The most works that were done together."""
    together: int = 0
    """Works done with others."""
    alone: Counter[str] = field(default_factory=Counter)
    """Works done alone, by reason."""

    def to_plain(self) -> dict[str, Any]:
        """For the run's record."""
        return {"largest": self.largest, "together": self.together, "alone": dict(self.alone)}


class Meeting:
    """One exchange: so many sites are expected, each in a thread of its own."""

    def __init__(self, expected: int, attendance: Attendance) -> None:
        self._expected = expected
        self._attendance = attendance
        self._brought: list[_Brought[Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def attended(self) -> Iterator[None]:
        """A site is at work in this thread; when it has left, nobody waits for it."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            with self._lock:
                self._expected -= 1
                if self._complete:
                    self._brought[-1].wake.set()

    def bring(self, work: Work[T]) -> T:
        """Wait for the others, and have it done."""
        own = _Brought(work)
        with self._lock:
            self._brought.append(own)
            everybody = self._complete
        if not everybody:
            own.wake.wait()
        if not own.done:
            with self._lock:
                brought, self._brought = self._brought, []
            self._do_all(brought)
        if isinstance(own.outcome, BaseException):
            raise own.outcome
        result: T = own.outcome
        return result

    @property
    def _complete(self) -> bool:
        return 0 < self._expected == len(self._brought)

    def _do_all(self, brought: list[_Brought[Any]]) -> None:
        """All of them wait, so that their works are nobody else's business meanwhile."""
        kinds: dict[Hashable, list[_Brought[Any]]] = {}
        for each in brought:
            kind = each.work.kind
            kinds.setdefault(id(each) if kind is None else (kind,), []).append(each)
        for group in kinds.values():
            works = [each.work for each in group]
            if len(group) == 1:
                self._attendance.alone[works[0].why_alone] += 1
                outcomes: list[Any] = [_tried(works[0])]
            else:
                outcomes = _tried_together(works)
                self._attendance.together += len(group)
                self._attendance.largest = max(self._attendance.largest, len(group))
            for each, outcome in zip(group, outcomes, strict=True):
                each.outcome, each.done = outcome, True
        for each in brought:
            each.wake.set()


def meet(work: Work[T]) -> T:
    """Do this work with what the other sites of this exchange bring, or alone where there is no meeting."""
    meeting = _current.get()
    return work.alone() if meeting is None else meeting.bring(work)


def _tried(work: Work[Any]) -> Any:
    try:
        return work.alone()
    except BaseException as error:  # raised where it was brought
        return error


def _tried_together(works: list[Work[Any]]) -> list[Any]:
    try:
        return works[0].together(works)
    except BaseException as error:
        return [error] * len(works)


_current: ContextVar[Meeting | None] = ContextVar("meeting", default=None)
