"""What a browser is told of a run: everything at first, and then what has changed."""

from __future__ import annotations

import math
import time
from itertools import zip_longest
from math import isfinite
from typing import Any, Final

from collegium.console import words
from collegium.console.curves import Grid, Series, Table, spreads, told
from collegium.console.following import Follower
from collegium.console.history import ACCURACY, History
from collegium.reports.refusals import CODES, UNKNOWN

MOST_LINES: Final = 100
"""So many sites have a line of their own; mean and area are those of all."""
MOST_ROWS: Final = 500
"""So many sites are listed."""
_RECENT: Final = 10
"""Rounds by which the time that is left is estimated."""
_LAST_NUMBERS: Final = ("public.consensus_size", "public.consensus_quality")
_MEANS: Final = ("up", "down", "wall", "public.consensus_changed")


class Teller:
    """What one browser has been told of one run."""

    def __init__(self, follower: Follower, metric: str = ACCURACY) -> None:
        self._follower, self._metric = follower, metric
        self._before: dict[str, Any] = {}
        self._rows: dict[int, list[Any]] = {}
        self._drawn: tuple[Any, ...] = ()
        self._points = self._lines = 0
        self._history: History | None = None

    def news(self) -> dict[str, Any]:
        """What has changed since the last time; nothing if nothing has."""
        history = self._follower.history
        if history is not self._history:  # another run is in the folder now
            self._before, self._rows, self._drawn, self._lines = {}, {}, (), 0
            self._history = history
        found = {
            "head": head(self._follower),
            "metrics": [[name, words.metric_name(name)] for name in history.metrics],
            "failures": failures(history),
            "releases": releases(history),
        }
        news = {name: part for name, part in found.items() if self._before.get(name) != part}
        self._before |= news
        rows = site_rows(self._follower)
        changed = {str(i): row for i, row in rows.items() if self._rows.get(i) != row}
        self._rows = rows
        if changed:
            news["sites"] = changed
        if curves := self._curves(history):
            news["curves"] = curves
        if lines := self._said(history):
            news["log"] = lines
        return news

    def _curves(self, history: History) -> dict[str, Any]:
        table = history.metrics.get(self._metric, Table())
        grid = Grid.over(0, max(history.done, table.length))
        drawn = (grid.first, grid.stride, len(history.parties), history.generation)
        state = (*drawn, grid.end, history.latest)
        if self._drawn == state:
            return {}
        # The last points may still change: sites answer one after the other.
        start = max(0, self._points - 2) if self._drawn[:4] == drawn else 0
        self._drawn, self._points = state, grid.whole
        return curves(history, self._metric, grid, start)

    def _said(self, history: History) -> list[list[Any]]:
        fresh = min(history.said - self._lines, len(history.log))
        self._lines = history.said
        lines = list(history.log)[len(history.log) - fresh :] if fresh else []
        return [[line.time, line.text] for line in lines]


def curves(history: History, metric: str, grid: Grid, start: int = 0) -> dict[str, Any]:
    """All lines of a page, from the `start`-th point of a grid on."""
    rounds = grid.rounds(start)
    table, scale = history.metrics.get(metric, Table()), 100.0 if words.is_share(metric) else 1.0
    points = table.points(rounds)
    mean, low, high = spreads(points) if points else ([], [], [])
    step = max(1, math.ceil(len(points) / MOST_LINES))
    split, _, name = metric.partition(".")
    overall = history.own.get(f"{split}.global_{name}")
    found: dict[str, Any] = {
        "metric": metric,
        "share": words.is_share(metric),
        "from": start,
        "stride": grid.stride,
        "x": rounds,
        "lines": list(range(0, len(points), step)),
        "y": [told(line, scale) for line in points[::step]],
        "mean": told(mean, scale),
        "low": told(low, scale),
        "high": told(high, scale),
        "global": told(_last(overall, rounds), scale) if overall is not None else None,
    }
    for key in _LAST_NUMBERS:
        series = history.own.get(key)
        found[key.rpartition(".")[2]] = None if series is None else told(_last(series, rounds), 100.0)
    for key in _MEANS:
        means = history.own.get(key) if "." in key else getattr(history, key)
        found[key.rpartition(".")[2]] = None if means is None else told(means.means(grid, start))
    return found


def _last(series: Series, rounds: list[int]) -> list[float]:
    if rounds:
        series.grow(rounds[-1] + 1)
    return series.at(rounds)


def head(follower: Follower) -> dict[str, Any]:
    """The run in a few numbers and words."""
    history, state, about = follower.history, follower.state, follower.history.about
    totals, table = history.totals, history.metrics.get(ACCURACY, Table())
    mean, low, high = table.spread()
    first = [value for value in (series.first for series in table.sites) if value == value]
    now = history.now if state == "running" else {}
    found: dict[str, Any] = {
        "name": follower.name,
        "state": state,
        "word": "cannot be shown" if follower.problem else words.STATES[state],
        "why": words.explained(follower),
        "algorithm": str(about.get("algorithm", "")),
        "study": about.get("study"),
        "process": history.process,
        "version": history.version,
        "started": None if math.isnan(history.opened) else history.opened,
        "ended": None if state == "running" or math.isnan(history.latest) else history.latest,
        "done": history.done,
        "of": history.of,
        "round": now.get("n"),
        "busy": {words.step_words(step): len(sites) for step, sites in now.get("busy", {}).items()},
        "sites": len(history.parties),
        "public": about.get("public_size"),
        "base_rate": about.get("base_rate"),
        "up": sum(totals.up),
        "down": sum(totals.down),
        "releases": sum(totals.out),
        "safe": sum(totals.safe),
        "failures": sum(each.times for each in history.failures.values()),
        "can_resume": history.command is not None,
        "federation": bool(history.sites),
        "certificates": words.certificates(history),
    }
    numbers = {"mean": mean, "low": low, "high": high, "first": sum(first) / len(first) if first else math.nan}
    numbers |= {"left": _left(history) if state == "running" else math.nan, "spent": _spent(follower)}
    return found | dict(zip(numbers, told(list(numbers.values()), digits=4), strict=True))


def _left(history: History) -> float:
    """Seconds that the remaining rounds will take, if they take as long as the last ones."""
    if not history.of or not len(history.wall):
        return math.nan
    last = [history.wall.get(history.done - 1 - i) for i in range(min(_RECENT, history.done))]
    known = [each for each in last if each == each]
    return (history.of - history.done) * sum(known) / len(known) if known else math.nan


def _spent(follower: Follower) -> float:
    """Seconds of all rounds that are over; of a run that goes on the browser counts on."""
    return follower.history.wall.total


def site_rows(follower: Follower) -> dict[int, list[Any]]:
    """By party: name, where it stands, kind of news, accuracy, first accuracy, bytes up and down, releases,
    protected ones, failures, last heard of, version, rows, days that its certificate lasts."""
    history = follower.history
    at_work = {
        index: step for step, sites in history.now.get("busy", {}).items() for index in sites
    }  # fmt: skip
    places = words.stands(history, follower.state, at_work)
    table, totals, failed = history.metrics.get(ACCURACY, Table()), history.totals, _failed(history)
    samples = history.about.get("samples") or {}
    nothing, known, rows = Series(), len(table.sites), {}
    counted = zip_longest(totals.up, totals.down, totals.out, totals.safe, fillvalue=0)
    for index, party in enumerate(history.parties[:MOST_ROWS]):
        series = table.sites[index] if index < known else nothing
        facts, last, first = history.sites.get(party, {}), series.last, series.first
        rows[index] = [
            party, *places[index],
            round(last, 4) if isfinite(last) else None, round(first, 4) if isfinite(first) else None,
            *next(counted, (0, 0, 0, 0)), failed.get(index, 0),
            facts.get("heard"), facts.get("version"), samples.get(party),
            words.days_left(history.certificates.get(party)),
        ]  # fmt: skip
    return rows


def _failed(history: History) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in history.failures.values():
        found[each.party] = found.get(each.party, 0) + each.times
    return found


def failures(history: History) -> list[list[Any]]:
    """Who did not answer what, how often, and what that means; the most frequent first."""
    ordered = sorted(history.failures.values(), key=lambda each: -each.times)[:MOST_ROWS]
    return [
        [history.name(each.party), words.step_words(each.step), each.code, each.times, each.first, each.last,
         CODES.get(each.code, UNKNOWN)]
        for each in ordered
    ]  # fmt: skip


def releases(history: History) -> list[list[Any]]:
    """The latest releases, the newest first."""
    latest = list(history.releases)[-20:][::-1]
    return [[history.name(row[0]), row[1], words.step_words(row[2]), *row[3:]] for row in latest]


def clock() -> float:
    """The time here: a browser's clock may differ."""
    return round(time.time(), 3)
