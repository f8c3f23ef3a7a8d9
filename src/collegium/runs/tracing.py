"""What a run's trail tells of what the coordinator has noted since the last look: see `collegium.runs.trail`."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from collegium.core.observations import Observations

_SECONDS: Final = ("fit", "predict", "consensus", "wire")
_BETWEEN_TOTALS: Final = 1.0
"""Seconds between totals, at least; later in a run more seldom, so that they do not fill a disk in weeks."""
_TOTALS: Final = 1000
_LATEST: Final = 10
"""So many releases are told one by one, of those between two totals."""
_MISSING: Final = "missing"


class Tracer:
    """Reads rows that the coordinator appends, each once. It never writes to them, and takes no lock.

    Args:
        observed: What the coordinator notes.
        parties: The parties at this moment; some may join.
    """

    def __init__(self, observed: Observations, parties: Callable[[], Sequence[str]]) -> None:
        self._observed, self._parties = observed, parties
        self._index: dict[str, int] = {}
        self._seen: Counter[str] = Counter()
        self._ended: list[tuple[int, int, float]] = []
        self._asked: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._step: dict[str, str] = {}
        self._shown: tuple[Any, ...] = ()
        self._moment: tuple[Any, ...] = ()
        self._settled: tuple[Any, ...] = ()
        """The last moment of which it was found out who is busy."""
        self._up: list[int] = []
        self._down: list[int] = []
        self._releases: list[int] = []
        self._protected: list[int] = []
        self._latest: list[list[Any]] = []
        self._changed = False
        self._begun = self._told = time.monotonic()
        self.stirred = threading.Event()
        """Is there something to tell that nobody should wait for?"""
        self._admit(parties())

    @property
    def is_calm(self) -> bool:
        """Was it told where the parties stand, and has nobody been asked or answered since?"""
        return self._moment == self._settled

    def ended(self, number: int, of: int) -> None:
        """A round has ended. Called by the run."""
        self._ended.append((number, of, time.time()))
        self.stirred.set()

    def news(self, *, last: bool = False) -> list[dict[str, Any]]:
        """The lines for what is new; with `last`, all that there is to tell."""
        self.stirred.clear()
        lines = [*self._joined(), *self._metrics(), *self._failures()]
        self._count_orders()
        self._count_releases()
        lines += self._rounds()
        lines += self._present()
        waited = time.monotonic() - self._told
        if self._changed and (last or waited >= max(_BETWEEN_TOTALS, (time.monotonic() - self._begun) / _TOTALS)):
            lines.append(self._total())
        return lines

    def _new(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table that were appended since."""
        rows: list[dict[str, Any]] = getattr(self._observed, name)
        start, end = self._seen[name], len(rows)
        self._seen[name] = end
        return rows[start:end]

    def _joined(self) -> Iterable[dict[str, Any]]:
        parties = self._parties()
        if len(parties) == len(self._index):
            return
        yield {"k": "joined", "parties": self._admit(parties)}

    def _admit(self, parties: Sequence[str]) -> list[str]:
        fresh = [party for party in parties if party not in self._index]
        for party in fresh:
            self._index[party] = len(self._index)
            for totals in (self._up, self._down, self._releases, self._protected):
                totals.append(0)
        return fresh

    def _metrics(self) -> Iterable[dict[str, Any]]:
        rounds: dict[int, tuple[dict[str, dict[int, Any]], dict[str, Any]]] = {}
        for row in self._new("metrics"):
            by_party, own = rounds.setdefault(row["round"], ({}, {}))
            value = row["value"]
            value = round(value, 6) if math.isfinite(value) else None
            name, index = f"{row['split']}.{row['metric']}", self._index.get(row["party"])
            if index is None:
                own[name] = value
            else:
                by_party.setdefault(name, {})[index] = value
        for number, (by_party, own) in rounds.items():
            line: dict[str, Any] = {"k": "m", "n": number}
            if by_party:
                line["v"] = {name: self._packed(values) for name, values in by_party.items()}
            if own:
                line["c"] = own
            yield line

    def _packed(self, values: dict[int, Any]) -> list[Any] | dict[int, Any]:
        """A list where all parties have a value, else those that have one."""
        return [values[i] for i in range(len(values))] if len(values) == len(self._index) else values

    def _failures(self) -> Iterable[dict[str, Any]]:
        found: dict[tuple[str, str, str], list[Any]] = {}
        for row in self._new("refusals"):
            party, step, code = row["party"], row["step"], row["code"]
            self._missed[party] += code == _MISSING
            line = found.setdefault((party, step, code), [row["round"], self._index.get(party, -1), step, code, 0])
            line[0], line[4] = row["round"], line[4] + 1
        if found:
            yield {"k": "fail", "x": list(found.values())}

    def _count_orders(self) -> None:
        for row in self._new("orders"):
            self._asked[row["party"]] += 1
            self._step[row["party"]] = row["steps"]

    def _count_releases(self) -> None:
        rows = self._new("releases")
        for row in rows:
            index = self._index.get(row["party"])
            if index is not None:
                self._releases[index] += 1
                self._protected[index] += row["protected"]
        for row in rows[-_LATEST:]:
            told = [self._index.get(row["party"], -1), row["round"], row["step"], row["kind"], row["bytes"]]
            self._latest.append([*told, str(row["sha256"])[:16], bool(row["protected"])])
        self._changed |= bool(rows)

    def _rounds(self) -> Iterable[dict[str, Any]]:
        ended, self._ended = self._ended, []
        costs = self._observed.costs
        for number, of, when in ended:
            up = down = 0.0
            seconds = dict.fromkeys(_SECONDS, 0.0)
            for party, index in self._index.items():
                row = costs.get((number, party))
                if row is None:
                    continue
                up += row["bytes_up"]
                down += row["bytes_down"]
                self._up[index] += int(row["bytes_up"])
                self._down[index] += int(row["bytes_down"])
                for name in _SECONDS:
                    seconds[name] += row[f"seconds_{name}"]
            own = costs.get((number, "coordinator"), {})
            for name in _SECONDS:
                seconds[name] += own.get(f"seconds_{name}", 0.0)
            self._changed = True
            spent = {name: round(value, 4) for name, value in seconds.items()}
            yield {
                "k": "done",
                "t": round(when, 3),
                "n": number,
                "of": of,
                "up": int(up),
                "down": int(down),
                "s": spent,
            }

    def _present(self) -> Iterable[dict[str, Any]]:
        """Where the parties stand, once that has been so for two looks: quick rounds would only flicker."""
        observed = self._observed
        open_round, answers = observed.open_round, observed.answers
        # Who is busy is found out where nobody has been asked or has answered since: this is looked at all day long.
        moment = (open_round, self._asked.total(), answers.total(), self._missed.total(), len(self._index))
        steady, self._moment = moment == self._moment, moment
        if not steady or moment == self._settled:
            return
        self._settled = moment
        busy = [
            index for party, index in self._index.items() if self._asked[party] > answers[party] + self._missed[party]
        ]
        parties = list(self._index)
        steps = {index: self._step.get(parties[index], "") for index in busy}
        groups = sorted(set(steps.values()))
        shown = (open_round, tuple(busy), tuple(groups))
        if shown != self._shown:
            self._shown = shown
            number, of = open_round or (observed.round, None)
            at_work = {step: [index for index in busy if steps[index] == step] for step in groups}
            yield {"k": "now", "n": number, "of": of, "open": open_round is not None, "busy": at_work}

    def _total(self) -> dict[str, Any]:
        self._told, self._changed = time.monotonic(), False
        latest, self._latest = self._latest[-_LATEST:], []
        answers = [self._observed.answers[party] for party in self._index]
        line = {"k": "total", "up": self._up, "down": self._down, "out": self._releases, "safe": self._protected}
        return line | {"answers": answers, "last": latest}
