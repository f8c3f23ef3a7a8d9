"""What Collegium costs on top of training itself, and what threads and workers gain.

    python -m benchmarks.overhead [--samples 48_842] [--repeat 3]

FedCT on Adult: five sites with a random forest each, five rounds. The bare loop does the same fits and predictions
without the library, one after the other on one core: the same clones on the same rows, a numpy majority, one more fit
on the public set. It is compared with runs pinned to one core; runs on two cores are compared with the same way of
running on one. All ways take turns, `repeat` times, and the seconds are medians. A run whose learners learn nothing
(DummyClassifier, one round) shows what starting and stopping alone take.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

import collegium as cg
from benchmarks.data import adult, data_folder
from benchmarks.machine import available_cores, limited_to
from benchmarks.report import Column, Report, print_with_options, watched

ALL, PUBLIC, TEST = 48_842, 10_000, 7_769
SITES, ROUNDS = 5, 5
FORESTS = [RandomForestClassifier(100, random_state=site) for site in range(SITES)]
NOTHING = [DummyClassifier()] * SITES
SMALL = {"samples": 4_000, "repeat": 1}


@dataclass(frozen=True)
class Way:
    """A way to run: in threads (workers=0), in worker processes, or without the library (None)."""

    name: str
    cores: int
    workers: int | None
    faster_than: str | None = None
    """The way on one core that its speed-up is measured against."""


BARE = Way("bare loop", 1, None)
WAYS = (
    BARE,
    Way("workers=1", 1, 1),
    Way("threads", 1, 0),
    Way("threads, two cores", 2, 0, faster_than="threads"),
    Way("workers=2, two cores", 2, 2, faster_than="workers=1"),
)


def measure(samples: int = ALL, repeat: int = 3) -> list[dict[str, Any]]:
    """One row per way to run: seconds, what starting takes, ratio to the bare loop, speed-up."""
    split = _split(samples)
    ways = [way for way in WAYS if way.cores <= available_cores()]
    runs = defaultdict(list)
    _collegium(split, NOTHING, workers=0, rounds=1)  # what is imported late is imported now
    for way in watched(ways * repeat, "overhead", len(ways) * repeat):
        with limited_to(way.cores):
            runs[way.name].append(_timed(split, way))
    rows = {way.name: _row(way, runs[way.name], runs[BARE.name]) for way in ways}
    for way in ways:
        if way.faster_than:
            rows[way.name]["speed_up"] = rows[way.faster_than]["seconds"] / rows[way.name]["seconds"]
    return list(rows.values())


def _split(samples: int) -> cg.Split:
    X, y = adult(data_folder())
    share = min(1.0, samples / ALL)
    public, test = round(PUBLIC * share), round(TEST * share)
    train = round(ALL * share) - public - test
    return cg.split(X, y, sites=SITES, public=public, test=test, train=train, seed=0)


def _timed(split: cg.Split, way: Way) -> dict[str, Any]:
    """One run: the last consensus, the seconds it took, and those of a run that learns nothing."""
    gc.collect()
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    labels = _bare_loop(split) if way.workers is None else _collegium(split, FORESTS, way.workers, ROUNDS)
    end, cpu_end = time.perf_counter(), _cpu_seconds()
    if way.workers is not None:
        _collegium(split, NOTHING, way.workers, rounds=1)
    return {
        "labels": labels,
        "seconds": end - start,
        "cpu_seconds": cpu_end - cpu_start,
        "start_seconds": time.perf_counter() - end,
    }


def _cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    return sum(os.times()[:4])


def _row(way: Way, runs: list[dict[str, Any]], bare: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = median(run["seconds"] for run in runs)
    return {
        "way": way.name,
        "cores": way.cores,
        "seconds": seconds,
        "cpu_seconds": median(run["cpu_seconds"] for run in runs),
        "start_seconds": median(run["start_seconds"] for run in runs) if way != BARE else None,
        "ratio": seconds / median(run["seconds"] for run in bare) if way.cores == 1 else None,
        "same_labels": all(np.array_equal(run["labels"], bare[0]["labels"]) for run in runs),
    }


def _collegium(split: cg.Split, learners: list[Any], workers: int, rounds: int) -> NDArray[np.integer[Any]]:
    sites = [
        cg.Site(name, X, y, learner=learner)
        for name, (X, y), learner in zip(split.names, split.sites, learners, strict=True)
    ]
    run = cg.run(
        cg.FedCT(rounds=rounds), sites=sites, public=split.public, test=split.test, workers=workers, progress=False
    )
    assert run.labels is not None
    return run.classes[run.labels.codes]


def _bare_loop(split: cg.Split) -> NDArray[np.integer[Any]]:
    test_X, test_y = split.test
    U, L = split.public[:0], split.sites[0][1][:0]
    accuracy = []
    for _ in range(ROUNDS):
        votes = []
        for (X, y), forest in zip(split.sites, FORESTS, strict=True):
            model = clone(forest).fit(pd.concat([X, U], ignore_index=True), np.concatenate([y, L]))
            votes.append(model.predict(split.public))
            accuracy.append(np.mean(model.predict(test_X) == test_y))
        U, L = split.public, (2 * np.sum(votes, axis=0) > SITES).astype(int)
    model = clone(FORESTS[0]).fit(U, L)
    accuracy.append(np.mean(model.predict(test_X) == test_y))
    return L


def report(samples: int = ALL, repeat: int = 3) -> Report:
    """The table."""
    return Report(
        f"FedCT on {samples:,} rows of Adult: {SITES} random forests, {ROUNDS} rounds, median of {repeat}",
        {
            "way": Column("way"),
            "cores": Column("cores"),
            "seconds": Column("seconds", ".2f"),
            "of them to start and stop": Column("start_seconds", ".2f"),
            "CPU seconds": Column("cpu_seconds", ".2f"),
            "to the bare loop": Column("ratio", ".3f"),
            "speed-up over one core": Column("speed_up", ".2f"),
            "same labels": Column("same_labels"),
        },
        measure(samples, repeat),
        "The aim for workers=1 is at most 1.05 of the bare loop. Five sites, two at a time, take three turns a round: "
        "two cores can gain a factor of about 1.67, and less for the one fit of the global model.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
