"""Sites in this process, a thread for each that is at work."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as DeadlinePassed
from contextlib import ExitStack

from threadpoolctl import threadpool_limits

from collegium.core.link import Answer
from collegium.links.hosting import Hosting, available_cores, threads_per_site
from collegium.links.simulated import Kept, SimulatedLink
from collegium.site.agent import Agent
from collegium.site.states import Pace


class AgentPool:
    """Runs agents in threads: never two orders of one site at a time."""

    def __init__(self, agents: Mapping[str, Agent], threads: int = 0) -> None:
        self.agents = dict(agents)
        self._size = max(1, min(len(self.agents), threads or available_cores()))
        self._locks = {party: threading.Lock() for party in self.agents}
        self._executor = self._start()

    def _start(self) -> ThreadPoolExecutor:
        # OpenMP counts its threads per calling thread, so the limit is set in each of ours.
        return ThreadPoolExecutor(self._size, initializer=threadpool_limits, initargs=(1,))

    def submit(self, party: str, frame: bytes, deadline: float | None) -> Future[Answer | None]:
        """Serve a frame; None if the site was still busy with an older order when the deadline passed."""
        return self._executor.submit(self._serve, party, frame, deadline)

    def _serve(self, party: str, frame: bytes, deadline: float | None) -> Answer | None:
        lock = self._locks[party]
        if not lock.acquire(timeout=-1 if deadline is None else deadline):
            return None
        try:
            agent = self.agents[party]
            return Answer(party, agent.serve(frame), agent.notes)
        finally:
            lock.release()

    def collect(self) -> dict[str, Kept]:
        """What the sites have now."""
        return {
            party: (agent.site.model, agent.site.found_labels, agent.log.lines) for party, agent in self.agents.items()
        }

    def abandon(self) -> None:
        """Give up threads that hang; the next orders get new ones."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._start()

    def close(self) -> None:
        """Release threads and files."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for party, agent in self.agents.items():
            if self._locks[party].acquire(blocking=False):  # a site that is still at work needs its file
                agent.close()


class LocalLink(SimulatedLink):
    """Sites in this process; `workers` of them work at a time (0: one per core)."""

    def __init__(self, hosting: Hosting, workers: int = 0, address: str | None = None) -> None:
        super().__init__(hosting, workers, address)
        self._limits = ExitStack()
        self._limits.enter_context(threads_per_site())
        # scikit-learn sets warning filters while it fits trees, which threads can leave behind: put ours back.
        self._limits.enter_context(warnings.catch_warnings())
        self._pool = AgentPool(hosting.agents(pace=Pace()), workers)

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come."""
        pending = {self._pool.submit(party, frame, deadline) for party, frame in orders.items()}
        try:
            for future in as_completed(list(pending), timeout=deadline):
                pending.discard(future)
                answer = future.result()
                del future  # answers are passed on, not kept
                if answer is not None:
                    yield answer
        except DeadlinePassed:
            self._pool.abandon()

    @property
    def behind(self) -> dict[str, tuple[int, ...]]:
        """The orders that each site must do again before it can go on."""
        return {party: agent.behind for party, agent in self._pool.agents.items() if agent.behind}

    @property
    def _collected(self) -> dict[str, Kept]:
        return self._pool.collect()

    def close(self) -> None:
        """Release threads and files."""
        self._pool.close()
        self._limits.close()
