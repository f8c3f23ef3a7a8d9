"""What a process needs to host sites of a simulation, and how many threads each site may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from collegium.core.attendance import Cohort
from collegium.core.public_set import PublicSet
from collegium.core.site import Exam, Site
from collegium.learners.base import last_step, learner_name
from collegium.protocols.keyring import Keyring
from collegium.site.agent import Agent
from collegium.site.factory import open_site
from collegium.site.run_ledger import LedgerFile
from collegium.site.states import Pace


@dataclass(frozen=True, eq=False)
class Hosting:
    """Sites of one simulated run, and what they share."""

    sites: tuple[Site, ...]
    classes: NDArray[Any]
    public: PublicSet | None
    exam: Exam | None
    seed: int
    run: str = ""
    folder: Path | None = None
    """The run's folder; without one nothing is stored and the run cannot be resumed."""
    parties: tuple[str, ...] = ()
    """The names of all sites of the run, wherever they are hosted."""
    cohort: Cohort = "off"
    """Whether sites of one process are trained together."""

    def __post_init__(self) -> None:
        if not self.parties:
            object.__setattr__(self, "parties", tuple(site.name for site in self.sites))

    def agents(self, public: Any = None, pace: Pace | None = None) -> dict[str, Agent]:
        """One running agent per site; `public` are the rows of a public set that came by another way.

        A `pace` is for a link whose sites can be sent orders again after a kill.
        """
        shared = self.public if public is None else PublicSet(public)
        ledger = None if self.folder is None else LedgerFile(self.folder / "ledger.db")
        return {site.name: self._agent(site, shared, ledger, pace) for site in self.sites}

    def alone(self) -> dict[str, str]:
        """The sites whose learners are never trained with those of others, and why."""
        reasons = {site.name: why_alone(site.learner, self.cohort) for site in self.sites}
        return {party: reason for party, reason in reasons.items() if reason is not None}

    def is_on_gpu(self) -> bool:
        """Whether all sites' learners are trained on a GPU: then more of them at work in Python are only in each
        other's way."""
        return all(why_alone(site.learner, "auto") is None for site in self.sites)

    def _agent(self, site: Site, public: PublicSet | None, ledger: LedgerFile | None, pace: Pace | None) -> Agent:
        own = None if site.budget is None or site.budget.ledger is None else Path(site.budget.ledger)
        return open_site(
            site,
            self.classes,
            public,
            self.seed,
            self.run,
            simulation=True,
            keyring=partial(Keyring.simulated, self.run, site.name, self.parties),
            ledger=own or ledger,
            folder=None if self.folder is None else self.folder / "sites" / site.name,
            exam=self.exam,
            pace=pace,
        )


def why_alone(learner: Any, cohort: Cohort) -> str | None:
    """Why a learner does not join a cohort; None if it does."""
    if cohort == "off":
        return "cohort is off"
    if learner is None:
        return "it has no learner"
    joins = getattr(last_step(learner), "joins_cohort", None)
    if joins is None:
        return f"{learner_name(learner)} is not a net that trains with others"
    reason: str | None = joins(cohort)
    return reason


def available_cores() -> int:
    """The cores that this process may use (a container or `taskset` may leave it fewer than there are)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def numerical_libraries() -> ThreadpoolController:
    """Those with threads of their own. To find them takes long, so it is done again only when more was imported."""
    return _libraries_of(len(sys.modules))


@lru_cache(maxsize=1)
def _libraries_of(modules: int) -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def threads_per_site(limit: int = 1) -> Iterator[None]:
    """Numerical libraries use `limit` threads inside: sums then come out the same on every link, bit for bit."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    with numerical_libraries().limit(limits=limit):
        if torch is not None:
            torch.set_num_threads(limit)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)
