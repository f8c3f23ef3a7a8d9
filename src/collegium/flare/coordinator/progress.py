"""How far a study has come, in numbers: no names of sites, nothing of what they sent."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """How far a study has come."""

    run: str
    round: int
    """The round that has begun, from 1; 0 before the first."""
    rounds: int
    seconds: float
    sent: int
    """Bytes to sites."""
    received: int
    """Bytes from sites."""
    failures: dict[str, int] = field(default_factory=dict)
    """What sites refused, failed at or did not answer, by code."""
    epsilon: float | None = None
    """The most differential privacy that any site has spent in this run, by its own word, at `delta`."""
    delta: float | None = None
