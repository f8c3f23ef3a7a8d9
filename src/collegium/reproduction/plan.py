"""In which order units are carried out, and how long each will take: what gives most of a page in little time first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from collegium.reproduction.declared import PRETRAINING
from collegium.reproduction.results import Results
from collegium.reproduction.units import Unit

_WITHOUT_PAPER: Final = 0.5
"""What a number is worth beside which no paper prints one."""
_ELSEWHERE: Final = 0.01
"""What a number is worth on a device for which its table is not meant: it would take the time of those that are."""
_SLOWER_ON_CPU: Final = 30.0
"""About how many times as long as on a GPU a run takes on a CPU that was meant for the GPU and never timed."""


@dataclass(frozen=True)
class Expected:
    """How long a unit will take."""

    minutes: float
    measured: bool
    """Whether that is what the same cell took before, or else what its table says."""


class Estimates:
    """How long units take on a device, from what is among the results."""

    def __init__(self, results: Mapping[str, Results], device: str | None = None) -> None:
        self._results, self._device = results, (device or "cpu").partition(":")[0]

    def of(self, unit: Unit) -> Expected:
        """What other seeds of the cell took here, or on another machine with such a device.

        Else what the table says of its row; or of all rows, or the longest of its other cells where that is less.
        """
        table, results = unit.declared, self._results[unit.table]
        device = None if table.device == "cpu" else self._device
        if (took := results.seconds(device, unit)) is not None:
            return Expected(took / 60, measured=True)
        own = table.expected(unit.row)
        said = (own or table.minutes) * (_SLOWER_ON_CPU if table.device != "cpu" == self._device else 1.0)
        others = None if own or unit.row == PRETRAINING else results.seconds(device)
        return Expected(said if others is None else min(said, others / 60), measured=False)

    def fits(self, unit: Unit) -> bool:
        """Whether its table is meant for this device."""
        return unit.declared.device == self._device


def ordered(units: Sequence[Unit], estimates: Estimates, ready: Callable[[Unit], bool]) -> list[Unit]:
    """The units, most worth per minute first, each after those that it needs and that are not `ready`.

    The first run of a cell is worth most: it puts a number where there was none. What several units wait for is shared
    by them.
    """
    waiting = set(units)
    needed = {unit: _missing(unit, ready) for unit in units}
    sharing = Counter(each for chain in needed.values() for each in chain)

    @cache
    def minutes(unit: Unit) -> float:
        return max(estimates.of(unit).minutes, 0.01)

    def rank(unit: Unit) -> float:
        if unit.row == PRETRAINING or unit.part + 1 < unit.declared.row(unit.row).parts:
            return 0.0  # nobody reads it: it comes before those who need it
        cost = minutes(unit) + sum(minutes(each) / sharing[each] for each in needed[unit])
        return _worth(unit) * (1.0 if estimates.fits(unit) else _ELSEWHERE) / cost

    order: dict[Unit, None] = {}
    for unit in sorted(units, key=rank, reverse=True):
        for each in (*reversed(needed[unit]), unit):
            if each in waiting:
                order.setdefault(each)
    return list(order)


def _missing(unit: Unit, ready: Callable[[Unit], bool]) -> list[Unit]:
    """What must be done before it, the nearest first."""
    chain: list[Unit] = []
    while (needed := (chain[-1] if chain else unit).needs()) is not None and not ready(needed):
        chain.append(needed)
    return chain


def _worth(unit: Unit) -> float:
    table = unit.declared
    row = table.row(unit.row)
    column = next(each for each in table.columns if each.name == unit.column)
    printed = table.number_of(row.paper, column) is not None
    return table.worth * (1.0 if printed else _WITHOUT_PAPER) / (1 + unit.seed)


def described(units: Sequence[Unit], expected: Callable[[Unit], Expected], minutes: float | None) -> list[str]:
    """The plan in words: those that end within so many minutes, one after the other, and what is left after them."""
    lines, at, left, too_long = [], 0.0, 0.0, 0
    for unit in units:
        takes = expected(unit)
        if minutes is not None and at + takes.minutes > minutes:
            left += takes.minutes
            too_long += takes.minutes > minutes
            continue
        at += takes.minutes
        about = f"{takes.minutes:7.1f}" + (" " if takes.measured else "?")
        lines.append(f"{at:8.1f} {about} {unit.table}, {unit.key}")
    head = ["   until    takes  (minutes; ? where the cell was never timed on such a device)"] if lines else []
    lines.append(
        f"{len(lines)} runs in about {at:.0f} minutes; {len(units) - len(lines)} are left ({left / 60:.1f} h)."
    )
    if too_long:
        lines.append(f"{too_long} of those are each longer than {minutes:g} minutes.")
    return head + lines
