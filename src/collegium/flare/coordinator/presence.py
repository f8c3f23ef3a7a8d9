"""When each site was last heard of, told to a run's trail while the run goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from collegium.errors import CollegiumError
from collegium.flare.coordinator.link import Host, Session

EVERY: Final = 5.0
"""Seconds between questions to the server, where the run itself asks less often."""


class Attentive:
    """A host that tells what it learns of its sites."""

    def __init__(self, host: Host, tell: Callable[[Mapping[str, float]], None], *, every: float = EVERY) -> None:
        self._host, self._tell, self._every = host, tell, every
        self._asked = -math.inf

    def seen(self) -> Mapping[str, float]:
        """When each connected site was last heard of, in this machine's seconds."""
        times = self._host.seen()
        now = time.monotonic()
        if now - self._asked >= self._every:
            self._asked = now
            self._tell(times)
        return times

    def begin(self, parties: frozenset[str]) -> Session:
        """A session with these sites."""
        return self._host.begin(parties)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ask the server now and then for as long as the block lasts."""
        over = threading.Event()

        def listen() -> None:
            while not over.wait(self._every):
                try:
                    self.seen()
                except CollegiumError:  # a server that is away: the link says so
                    continue

        thread = threading.Thread(target=listen, name="presence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()  # it is not waited for: a server that is away takes seconds to say so
