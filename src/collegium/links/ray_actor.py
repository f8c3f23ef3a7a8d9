"""An actor that hosts sites, and the handle by which the link holds it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import cloudpickle

from collegium.core.attendance import Attendance
from collegium.core.link import Answer
from collegium.errors import CollegiumError
from collegium.links.hosting import Hosting, threads_per_site
from collegium.links.local import AgentPool, Exchange
from collegium.links.packing import unpack
from collegium.links.simulated import Collected, Kept

_CLOSE_SECONDS: Final = 5.0


class SitesActor:
    """Runs in a process of Ray's. Its methods only wait: the sites work in threads of their own."""

    async def start(self, packed: bytes, public: Any, threads: int) -> None:
        """Set up the sites. They continue from their state in the run's folder, if there is one."""
        hosting: Hosting = unpack(io.BytesIO(packed))
        if hosting.folder is not None and not hosting.folder.is_dir():
            raise CollegiumError(
                f"The run's folder {hosting.folder} does not exist on every node: use one on a shared file system."
            )
        threads_per_site().__enter__()  # for as long as this process lives
        self._pool = AgentPool(hosting, public, threads)

    async def serve(self, party: str, frame: bytes, exchange: Exchange) -> Answer | None:
        """A site's answer to a frame."""
        return await asyncio.wrap_future(self._pool.submit(party, frame, exchange))

    async def abandon(self) -> None:
        """Give up orders whose deadline has passed."""
        self._pool.abandon()

    async def collect(self) -> bytes:
        """What the sites have at the end, pickled."""
        data: bytes = cloudpickle.dumps(self._pool.collect())
        return data

    async def close(self) -> None:
        """Close the sites' files."""
        self._pool.close()


class Host:
    """One actor, and what it was made of, so that it can be made again."""

    def __init__(
        self, ray: Any, parties: Iterable[str], make: Callable[[], Any], content: tuple[Any, Any, int]
    ) -> None:
        self.parties = frozenset(parties)
        self.alive = False
        self.notes: list[str] = []
        """Why its sites were away, for their logs."""
        self._ray = ray
        self._make = make
        self._content = content
        self._actor: Any = None
        self._starting: Any = None

    def launch(self) -> None:
        """Start the actor, unless it is starting already. Never are there two of them."""
        if self._starting is None:
            self._kill()
            self._actor = self._make()
            self._starting = self._actor.start.remote(*self._content)

    def wait(self, seconds: float) -> None:
        """Wait until its sites are ready."""
        ready, _ = self._ray.wait([self._starting], timeout=seconds)
        if not ready:
            raise CollegiumError(
                f"Ray did not start an actor within {seconds:g} s: other jobs may use all CPUs of the cluster."
            )
        try:
            self._ray.get(self._starting)
        except self._ray.exceptions.RayError as error:
            self._lose(f"cannot be started: {error}")
            raise _why_not_started(error) from None
        self._starting, self.alive = None, True

    def ask(self, party: str, frame: Any, exchange: Exchange) -> Future[Answer | None]:
        """Send a frame (or where it is stored) to a site."""
        future: Future[Answer | None] = self._actor.serve.remote(party, frame, exchange).future()
        return future

    def answer(self, future: Future[Answer | None]) -> Answer | None:
        """What the site answered, or None if it did not."""
        error = future.exception()
        if error is None:
            return future.result()
        if self.alive and isinstance(error, self._ray.exceptions.RayActorError):
            self._lose(f"ended: {error}")
        return None

    def abandon(self) -> None:
        """Give up orders whose deadline has passed."""
        self._actor.abandon.remote()

    def collect(self) -> Collected:
        """What its sites have at the end; for one that is gone, why it is."""
        kept, attendance = Collected({}, Attendance())
        if self.alive:
            with suppress(self._ray.exceptions.RayError):
                kept, attendance = cloudpickle.loads(self._ray.get(self._actor.collect.remote()))
        lost: Kept = (None, None, [])
        found = {party: kept.get(party, lost) for party in self.parties}
        noted = {party: (model, labels, self.notes + lines) for party, (model, labels, lines) in found.items()}
        return Collected(noted, attendance)

    def close(self) -> None:
        """End the actor; its files are closed first, if it still listens."""
        if self.alive:
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(self._actor.close.remote(), timeout=_CLOSE_SECONDS)
        self._kill()

    def _lose(self, what: str) -> None:
        self.alive, self._starting = False, None
        self.notes.append(f"The Ray actor that hosts this site {what}")

    def _kill(self) -> None:
        if self._actor is not None:
            self._ray.kill(self._actor)
            self._actor = None


def _why_not_started(error: Any) -> Exception:
    """The error of the actor, as it would have been raised here."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CollegiumError):
        return cause
    what = str(error).strip().rpartition("\n")[2] if cause is None else f"{type(cause).__name__}: {cause}"
    return CollegiumError(
        f"A Ray actor cannot set up its sites ({what}). What the sites need must be installed on every node."
    )
