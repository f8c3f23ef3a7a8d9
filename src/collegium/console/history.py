"""A run as its trail tells it: see `collegium.runs.trail` for what its lines mean."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from collegium.console.curves import Series, Table
from collegium.errors import StorageError
from collegium.reports.refusals import CODES, UNKNOWN
from collegium.runs.trail import FORMAT

ACCURACY: Final = "test.accuracy"
_KEPT_LINES: Final = 1000
_KEPT_RELEASES: Final = 200
_SECONDS: Final = ("fit", "predict", "consensus", "wire")


@dataclass
class Failure:
    """How often a site did not answer a step, and since when."""

    party: int
    step: str
    code: str
    first: int
    last: int
    times: int


@dataclass
class Said:
    """A line of the run's log."""

    time: float
    text: str


@dataclass
class Totals:
    """By party, so far."""

    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    out: list[int] = field(default_factory=list)
    safe: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)


class History:
    """All that is known of a run. `take` adds a line.

    Args:
        where: How an error names the run.
    """

    def __init__(self, where: str = "The run") -> None:
        self._where = where
        self.about: dict[str, Any] = {}
        self.parties: list[str] = []
        self.generation = 0
        """How often the run was started."""
        self.process: int | None = None
        """The process that wrote last."""
        self.version = ""
        self.command: list[str] | None = None
        self.opened = math.nan
        self.latest = math.nan
        """When the last line was written."""
        self.how: str | None = None
        """How the last process ended; None if it has not said so."""
        self.why = ""
        self.done = 0
        """How many rounds are over."""
        self.of: int | None = None
        self.now: dict[str, Any] = {}
        self.metrics: dict[str, Table] = {}
        self.own: dict[str, Series] = {}
        """The coordinator's numbers, such as those of the consensus."""
        self.up, self.down, self.wall = Series(), Series(), Series()
        self.seconds = dict.fromkeys(_SECONDS, 0.0)
        self.totals = Totals()
        self.failures: dict[tuple[int, str, str], Failure] = {}
        self.sites: dict[str, dict[str, Any]] = {}
        self.certificates: dict[str, float] = {}
        """Until when those of a federation's members last."""
        self.releases: deque[list[Any]] = deque(maxlen=_KEPT_RELEASES)
        self.log: deque[Said] = deque(maxlen=_KEPT_LINES)
        self.said = 0
        """How many lines the log has had."""
        self._known = 0
        """How many rounds an earlier process has told of."""
        self._ended = math.nan
        self._take: dict[str, Callable[[dict[str, Any]], None]] = {
            "open": self._open, "start": self._start, "joined": self._joined, "m": self._metrics, "done": self._done,
            "now": self._now, "total": self._total, "fail": self._fail, "site": self._site, "heard": self._heard,
            "until": self._until, "say": self._say, "end": self._end,
        }  # fmt: skip

    def take(self, line: dict[str, Any]) -> None:
        """Add what a line tells. One that is of no known kind, or not whole, tells nothing."""
        take = self._take.get(line.get("k", ""))
        if take is None:
            return
        try:
            take(line)
            self.latest = float(line["t"])
        except (KeyError, TypeError, ValueError, IndexError):
            return

    def note(self, time: float, text: str) -> None:
        """Add a line to the log."""
        self.log.append(Said(time, text))
        self.said += 1

    def name(self, index: int) -> str:
        """A party's name."""
        return self.parties[index] if 0 <= index < len(self.parties) else "the coordinator"

    def _open(self, line: dict[str, Any]) -> None:
        if line["trail"] != FORMAT:
            raise StorageError(
                f"{self._where} was written by another version of Collegium ({line.get('version', 'unknown')}): "
                "watch it with that version."
            )
        if self.how is None and self.process is not None:
            self.note(self.latest, f"process {self.process} ended without saying so: it was killed")
        self.process, self.version, self.opened = int(line["pid"]), str(line["version"]), float(line["t"])
        self.command = line.get("command")
        self.how, self.why = None, ""
        self.note(self.opened, f"process {self.process} {'goes on with' if line['again'] else 'begins'} the run")

    def _start(self, line: dict[str, Any]) -> None:
        self.about = dict(line["about"])
        self.parties = [str(party) for party in self.about["parties"]]
        self.generation += 1
        # Whoever goes on with a run tells again what it had told: of sums, only the last word counts.
        self.failures.clear()
        self.totals, self.seconds = Totals(), dict.fromkeys(_SECONDS, 0.0)
        self._known, self._ended = self.done, float(line["t"])
        self.now = {}
        algorithm = str(self.about["algorithm"]).partition("(")[0]
        self.note(line["t"], f"{algorithm} with {len(self.parties)} site{'s' if len(self.parties) != 1 else ''}")

    def _joined(self, line: dict[str, Any]) -> None:
        fresh = [str(party) for party in line["parties"] if party not in self.parties]
        self.parties += fresh
        self.note(line["t"], f"{', '.join(fresh)} joined")

    def _metrics(self, line: dict[str, Any]) -> None:
        number = int(line["n"])
        for name, values in line.get("v", {}).items():
            self.metrics.setdefault(name, Table()).put(number, values, len(self.parties))
        for name, value in line.get("c", {}).items():
            self.own.setdefault(name, Series()).put(number, value)

    def _done(self, line: dict[str, Any]) -> None:
        number, when = int(line["n"]), float(line["t"])
        self.up.put(number, line["up"])
        self.down.put(number, line["down"])
        if number >= self._known:  # what is replayed from the record takes no time
            self.wall.put(number, max(0.0, when - self._ended))
        self._ended = when
        for name in _SECONDS:
            self.seconds[name] += line["s"][name]
        self.done, self.of = max(self.done, number + 1), int(line["of"])

    def _now(self, line: dict[str, Any]) -> None:
        self.now = line
        self.of = line["of"] or self.of

    def _total(self, line: dict[str, Any]) -> None:
        self.totals = Totals(*(list(line[name]) for name in ("up", "down", "out", "safe", "answers")))
        self.releases.extend(line.get("last", ()))

    def _fail(self, line: dict[str, Any]) -> None:
        for number, party, step, code, times in line["x"]:
            key = (int(party), str(step), str(code))
            known = self.failures.get(key)
            if known is None:
                self.failures[key] = Failure(*key, int(number), int(number), int(times))
                self.note(line["t"], f"{self.name(party)} did not answer ({code}): {CODES.get(code, UNKNOWN)}")
            else:
                known.last, known.times = int(number), known.times + int(times)

    def _site(self, line: dict[str, Any]) -> None:
        facts = self.sites.setdefault(str(line["party"]), {})
        if "state" in line and line["state"] != facts.get("state"):
            facts["since"] = line["t"]
        facts |= {name: line[name] for name in ("state", "version") if name in line}

    def _heard(self, line: dict[str, Any]) -> None:
        for party, when in line["at"].items():
            self.sites.setdefault(str(party), {})["heard"] = float(when)
        for party, facts in self.sites.items():
            facts["connected"] = party in line["at"]

    def _until(self, line: dict[str, Any]) -> None:
        self.certificates |= {str(name): float(until) for name, until in line["at"].items()}

    def _say(self, line: dict[str, Any]) -> None:
        self.note(line["t"], str(line["text"]))

    def _end(self, line: dict[str, Any]) -> None:
        self.how, self.why = str(line["how"]), str(line["why"])
        self.now = {}
        words = {"finished": "finished", "interrupted": "stopped; it can be continued"}
        self.note(line["t"], words.get(self.how, f"failed: {self.why}"))
