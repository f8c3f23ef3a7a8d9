"""Does the cost grow with sites and rounds as it should: in proportion; and memory with rounds not at all?

    python -m benchmarks.scaling [--sites 5,10,20,40] [--rounds 10,20,40] [--rows 50] [--repeats 2]
                                 [--methods "FedAvg, MLP;FedCT, MLP;FedCT, tree"]

FedAvg with a small MLP (PyTorch, 5 steps a round) and FedCT with that net and with decision trees, on rows drawn at
random: `rows` at each site, 2,000 public ones. Every case has a process of its own, on one core. CPU time is from
the start to the end of the last round, the best of `repeats`; memory is the most that the process ever held, less what
it held before. More sites run for the first number of rounds, more rounds have the first number of sites. A ratio of 1
is cost in proportion.
"""

from __future__ import annotations

import resource
import time
from typing import Any, NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.pool import Found, Task, in_parallel
from benchmarks.report import Column, Report, print_with_options, watched

PUBLIC, FEATURES, CLASSES = 2_000, 20, 5
METHODS = ("FedAvg, MLP", "FedCT, MLP", "FedCT, tree")
SMALL: dict[str, Any] = {"sites": "2,4", "rounds": "2,4", "rows": 20, "repeats": 1, "methods": "FedCT, tree"}


class Case(NamedTuple):
    """One run: a method, for so many rounds over so many sites."""

    method: str
    sites: int
    rounds: int


class Watch(cg.Callback):
    """CPU seconds from the start of a run to the end of its last round."""

    def on_start(self, about: dict[str, Any]) -> None:
        self._start = time.process_time()

    def on_round(self, report: Any) -> None:
        self.seconds = time.process_time() - self._start


def report(
    sites: str = "5,10,20,40",
    rounds: str = "10,20,40",
    rows: int = 50,
    repeats: int = 2,
    methods: str = ";".join(METHODS),
) -> Report:
    """Measure every method, first over sites, then over rounds."""
    many_sites, many_rounds = ([int(word) for word in given.split(",")] for given in (sites, rounds))
    cases = [
        case
        for method in methods.split(";")
        for case in (
            *(Case(method, n, many_rounds[0]) for n in many_sites),
            *(Case(method, many_sites[0], n) for n in many_rounds[1:]),
        )
    ]
    found = {case: _alone(case, rows, repeats) for case in watched(cases, "scaling", len(cases))}
    first = {case.method: found[case]["each"] for case in reversed(cases)}
    columns = {
        "method": Column("method"),
        "sites": Column("sites"),
        "rounds": Column("rounds"),
        "CPU seconds": Column("seconds", ".2f"),
        "ms per site and round": Column("each", ".2f", 1e-3),
        "to the first": Column("ratio", ".2f"),
        "memory, MB": Column("memory", ".1f", 1e6),
    }
    notes = (
        f"{rows} rows at each site, {PUBLIC:,} public ones. To the first: time per site and round, over that of the "
        "method's first row. Memory is what the run adds to its process at most."
    )
    rows_found = [case._asdict() | found[case] | {"ratio": found[case]["each"] / first[case.method]} for case in cases]
    return Report("Cost over sites and rounds, one core", columns, rows_found, notes)


def _alone(case: Case, rows: int, repeats: int) -> Found:
    """What a run costs in a process of its own."""
    [(_, found)] = in_parallel({"run": Task(_run, (case, rows, repeats))}, jobs=1)
    return found | {"each": found["seconds"] / (case.sites * case.rounds)}


def _run(case: Case, rows: int, repeats: int) -> Found:
    learner, algorithm = _method(case)
    cg.run(algorithm(1), **_federation(2, rows, learner))  # what is imported and set up once is not measured
    federation = _federation(case.sites, rows, learner)
    before = _most_memory()
    watches = [Watch() for _ in range(repeats)]
    for watch in watches:
        cg.run(algorithm(case.rounds), callbacks=[watch], **federation)
    return {"seconds": min(watch.seconds for watch in watches), "memory": _most_memory() - before}


def _method(case: Case) -> tuple[Any, Any]:
    from collegium.learners.torch.classifier import TorchClassifier

    net = TorchClassifier("mlp", lr=1e-3, batch_size=16, epochs=1)
    match case.method:
        case "FedAvg, MLP":
            return net, lambda rounds: cg.FedAvg(rounds=rounds, local_steps=5)
        case "FedCT, MLP":
            return net, lambda rounds: cg.FedCT(rounds=rounds, steps=5)
    return DecisionTreeClassifier(), lambda rounds: cg.FedCT(rounds=rounds)


def _federation(sites: int, rows: int, learner: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))

    def draw(n: int) -> tuple[Any, Any]:
        y = np.arange(n) % CLASSES
        return (centres[y] + rng.normal(size=(n, FEATURES))).astype(np.float32), y

    return {
        "sites": [cg.Site(f"site{number}", *draw(rows), learner=learner) for number in range(sites)],
        "public": draw(PUBLIC)[0],
        "progress": False,
    }


def _most_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


if __name__ == "__main__":
    print_with_options(report, __doc__)
