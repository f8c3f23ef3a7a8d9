"""When each site was last heard of, and how long certificates last, told to a run's trail while the run goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from collegium.errors import CollegiumError
from collegium.flare.coordinator.link import Host, Session

EVERY: Final = 5.0
"""Seconds between questions to the server, where the run itself asks less often."""


Tell: TypeAlias = Callable[[Mapping[str, float]], None]
"""Called with a moment for each name, in seconds since 1970."""


@runtime_checkable
class Certified(Protocol):
    """A host whose members have certificates."""

    def certificates(self) -> Mapping[str, float]:
        """Until when each lasts that is known."""


class Attentive:
    """A host that tells what it learns of its sites."""

    def __init__(self, host: Host, tell: Tell, certify: Tell = lambda until: None, *, every: float = EVERY) -> None:
        self._host, self._tell, self._certify, self._every = host, tell, certify, every
        self._asked = -math.inf

    def seen(self) -> Mapping[str, float]:
        """When each connected site was last heard of, in this machine's seconds."""
        times = self._host.seen()
        now = time.monotonic()
        if now - self._asked >= self._every:
            self._asked = now
            self._tell(times)
            self._tell_certificates()
        return times

    def _tell_certificates(self) -> None:
        if isinstance(self._host, Certified):
            self._certify(self._host.certificates())

    def begin(self, parties: frozenset[str]) -> Session:
        """A session with these sites."""
        return self._host.begin(parties)

    def noting(self, note: Callable[..., None]) -> Callable[..., None]:
        """Note what becomes known of a site; once it was greeted, its certificate is known, too."""

        def both(party: str, **facts: Any) -> None:
            note(party, **facts)
            if "version" in facts:
                self._tell_certificates()

        return both

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
            self._tell_certificates()
