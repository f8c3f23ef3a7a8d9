"""Say how far a study has come while it runs, to whoever looks after the server.

In a thread of its own: a round can take hours, and what fails in it should be seen before it ends. It reads what the
run has noted so far, and notes nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from collegium.core.observations import Observations
from collegium.errors import CollegiumError
from collegium.flare.coordinator.progress import Progress
from collegium.privacy.budget import read_charges, spent_claim
from collegium.privacy.claims import Charge

_SECONDS: Final = 5.0
_PAUSE: Final = 20.0
"""To add up what sites have spent takes at most one part in so many of the run's time."""
_DELTA: Final = 1e-5


@contextmanager
def reporting(observed: Observations, run: str, tell: Callable[[Progress], None]) -> Iterator[None]:
    """Tell now and then how far a run has come, and once more when it ends."""
    so_far, over = _SoFar(observed, run), threading.Event()

    def report() -> None:
        with suppress(CollegiumError, OSError):  # a full disk must not end a run
            tell(so_far.progress())

    def keep_reporting() -> None:
        while not over.wait(_SECONDS):
            report()

    report()
    thread = threading.Thread(target=keep_reporting, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        report()


class _SoFar:
    """Sums over what was noted; rows are only ever added, and each is looked at once."""

    def __init__(self, observed: Observations, run: str) -> None:
        self._observed, self._run = observed, run
        self._start = time.monotonic()
        self._read = Counter[str]()
        self._sent = self._received = 0
        self._failures = Counter[str]()
        self._charges: dict[str, list[Charge]] = defaultdict(list)
        self._epsilon: float | None = None
        self._counted, self._next = 0, 0.0

    def progress(self) -> Progress:
        """As it is now."""
        self._sent += sum(row["bytes"] for row in self._new("orders"))
        for row in self._new("releases"):
            self._received += row["wire_bytes"]
            self._charges[row["party"]] += read_charges(row["privacy"])[0]
        self._failures.update(row["code"] for row in self._new("refusals"))
        self._add_up()
        return Progress(
            self._run, self._observed.begun, self._observed.rounds, time.monotonic() - self._start, self._sent,
            self._received, dict(self._failures), self._epsilon, None if self._epsilon is None else _DELTA,
        )  # fmt: skip

    def _new(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = getattr(self._observed, table)
        before, self._read[table] = self._read[table], len(rows)
        return rows[before : self._read[table]]

    def _add_up(self) -> None:
        start, charges = time.monotonic(), sum(map(len, self._charges.values()))
        if charges == self._counted or start < self._next:
            return
        with suppress(CollegiumError):  # charges that cannot be composed: a site's own affair
            claims = [spent_claim(each, _DELTA) for each in self._charges.values()]
            spent = [claim.epsilon for claim in claims if claim is not None and math.isfinite(claim.epsilon)]
            self._epsilon = max(spent, default=None)
        self._counted, self._next = charges, time.monotonic() + _PAUSE * (time.monotonic() - start)
