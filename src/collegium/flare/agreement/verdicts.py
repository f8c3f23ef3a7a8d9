"""What a site answers to a plan, as plain data: `review` finds it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What a site answers to one step of a plan, or (no step) to the plan as a whole."""

    step: str
    kind: str
    code: str | None
    """The gate's code for a refusal; None: allowed."""
    why: str
    rehearsed: bool = True
    needed: bool = True
    """Whether the method cannot do without the answer."""

    @property
    def allowed(self) -> bool:
        """May it run, and its release leave?"""
        return self.code is None


@dataclass(frozen=True)
class Review:
    """A site's answer to a plan."""

    verdicts: tuple[Verdict, ...]
    known: bool = True
    """Can the plan's algorithm be built here?"""

    @property
    def refusals(self) -> tuple[Verdict, ...]:
        """What would stop the site from taking part: steps that may never be asked for, or are not needed, do not."""
        whole = not any(each.step and each.rehearsed for each in self.verdicts)
        return tuple(each for each in self.verdicts if not each.allowed and each.needed and (each.rehearsed or whole))

    @property
    def allowed(self) -> bool:
        """Can the site take part?"""
        return not self.refusals
