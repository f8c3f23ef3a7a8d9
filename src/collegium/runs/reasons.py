"""Why sites of a simulation failed, in a line: there, whoever runs it may read all logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from collegium.errors import CollegiumError

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_LONGEST: Final = 200
_MOST: Final = 3
"""Different reasons that one message has room for, and sites that it names for each."""


class RaisedAtSites(CollegiumError):
    """In a simulation: what steps raised at sites, a line each. It may quote rows, so no message of a run has it."""


def reason(log: Sequence[str]) -> str | None:
    """The line that names the first exception in a site's log; None if it has none.

    Of an exception whose text has several lines that is the first one: the last is often an address to read more at.
    """
    for entry in log:
        _, found, trace = entry.rpartition(_TRACEBACK)
        lines = [line for line in trace.splitlines() if line.strip()]
        if found and lines:
            named = next((line for line in lines if not line.startswith(" ")), lines[-1])
            return named if len(named) <= _LONGEST else f"{named[: _LONGEST - 3]}..."
    return None


def raised_at(logs: Mapping[str, Sequence[str]]) -> RaisedAtSites | None:
    """What sites raised, for the cause of an error; None if none did."""
    sites: dict[str, list[str]] = {}
    for site, log in logs.items():
        if (why := reason(log)) is not None:
            sites.setdefault(why, []).append(site)
    said = [f"{', '.join(names[:_MOST])}{' ...' if len(names) > _MOST else ''}: {why}" for why, names in sites.items()]
    more = [f"and {len(said) - _MOST} more"] if len(said) > _MOST else []
    return RaisedAtSites("; ".join([*said[:_MOST], *more])) if said else None
