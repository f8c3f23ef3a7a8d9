"""FedKT's Table 1 on MNIST: the paper's CNN over 10 parties, beside local training and PATE.

    python -m benchmarks.fedkt_mnist [--seeds 3] [--epochs 100] [--parties 10] [--rows 50_000] [--public 5_000]
                                     [--device cuda] [--jobs 15] [--workers 5] [--keep runs/fedkt_mnist]
                                     [--measure 1]

`rows` of the training images, dealt to parties as the authors' code does (beta = 0.5); of the test images, 5,000 are
public and the others for testing. s = 2, t = 5. All nets, of teachers, students and the final model, are trained for
`epochs`, as in the paper: Adam at 1e-3, batches of 32, weight decay 1e-6. `jobs` cores are shared out to runs; the
parties of a run work in `workers` processes, each on one of them. `keep` names a folder from which an interrupted
benchmark goes on; `measure` 0 shows what is there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.fedkt import dirichlet, timed
from benchmarks.pool import Found, Task, in_parallel, machines
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.data.sources import load_source

PARTIES, ROWS, PUBLIC = 10, 50_000, 5_000
# The paper's accuracy, from the slowest run to the fastest.
PAPER = {"FedKT": 0.959, "PATE": 0.978, "local": 0.800}
SMALL: dict[str, Any] = {"seeds": 1, "epochs": 1, "parties": 2, "rows": 100, "public": 20}


def report(
    seeds: int = 3,
    epochs: int = 100,
    parties: int = PARTIES,
    rows: int = ROWS,
    public: int = PUBLIC,
    device: str = "cpu",
    jobs: int = 1,
    workers: int = 1,
    keep: str = "",
    measure: int = 1,
) -> Report:
    """Measure all methods on every seed."""
    tasks = {
        f"{method}-{seed}": Task(_run, (method, epochs, parties, rows, public, device, workers, seed), workers)
        for method in PAPER
        for seed in range(seeds)
    }
    found: dict[str, list[Found]] = defaultdict(list)
    running = in_parallel(tasks, jobs, keep, measure=bool(measure))
    for name, run in watched(running, "MNIST", len(tasks)):
        found[name.rpartition("-")[0]].append(run)
    columns = {
        "method": Column("method"),
        "seeds": Column("seeds"),
        "accuracy, %": Column("accuracy", ".2f", 0.01),
        "± seeds": Column("spread", ".2f", 0.01),
        "paper, %": Column("paper", ".1f", 0.01),
        "kB a party sends": Column("bytes", ",.1f", 1000),
        "seconds": Column("seconds", ".0f"),
    }
    notes = (
        f"{parties} parties with {rows:,} rows, {public:,} public rows; {workers} processes a run, other runs beside "
        "it, which the seconds show. Local accuracy is the mean over parties."
    )
    shown = [name for name in ("local", "FedKT", "PATE") if found[name]]
    return Report(
        f"FedKT, Table 1: MNIST, {epochs} epochs, {device}",
        columns,
        [_row(name, found[name]) for name in shown],
        notes,
        machine=machines(run for runs in found.values() for run in runs),
    )


def _run(method: str, epochs: int, parties: int, rows: int, public: int, device: str, workers: int, seed: int) -> Found:
    data = load_source("mnist", folder=data_folder())
    if data.test is None:
        raise SystemExit("MNIST has no test rows.")
    X, test = (np.asarray(part, dtype=np.float32)[:, None] / 255 for part in (data.X, data.test[0]))
    rng = np.random.RandomState(seed)
    order = rng.permutation(len(test))
    net = cg.TorchClassifier("lenet", lr=1e-3, batch_size=32, epochs=epochs, weight_decay=1e-6, device=device)
    parts = dirichlet(data.y[:rows], parties, rng)
    sites = [cg.Site(f"party{i}", X[own], data.y[own], learner=net) for i, own in enumerate(parts)]
    algorithms = {"local": cg.Local(), "FedKT": cg.FedKT(), "PATE": cg.Pate(teachers=parties)}
    return timed(
        algorithms[method],
        sites=sites,
        public=test[order[:public]],
        test=(test[order[public:]], data.test[1][order[public:]]),
        seed=seed,
        workers=workers if workers > 1 else 0,
    )


def _row(name: str, runs: list[Found]) -> dict[str, Any]:
    accuracy = np.array([run["accuracy"] for run in runs])
    means = {key: float(np.mean([run[key] for run in runs])) for key in ("bytes", "seconds")}
    spread = float(np.abs(accuracy - accuracy.mean()).max()) if len(runs) > 1 else None
    return means | {
        "method": name,
        "seeds": len(runs),
        "accuracy": float(accuracy.mean()),
        "spread": spread,
        "paper": PAPER[name],
    }


if __name__ == "__main__":
    print_with_options(report, __doc__)
