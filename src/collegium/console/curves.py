"""Numbers by round, as few of them as a screen can show.

A browser gets every round of a short run. Of a long one it gets every second, fourth, eighth ... round, so that a line
has at most `MOST_POINTS` points however long the run is; the last round is always among them. A range that somebody
looks at more closely is thinned out by itself.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

MOST_POINTS: Final = 400
"""Of one line, until it is thinned out further."""


@dataclass(frozen=True)
class Grid:
    """Which rounds are shown: of each `stride` rounds from `first` on, the last; and the last of all before `end`."""

    first: int
    end: int
    stride: int

    @classmethod
    def over(cls, first: int, end: int, most: int = MOST_POINTS) -> Grid:
        """The finest grid with at most so many points. Strides are powers of two, so they seldom change."""
        length, stride = max(0, end - first), 1
        while length > most * stride:
            stride *= 2
        return cls(first, end, stride)

    @property
    def whole(self) -> int:
        """How many points will not change any more when rounds are added."""
        return max(0, self.end - self.first) // self.stride

    def rounds(self, start: int = 0) -> list[int]:
        """The rounds of the points from the `start`-th on."""
        first = self.first + start * self.stride
        ends = list(range(first + self.stride - 1, self.end, self.stride))
        return ends if (self.end - first) % self.stride == 0 else [*ends, self.end - 1]


class Series:
    """One number per round; NaN where there is none."""

    def __init__(self, kind: Literal["d", "f"] = "d") -> None:
        self._values: array[float] = array(kind)
        self._total, self._added = 0.0, 0
        """The sum of the first so many rounds: a long run's are not added up again whenever one is over."""

    def __len__(self) -> int:
        return len(self._values)

    def put(self, number: int, value: float | None) -> None:
        """The number of a round; rounds that were left out keep the one before."""
        values, missing = self._values, number + 1 - len(self._values)
        if missing == 1 and value is not None:  # as a rule
            values.append(value)
            return
        if missing > 0:
            values.extend([values[-1] if values else math.nan] * missing)
        if value is not None:
            values[number] = value
        if number < self._added:
            self._total, self._added = 0.0, 0

    def grow(self, length: int) -> None:
        """Up to so many rounds, the last number stays."""
        if length > len(self._values):
            self.put(length - 1, None)

    def get(self, number: int) -> float:
        """The number of a round, or the last before it."""
        return math.nan if not self._values or number < 0 else self._values[min(number, len(self._values) - 1)]

    @property
    def last(self) -> float:
        """The latest number."""
        return self._values[-1] if self._values else math.nan

    @property
    def first(self) -> float:
        """The earliest number that there is."""
        if self._values and self._values[0] == self._values[0]:
            return self._values[0]
        return next((value for value in self._values if value == value), math.nan)

    def at(self, rounds: Sequence[int]) -> list[float]:
        """The numbers of some rounds."""
        values, end = self._values, len(self._values)
        return [values[number] if number < end else math.nan for number in rounds]

    @property
    def total(self) -> float:
        """The sum of all numbers that there are."""
        self._total += sum(value for value in self._values[self._added :] if value == value)
        self._added = len(self._values)
        return self._total

    def means(self, grid: Grid, start: int = 0) -> list[float]:
        """The mean over the rounds of each point of a grid."""
        found = []
        for last in grid.rounds(start):
            first = last - (last - grid.first) % grid.stride
            part = self._values[first : last + 1]
            known = [value for value in part if value == value]
            found.append(sum(known) / len(known) if known else math.nan)
        return found


class Table:
    """A metric by site and round. A site that has no number in a round keeps its last one."""

    def __init__(self) -> None:
        self.sites: list[Series] = []
        self.length = 0
        self._means: dict[int, float] = {}
        """Over the sites, of rounds that were asked for and have not changed since."""
        self._newest = -1
        """The last of these rounds."""

    def put(self, number: int, values: list[float | None] | Mapping[str, float | None], sites: int) -> None:
        """The numbers of a round: of all sites, or of some by their index."""
        while len(self.sites) < sites:
            self.sites.append(Series("f"))
        if isinstance(values, list):
            for series, value in zip(self.sites, values, strict=False):
                series.put(number, value)
        else:
            for index, value in values.items():
                if int(index) < len(self.sites):
                    self.sites[int(index)].put(number, value)
        self.length = max(self.length, number + 1)
        if number <= self._newest:
            self._means = {earlier: mean for earlier, mean in self._means.items() if earlier < number}
            self._newest = number - 1

    def fill(self) -> None:
        """Let every site reach to the last round."""
        for series in self.sites:
            if len(series):
                series.grow(self.length)

    def points(self, rounds: Sequence[int]) -> list[list[float]]:
        """By site, then by round."""
        self.fill()
        return [series.at(rounds) for series in self.sites]

    def means(self, rounds: Sequence[int]) -> list[float]:
        """The mean over the sites, by round."""
        for number in rounds:
            if number not in self._means:
                known = [value for value in (series.get(number) for series in self.sites) if value == value]
                self._means[number] = sum(known) / len(known) if known else math.nan
        self._newest = max(self._newest, *rounds, -1)
        return [self._means[number] for number in rounds]

    def spread(self) -> tuple[float, float, float]:
        """The mean, the lowest and the highest of the sites' latest numbers."""
        known = [value for value in (series.last for series in self.sites) if value == value]
        return (sum(known) / len(known), min(known), max(known)) if known else (math.nan, math.nan, math.nan)


def spreads(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Over all lines: the mean, the lowest and the highest of each point."""
    means, lows, highs = [], [], []
    for column in zip(*points, strict=True):
        known = [value for value in column if value == value]
        means.append(sum(known) / len(known) if known else math.nan)
        lows.append(min(known, default=math.nan))
        highs.append(max(known, default=math.nan))
    return means, lows, highs


def told(values: Sequence[float], scale: float = 1.0, digits: int = 3) -> list[float | None]:
    """Numbers as JSON has them."""
    return [round(value * scale, digits) if isfinite(value) else None for value in values]
