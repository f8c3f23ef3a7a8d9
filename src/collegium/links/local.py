"""Sites in this process, a thread for each that is at work."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final, NamedTuple

from collegium.core.attendance import HAD_DEADLINE, NOBODY_ELSE, Attendance
from collegium.core.link import Answer, OwnAnswer
from collegium.core.meeting import Delegation, Meeting, attending
from collegium.core.one_core import OneCore
from collegium.core.places import Places
from collegium.links.attendants import Attendants, Inbox
from collegium.links.hosting import Hosting, available_cores, numerical_libraries, threads_per_site
from collegium.links.simulated import Collected, SimulatedLink
from collegium.site.states import Pace

ALONE: Final = "trained without the other sites"
"""What a site's log says, with the reason, when its learner could not join those of the others."""


class Exchange(NamedTuple):
    """What a process knows of an exchange beside its own orders."""

    number: int
    orders: int
    """How many sites of this process are asked in it."""
    deadline: float | None


class AgentPool:
    """Runs agents in threads: never two orders of one site at a time, and so many sites at work at a time.

    Sites whose learners join a cohort meet in each exchange; all of them then have a thread to wait in.
    """

    def __init__(self, hosting: Hosting, public: Any = None, threads: int = 0, pace: Pace | None = None) -> None:
        self.agents = hosting.agents(public, pace)
        alone = hosting.alone()
        self._joining = self.agents.keys() - alone.keys()
        self._attendance = Attendance(alone=dict(alone))
        self._told = alone if hosting.cohort != "on" else {}
        """By site, why it was trained alone, as its log says; what nobody asked for is not said there."""
        self._size = max(1, min(len(self.agents), threads or available_cores()))
        self._within = attending()
        """A meeting of several runs, of which this is one: its sites meet those of the others."""
        some_meet = len(self._joining) > (1 if self._within is None else 0)
        if self._within is not None:
            self._places = self._within.meeting.places
        elif self._joining and hosting.is_on_gpu():
            self._places = Places(1, OneCore.claim() if some_meet else None)
        else:
            self._places = Places(self._size)
        self._locks = {party: threading.Lock() for party in self.agents}
        self._executor = self._start(self._size)
        self._attendants = Attendants(self._places, self._begin) if some_meet else None
        self._meetings: dict[int, Meeting | Delegation] = {}
        """That of the last exchange."""

    def _start(self, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, initializer=self._limit)

    def _limit(self) -> None:
        # OpenMP counts its threads per calling thread, so the limit is set in each of ours.
        numerical_libraries().limit(limits=1)

    def _begin(self) -> None:
        """In each thread in which sites wait for each other."""
        self._limit()
        if self._places.core is not None:
            self._places.core.stay()

    def submit(self, party: str, frame: bytes, exchange: Exchange) -> Future[Answer | None]:
        """Serve a frame; None if the site was still busy with an older order when the deadline passed."""
        if self._attendants is None or exchange.deadline is not None:
            place = self._place_alone(party, exchange)
            return self._executor.submit(self._serve, party, frame, exchange.deadline, place)
        meeting = self._meeting(exchange)
        if party in self._joining:
            return self._attendants.submit(self._attend, party, frame, meeting.attended(party, has_place=True))
        meeting.leave()  # so that nobody waits for it
        return self._attendants.submit(self._attend, party, frame, nullcontext())

    def _place_alone(self, party: str, exchange: Exchange) -> AbstractContextManager[None]:
        if party not in self._joining:
            return nullcontext()
        why = NOBODY_ELSE if exchange.deadline is None else HAD_DEADLINE
        return Meeting(1, self._attendance, why_alone=why).attended(party)

    def _meeting(self, exchange: Exchange) -> Meeting | Delegation:
        if exchange.number not in self._meetings:
            self._meetings = {exchange.number: self._new_meeting(exchange.orders)}
        return self._meetings[exchange.number]

    def _new_meeting(self, expected: int) -> Meeting | Delegation:
        if self._within is None:
            return Meeting(expected, self._attendance, self._places)
        return Delegation(self._within, expected)

    def awaited(self) -> AbstractContextManager[None]:
        """For whoever waits for answers: where several runs meet, a block in which their sites have its place."""
        return nullcontext() if self._within is None else self._places.given_up()

    def _serve(
        self, party: str, frame: bytes, deadline: float | None, place: AbstractContextManager[None]
    ) -> Answer | None:
        lock = self._locks[party]
        if not lock.acquire(timeout=-1 if deadline is None else deadline):
            return None
        try:
            with place:
                return self._answer(party, frame)
        finally:
            lock.release()

    def _attend(self, party: str, frame: bytes, place: AbstractContextManager[None]) -> Answer:
        lock = self._locks[party]
        if not lock.acquire(blocking=False):  # it is still busy with an older order, and needs a place for that
            self._places.give_back()
            lock.acquire()
            self._places.take()
        try:
            with place:
                return self._answer(party, frame)
        finally:
            lock.release()

    def _answer(self, party: str, frame: bytes) -> Answer:
        agent = self.agents[party]
        reply = agent.serve(frame)
        why = self._attendance.alone.get(party)
        if why is not None and self._told.get(party) != why:
            self._told[party] = why
            agent.log.write(f"{ALONE}: {why}")
        answer = OwnAnswer(party, reply, agent.notes)
        if agent.made is not None and agent.made[0] is reply:
            _, answer.reply, answer.release = agent.made
        return answer

    @property
    def is_busy(self) -> bool:
        """Whether some of its sites wait for others that are at work."""
        return self._attendants is not None and self._places.awaited

    def collect(self) -> Collected:
        """What the sites have now."""
        sites = {
            party: (agent.site.model, agent.site.found_labels, agent.log.lines) for party, agent in self.agents.items()
        }
        return Collected(sites, self._attendance)

    def abandon(self) -> None:
        """Give up threads that hang; the next orders get new ones."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._start(self._size)

    def close(self) -> None:
        """Release threads and files."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._attendants is not None:
            self._attendants.close()
        if self._within is None and self._places.core is not None:
            self._places.core.release()
        for meeting in self._meetings.values():  # some may wait for one whose order was never begun
            meeting.disperse()
        for party, agent in self.agents.items():
            if self._locks[party].acquire(blocking=False):  # a site that is still at work needs its file
                agent.close()
                if agent.site.model is not None:
                    agent.site.model.release()


def _size(answer: Answer | None) -> int:
    return 0 if answer is None else len(answer.frame)


class LocalLink(SimulatedLink):
    """Sites in this process; `workers` of them work at a time (0: one per core)."""

    def __init__(self, hosting: Hosting, workers: int = 0, address: str | None = None, gpus: float = 0.0) -> None:
        super().__init__(hosting, workers, address, gpus)
        self._limits = ExitStack()
        self._limits.enter_context(threads_per_site())
        # scikit-learn sets warning filters while it fits trees, which threads can leave behind: put ours back.
        self._limits.enter_context(warnings.catch_warnings())
        self._pool = AgentPool(hosting, threads=workers, pace=Pace())
        self._exchanges = 0

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come."""
        self._exchanges += 1
        exchange = Exchange(self._exchanges, len(orders), deadline)
        inbox = Inbox(len(orders), lambda: self._pool.is_busy, _size)
        for party, frame in orders.items():
            self._pool.submit(party, frame, exchange).add_done_callback(inbox.put)
        try:
            with self._pool.awaited():
                for answer in inbox.drained(deadline):
                    if answer is not None:
                        yield answer
        except TimeoutError:
            self._pool.abandon()

    @property
    def behind(self) -> dict[str, tuple[int, ...]]:
        """The orders that each site must do again before it can go on."""
        return {party: agent.behind for party, agent in self._pool.agents.items() if agent.behind}

    @property
    def _collected(self) -> Collected:
        return self._pool.collect()

    def close(self) -> None:
        """Release threads and files."""
        self._pool.close()
        self._limits.close()
