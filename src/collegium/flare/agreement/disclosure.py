"""What an owner is told of a plan before signing it, as plain data: `consent` finds it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COORDINATOR: Final = "the coordinator's words"
FOUND, ENFORCED = "found here", "enforced here"


@dataclass(frozen=True)
class Line:
    """One thing that an owner should know, and who says so."""

    what: str
    words: str
    source: str


@dataclass(frozen=True)
class Leaving:
    """One kind of release that would leave the site."""

    kind: str
    what: str
    """What such a release is, by the code that is installed here."""
    step: str
    most: int
    """How often in one run, at most: more is refused here."""
    noise: str
    """The mechanism on it; empty where there is none."""
    bytes: int | None = None
    """About how large each is; None where nobody knows."""
    source: str = FOUND
    """Who says how large it is."""
    note: str = ""


@dataclass(frozen=True)
class Consent:
    """A plan in plain words."""

    lines: tuple[Line, ...]
    warnings: tuple[str, ...]
    """Where the plan says less than this site found, or asks for more."""
    leaves: tuple[Leaving, ...] = ()
    learns: tuple[tuple[str, str], ...] = ()
    """Who gets to know what."""
