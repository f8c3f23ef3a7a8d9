"""What a site's agent says of itself in a small file of its folder: status, health and metrics are other programs.

Nothing in it is about rows: how many orders were carried out and how long that took, whether the agent can store what
it does, and, where metrics are wanted, how much privacy the ledger says was spent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collegium.errors import CollegiumError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.site.file import LEDGER, SiteFile
from collegium.flare.supervise.standing import AGENT_FILE, AgentStanding, Spent, ToldFile
from collegium.privacy.budget import spent_claim
from collegium.site.ledger import Ledger

_DELTA: Final = 1e-5  # where no budget names another
_PAUSE: Final = 20.0
"""To add up what was spent, and what waits, takes at most one part in so many of the agent's time."""


@dataclass
class Work:
    """How many orders were carried out, and how many seconds that took."""

    orders: int = 0
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one order, whatever comes of it."""
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.orders += 1
                self.seconds += time.monotonic() - start


class Bulletin:
    """Writes it; where the site has an endpoint for metrics, also what was spent, when the ledger has grown."""

    def __init__(self, kit: Path, site: SiteFile, approvals: Approvals) -> None:
        self._party, self._ledger = site.name, kit / LEDGER
        self._budget = None if site.budget is None else site.budget.epsilon
        self._delta = _DELTA if site.budget is None else site.budget.delta
        self._is_read = site.metrics.port is not None
        self._file = ToldFile(kit / AGENT_FILE)
        self._started = time.time()
        self._spent: Spent | None = None
        self._counted: int | None = None
        self._next = 0.0
        self._approvals = approvals
        self._waiting: dict[str, int] | None = None

    def tell(self, work: Work, trouble: str) -> None:
        """Say how it is now."""
        if self._is_read:
            with suppress(CollegiumError):  # a file that is being written to: next time
                self._add_up()
        told = (work.orders, work.seconds, trouble, self._spent, self._waiting)
        self._file.tell(AgentStanding(os.getpid(), self._started, *told))

    def _add_up(self) -> None:
        start = time.monotonic()
        if start < self._next:
            return
        self._waiting = {"plan": len(self._approvals.pending()), "order": len(self._approvals.orders.pending())}
        if self._ledger.is_file():
            self._add_up_charges()
        self._next = time.monotonic() + _PAUSE * (time.monotonic() - start)

    def _add_up_charges(self) -> None:
        with closing(Ledger(self._party, self._ledger)) as ledger:
            grown = ledger.length()
            if grown != self._counted:
                claim = spent_claim(ledger.charges(of_all=True), self._delta)
                self._spent = Spent(0.0 if claim is None else claim.epsilon, self._delta, self._budget)
                self._counted = grown
