"""How a federation reaches its sites: one interface, whatever lies between."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from collegium.core.observations import Notes
from collegium.core.releases import Release
from collegium.wire.replies import Reply


class Answer(NamedTuple):
    """What came from a party: its frame and, in a simulation, what it noted beside it."""

    party: str
    frame: bytes
    notes: Notes | None = None


class OwnAnswer(Answer):
    """An answer that this process has made itself. Changed, or in another process, it is an answer like any other."""

    reply: Reply | None = None
    """What its frame says, which need not be read again."""
    release: Release | None = None
    """What the reply holds, where nobody can change that; None: it is read from its bytes."""

    def __reduce__(self) -> tuple[type[Answer], tuple[str, bytes, Notes | None]]:
        return Answer, (self.party, self.frame, self.notes)


class Link(Protocol):
    """How orders reach sites and sealed releases come back."""

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of all sites."""
        ...

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """Send one frame to each named party; yield answers as they come. A party that does not answer is left out."""
        ...


@runtime_checkable
class OpenLink(Link, Protocol):
    """A link that sites may join later."""

    def newcomers(self) -> tuple[str, ...]:
        """Sites that have joined since the last call. Called when a round begins."""
        ...


@runtime_checkable
class RepeatingLink(Link, Protocol):
    """A link whose sites store their states now and then, and do the orders since then again after a kill."""

    @property
    def behind(self) -> Mapping[str, Collection[int]]:
        """By party, the numbers of the orders that it must be sent again, as they were, before any new one."""
        ...
