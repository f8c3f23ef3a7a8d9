"""What the links cost when there are many small sites: the scale of a simulation.

    python -m benchmarks.links [--sites 200] [--rows 5] [--public 500] [--repeat 3]

FedCT, five rounds, on the digits of scikit-learn: a few rows and a decision tree at each site. The bare loop does the
same fits and predictions without the library, one after the other. All ways take turns, `repeat` times, and the seconds
are medians. Starting is what a run with a learner that learns nothing and one round takes: processes, imports, the end.
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
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.machine import available_cores
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.core.tally import winners

ROUNDS, TEST = 5, 250
SMALL = {"sites": 6, "rows": 5, "public": 50, "repeat": 1}


@dataclass(frozen=True)
class Way:
    """A way to run: a link and its workers, or without the library (no link)."""

    name: str
    link: str | None
    workers: int = 0


def _ways() -> list[Way]:
    cores = available_cores()
    return [
        Way("bare loop", None),
        Way("local, one thread", "local", 1),
        Way("local", "local"),
        Way(f"workers={cores}", "workers", cores),
        Way(f"ray, {cores} actors", "ray", cores),
    ]


def measure(sites: int = 200, rows: int = 5, public: int = 500, repeat: int = 3) -> list[dict[str, Any]]:
    """One row per way: seconds in all, to start, per round, and their ratios to the bare loop."""
    X, y = load_digits(return_X_y=True)
    split = cg.split(X, y, sites=sites, public=public, test=TEST, train=sites * rows, seed=0)
    ways, taken = _ways(), defaultdict(list)
    _collegium(split, DummyClassifier(), ways[1], rounds=1)  # what is imported late is imported now
    for way in watched(ways * repeat, "links", len(ways) * repeat):
        taken[way.name].append(_timed(split, way))
    return [_row(way, taken[way.name], taken[ways[0].name]) for way in ways]


def _timed(split: cg.Split, way: Way) -> dict[str, Any]:
    gc.collect()
    begin = time.perf_counter()
    labels = _bare_loop(split) if way.link is None else _collegium(split, _tree(), way, ROUNDS)
    end = time.perf_counter()
    if way.link is not None:
        _collegium(split, DummyClassifier(), way, rounds=1)
    return {"labels": labels, "seconds": end - begin, "start": time.perf_counter() - end if way.link else 0.0}


def _row(way: Way, taken: list[dict[str, Any]], bare: list[dict[str, Any]]) -> dict[str, Any]:
    seconds, start = (median(run[key] for run in taken) for key in ("seconds", "start"))
    loop = median(run["seconds"] for run in bare)
    return {
        "way": way.name,
        "seconds": seconds,
        "start": start if way.link else None,
        "ratio": seconds / loop,
        "running": (seconds - start) / loop,
        "same": all(np.array_equal(run["labels"], bare[0]["labels"]) for run in taken),
    }


def _tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0)


def _collegium(split: cg.Split, learner: Any, way: Way, rounds: int) -> NDArray[Any]:
    sites = [cg.Site(name, X, y, learner=learner) for name, (X, y) in zip(split.names, split.sites, strict=True)]
    run = cg.run(
        cg.FedCT(rounds=rounds),
        sites=sites,
        public=split.public,
        test=split.test,
        link=str(way.link),
        workers=way.workers,
        progress=False,
    )
    assert run.labels is not None
    return run.classes[run.labels.codes]


def _bare_loop(split: cg.Split) -> NDArray[Any]:
    """FedCT as one would write it by hand, with the library's way to break ties and the tests that `cg.run` makes."""
    test_X, test_y = split.test
    classes = np.unique(np.concatenate([y for _, y in split.sites]))
    U, L = split.public[:0], split.sites[0][1][:0]
    accuracy = []
    for _ in range(ROUNDS):
        votes = np.zeros((len(split.public), len(classes)), dtype=int)
        for X, y in split.sites:
            model = clone(_tree()).fit(np.concatenate([X, U]), np.concatenate([y, L]))
            votes[np.arange(len(votes)), np.searchsorted(classes, model.predict(split.public))] += 1
            accuracy.append(np.mean(model.predict(test_X) == test_y))
        U, L = split.public, classes[winners(votes.T, seed=0)]
    model = clone(_tree()).fit(U, L)
    accuracy.append(np.mean(model.predict(test_X) == test_y))
    return L


def report(sites: int = 200, rows: int = 5, public: int = 500, repeat: int = 3) -> Report:
    """The table."""
    load = os.getloadavg()[0]
    return Report(
        f"FedCT on digits: {sites:,} sites with {rows} rows and a decision tree each, {public:,} public rows, "
        f"{ROUNDS} rounds, median of {repeat}",
        {
            "way": Column("way"),
            "seconds": Column("seconds", ".2f"),
            "of them to start and stop": Column("start", ".2f"),
            "to the bare loop": Column("ratio", ".2f"),
            "without start and stop": Column("running", ".2f"),
            "same labels": Column("same"),
        },
        measure(sites, rows, public, repeat),
        "The bare loop uses one core, and so does `local, one thread`; the other ways use all of this machine's cores. "
        "Ray's start includes Ray itself, which is started for the run and ended after it. Load of the machine from "
        f"other programs when this began: {load:.1f}; ways with more than one core are slower by it.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
