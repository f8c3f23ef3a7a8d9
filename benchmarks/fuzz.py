"""Mutated messages in both directions: nothing but a refusal comes of them, in little memory and time.

    python -m benchmarks.fuzz [--messages 10_000] [--seed 0]

To a site: real messages of a run (hello, open, public, order, await, cancel, close) to its office. To the coordinator:
a site's answers over the link to hello, open and an order, with real replies of every kind of release. Each is changed
at one place: bytes flipped, cut off, put in or doubled, sizes that lie, values and names of the structure exchanged for
odd ones and for bombs (deep nesting, long lists, labels and arrays that cost nothing, long numbers and words), with
hashes put right so that it is read further. Each direction is a process of its own, with so much memory beside what it
has before the first message; one message may take so long. Afterwards the same order has the same answer.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.flare.recorded import record, replies
from tests.wire.mutations import mutated

from benchmarks.report import Column, Report, print_with_options, watched
from collegium import registry, wire
from collegium.core.correspondence import Awaited
from collegium.core.federation import Federation
from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS
from collegium.flare.agreement.planning import Plan
from collegium.flare.coordinator.link import RemoteLink
from collegium.flare.site.office import Office
from collegium.site.ledger import verify_ledger
from collegium.wire.orders import Request

BOUND = 256 << 20
SECONDS = 5.0
SMALL: dict[str, Any] = {"messages": 300}
_RUN = "0123456789abcdef" * 2


def report(messages: int = 10_000, seed: int = 0) -> Report:
    """Both directions, each in a process that has little memory left."""
    found = []
    for direction in watched(("to a site", "to the coordinator"), "fuzz", 2):
        command = f"from benchmarks.fuzz import child; child({direction!r}, {messages}, {seed})"
        done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
        found.append({"direction": direction, **json.loads(done.stdout.splitlines()[-1])})
    columns = {
        "direction": Column("direction"),
        "messages": Column("messages", ","),
        "refused": Column("refused", ","),
        "taken": Column("taken", ","),
        "anything else": Column("unforeseen", ","),
        "largest message, MB": Column("largest", ".1f", 1e6),
        "most memory, MiB": Column("memory", ".1f", 1 << 20),
        "longest, ms of CPU": Column("longest", ".0f", 1e-3),
        "same answer afterwards": Column("same"),
    }
    notes = (
        f"Memory is beside what the process had before the first message, and limited to {BOUND >> 20} MiB by the "
        "system. Taken: the change does not matter, or it is an answer that an honest party could give."
    )
    return Report(f"{messages:,} mutated messages in each direction", columns, found, notes)


def child(direction: str, messages: int, seed: int) -> None:
    """One direction, in this process, whose memory is limited. Prints what it found."""
    registry.install_steps()
    with tempfile.TemporaryDirectory() as scratch:
        run = to_site if direction == "to a site" else to_coordinator
        print(json.dumps(run(messages, seed, Path(scratch), bound=BOUND)))


def to_site(messages: int, seed: int, folder: Path, bound: int | None = None) -> dict[str, Any]:
    """Mutants of a coordinator's messages, to a site that has the run open."""
    host, sent = record(folder)
    office, rng, codes = host.offices["site-1"], random.Random(seed), Counter[str]()  # noqa: S311
    ledger, kinds = folder / "site-1" / "agent" / "ledger.db", sorted(sent)
    office.answer(sent["open"])
    before, rows = _answer_to(office, sent["order"]), verify_ledger(ledger)
    meter = _Meter(bound)
    for number in range(messages):
        message = mutated(sent[kinds[number % len(kinds)]], rng)
        with meter.measuring(message):
            header, _ = wire.cut(office.answer(message))
        codes[str(header.get("code", header["state"]))] += 1
        if header["state"] == "closed":
            office.answer(sent["open"])
    taken = sum(codes[state] for state in ("hello", "open", "needs-public", "public", "done", "cancelled", "closed"))
    office.answer(sent["open"])
    same = _answer_to(office, sent["order"]) == before and verify_ledger(ledger) == rows
    return meter.found(messages, taken, codes["failed"]) | {"same": same}


def _answer_to(office: Office, order: bytes) -> bytes:
    """The answer to an order, when those before it are done."""
    words, payload = wire.cut(order)
    patient = wire.join(words | {"order": "checked", "wait": 60.0}, payload)
    while wire.cut(answer := office.answer(patient))[0].get("code") == "busy":
        time.sleep(0.05)
    return answer


def to_coordinator(messages: int, seed: int, folder: Path, bound: int | None = None) -> dict[str, Any]:
    """Mutants of a site's answers, to the link and on to what an algorithm is given."""
    host, sent = record(folder)
    plan = Plan.from_plain(wire.unpack(wire.cut(sent["open"])[1]))
    canned = {what: host.offices["site-1"].answer(sent[what]) for what in ("hello", "open")}
    every = [(kind, canned | {"order": reply}) for kind, several in replies().items() for reply in several]
    whole = [(_fitting(plan, kind, answers), answers) for kind, answers in every]
    rng, taken, unforeseen = random.Random(seed), 0, 0  # noqa: S311
    meter = _Meter(bound)
    for number in range(messages):
        expected, answers = whole[number % len(whole)]
        answers = dict(answers)
        what = rng.choices(["order", "hello", "open"], [8, 1, 1])[0]
        answers[what] = mutated(answers[what], rng)
        with meter.measuring(answers[what]):
            try:
                taken += _received(plan, expected, answers)
            except Exception:  # the others' study would end here
                unforeseen += 1
    same = all(_received(plan, expected, answers) for expected, answers in whole)
    return meter.found(messages, taken, unforeseen) | {"same": same}


@dataclass(frozen=True)
class _Expected:
    """What was asked for: a kind of release, in a study of so many classes and public rows."""

    kind: str
    classes: int
    rows: int | None


def _fitting(plan: Plan, kind: str, answers: Mapping[str, bytes]) -> _Expected:
    """A study in which these answers are right."""
    studies = (_Expected(kind, classes, rows) for rows in (4, 7, 2, 0, 500, 3, None) for classes in (3, 2, 300))
    return next(each for each in studies if _received(plan, each, answers))


def _received(plan: Plan, expected: _Expected, answers: Mapping[str, bytes]) -> bool:
    """Whether the coordinator gets a release out of these answers; it is then of the kind that it asked for."""
    link = RemoteLink(_Host(answers), _RUN, plan, b"", ("site-1",), patience=0.1)
    public = None if expected.rows is None else PublicSet(np.zeros((expected.rows, 2)))
    fed = Federation(link, run=_RUN, n_classes=expected.classes, seed=0, public=public)
    awaited = Awaited((Request(_RUN, None, 1, 0, "a.step", "0" * 16, {}),), KINDS[expected.kind])
    for answer in link.exchange({"site-1": b"an order"}, deadline=1.0):
        release = fed._correspondence._read(answer, awaited)[1]
        if release is not None and release.kind != expected.kind:
            raise RuntimeError(f"{release.kind} was taken for {expected.kind}.")
        return release is not None
    return False


class _Host:
    """A site that gives the same answers in every session."""

    ready = frozenset({"site-1"})

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._answers = answers

    def seen(self) -> dict[str, float]:
        return {"site-1": time.time()}

    def begin(self, parties: frozenset[str]) -> _Host:
        return self

    def request(self, party: str, message: bytes, timeout: float) -> bytes:
        return self._answers.get(wire.cut(message)[0]["do"], b"")

    def close(self) -> None:
        """There is nothing to end."""


class _Meter:
    """Memory and time of messages; with a bound, the system refuses this process more memory than that."""

    def __init__(self, bound: int | None) -> None:
        self.largest, self.longest, self._start = 0, 0.0, 0.0
        gc.collect()
        self._before = resident("VmHWM")
        if bound is not None:
            limit = resident("VmSize") + bound
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def measuring(self, message: bytes) -> _Meter:
        """A context that measures what a message takes."""
        self.largest = max(self.largest, len(message))
        return self

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *error: object) -> None:
        took = time.process_time() - self._start
        self.longest = max(self.longest, took)
        if took > SECONDS:
            raise RuntimeError(f"A message took {took:.1f} s.")

    def found(self, messages: int, taken: int, unforeseen: int) -> dict[str, Any]:
        """The row of the report."""
        return {
            "messages": messages, "taken": taken, "refused": messages - taken - unforeseen, "unforeseen": unforeseen,
            "largest": self.largest, "longest": self.longest, "memory": resident("VmHWM") - self._before,
        }  # fmt: skip


def resident(what: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))


if __name__ == "__main__":
    print_with_options(report, __doc__)
