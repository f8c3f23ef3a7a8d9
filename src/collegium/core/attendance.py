"""Who was trained with whom over a whole run, for its record, and why others were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Cohort = Literal["auto", "on", "off"]
"""Whether sites are trained together: where their learner is on a GPU, wherever they can be, or nowhere."""
NOBODY_ALIKE: Final = "no other site brought a net like its own"
NOBODY_ELSE: Final = "no other site of its process trains with others"
HAD_DEADLINE: Final = "sites that have a deadline do not wait for each other"


@dataclass
class Attendance:
    """Who was trained with whom, over a whole run."""

    together: set[str] = field(default_factory=set)
    """The sites that were trained with others."""
    largest: int = 0
    """The most sites that were trained at once. Their nets may have been computed in several parts."""
    alone: dict[str, str] = field(default_factory=dict)
    """The sites that were trained alone, if only once, and why."""

    def note(self, parties: Sequence[str], why_alone: str) -> None:
        """These sites were trained at once."""
        if len(parties) == 1:
            self.alone[parties[0]] = why_alone
        else:
            self.together.update(parties)
            self.largest = max(self.largest, len(parties))

    def to_plain(self, mode: Cohort, parties: Sequence[str]) -> dict[str, Any]:
        """For the run's record."""
        alone = {party: self.alone[party] for party in parties if party in self.alone}
        return {"mode": mode, "together": len(self.together), "largest": self.largest, "alone": alone}

    def add(self, other: Attendance) -> None:
        """What another process noted of its sites."""
        self.together |= other.together
        self.largest = max(self.largest, other.largest)
        self.alone |= other.alone


def resumed(earlier: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """``run.about["cohort"]`` of a run in two parts; where they had different modes, `before` has that of the first."""
    if earlier is None:
        return dict(now)
    most = {name: max(earlier[name], now[name]) for name in ("together", "largest")}
    modes = {earlier["mode"], earlier.get("before", earlier["mode"])} - {now["mode"]}
    before = {"before": min(modes)} if modes else {}
    return {**now, **most, "alone": earlier["alone"] | now["alone"], **before}


def attendance_in_words(cohort: Mapping[str, Any], sites: int) -> str:
    """``run.about["cohort"]`` as one line; nothing where nobody was to be trained together."""
    if cohort["mode"] != "on" and not cohort["together"]:
        return ""
    by_reason: dict[str, list[str]] = {}
    for party, reason in cohort["alone"].items():
        by_reason.setdefault(reason, []).append(party)
    others = [f"{_some(parties)}: {reason}" for reason, parties in by_reason.items()]
    return "; ".join([f"{cohort['together']} of {sites} sites were trained together", *others]) + "."


def _some(parties: Sequence[str]) -> str:
    return ", ".join(parties) if len(parties) <= 3 else f"{', '.join(parties[:2])} and {len(parties) - 2} others"
