"""Few labels, many rows without: FedAvg+XCLP beside other semi-supervised methods (XCLP's Table 4).

    python -m benchmarks.semi_supervised [--data fashion_mnist] [--seeds 3] [--rounds 150] [--sites 100] [--rows 50000]
                                         [--labels 1000] [--tests 10000] [--steps 50] [--device cuda] [--jobs 14]
                                         [--keep runs/semi_supervised] [--measure 1]

`rows` training images of Fashion-MNIST (or cifar10) are dealt to the sites: iid, with as many labels of each class at
every site, or so that each site has five classes, and labels of a random part of its rows. `labels` are shared out
evenly, so that at 1,000 a site has 10 labelled and 490 other rows. Five of 100 sites take part in a round, chosen at
random; each trains for `steps` mini-batches of 50 labelled and 50 other rows by SGD (rate .1, FedMatch .001 as it was
published; weight decay 2e-4) on shifted images. Methods with pseudo-labels learn the labels alone in the first half of
the rounds, as the authors' code does. The net is AIMHI's, with two convolutions. XCLP works on exact similarities.
Accuracy is that of the global model on `tests` test images, in the last round and in the best. `jobs`
runs work at a time, each on one core, all on the one device; `keep` names a folder from which an interrupted benchmark
goes on; `measure` 0 makes the table of what is there.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.pool import Found, Task, in_parallel, machines, undisturbed
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.data.benchmarks import read_benchmark

# Accuracy in Table 4 (CIFAR-10, all 100 sites with labels): 1,000 labels iid and not, 5,000 labels iid and not.
PAPER = {
    "FedAvg, labels only": (55.46, 50.94, 76.13, 75.34),
    "FedAvg+network": (60.12, 60.60, 79.45, 80.07),
    "FedAvg+local LP": (61.75, 50.94, 85.11, 76.61),
    "FedSem+": (59.98, 60.93, 79.49, 79.70),
    "FedMatch": (50.93, 50.71, 72.22, 71.99),
    "FedSiam": (67.02, 67.85, 82.06, 82.23),
    "FedAvg+XCLP": (70.91, 73.76, 86.65, 85.53),
}
PARTITIONS: dict[str, Any] = {"iid": cg.Iid(), "5 classes": cg.Pathological(classes_per_site=5)}
AT_A_TIME = 5
RATE = 0.1
SMALL: dict[str, Any] = {
    "seeds": 1, "rounds": 2, "sites": 4, "rows": 120, "labels": 40, "tests": 50, "steps": 2, "jobs": 1,
}  # fmt: skip


def report(
    data: str = "fashion_mnist",
    seeds: int = 3,
    rounds: int = 150,
    sites: int = 100,
    rows: int = 50_000,
    labels: int = 1_000,
    tests: int = 10_000,
    steps: int = 50,
    device: str = "cpu",
    jobs: int = 1,
    keep: str = "",
    measure: int = 1,
) -> Report:
    """Measure all methods in both partitions, on every seed."""
    cases = [(method, partition) for partition in PARTITIONS for method in PAPER]
    sizes = (rounds, sites, rows, labels, tests, steps)
    tasks = {
        f"{data}-{method}-{partition}-{seed}": Task(_run, (data, method, partition, *sizes, seed, device))
        for seed in range(seeds)
        for method, partition in reversed(cases)  # the longest first
    }
    found: dict[str, list[Found]] = defaultdict(list)
    running = in_parallel(tasks, jobs, keep, measure=bool(measure))
    for name, run in watched(running, data, len(tasks)):
        found[name.rpartition("-")[0]].append(run)
    columns = {
        "method": Column("method"),
        "split": Column("partition"),
        "last round": Column("last", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "best round": Column("best", ".4f"),
        "pseudo-labels right": Column("right", ".3f"),
        "paper, CIFAR-10": Column("paper", ".3f"),
        "MB sent per site": Column("sent", ".2f", 1e6),
        "seconds": Column("seconds", ".0f"),
    }
    many = f"{seeds} {'seed' if seeds == 1 else 'seeds'}"
    title = f"{data}, {labels:,} of {rows:,} rows labelled, {sites} sites, {rounds} x {steps} steps, {many}, {device}"
    notes = (
        "Seconds are those of runs that shared the device with others. The paper has a larger net, 1,500 "
        "rounds and a falling learning rate; its splits that are not iid are described, not given. Pseudo-labels are "
        "those that sites found when they last took part."
    )
    runs = {case: found[f"{data}-{case[0]}-{case[1]}"] for case in cases}
    table = [_row(*case, labels, runs[case]) for case in cases if runs[case]]
    return Report(
        title, columns, table, notes, words=2, machine=machines(run for runs in found.values() for run in runs)
    )


def _algorithm(method: str, rounds: int, steps: int, participation: float) -> cg.Algorithm:
    settings: dict[str, Any] = {"rounds": rounds, "local_steps": steps, "participation": participation}
    half = rounds // 2
    match method:
        case "FedAvg+network":
            return cg.FedAvgPseudo(**settings, warm_up=half)
        case "FedAvg+local LP":
            return cg.FedAvgLLP(**settings, warm_up=half)
        case "FedSem+":
            return cg.FedSem(**settings, warm_up=half)
        case "FedMatch":
            return cg.FedMatch(**settings)
        case "FedSiam":
            return cg.FedSiam(**settings)
        case "FedAvg+XCLP":
            return cg.FedAvgXCLP(**settings, warm_up=half, xclp=cg.XCLP(bits=None))
    return cg.FedAvg(**settings, weighting="equal")


@cache
def _images(data: str) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Training images and labels, test images and labels; images as (n, channels, height, width), bytes."""
    if data == "fashion_mnist":
        (X, y), (X_test, y_test) = fashion_mnist(data_folder())
        return X[:, None], y, X_test[:, None], y_test
    X, y, (X_test, y_test) = read_benchmark(data, data_folder())
    return X, np.asarray(y), X_test, np.asarray(y_test)


def _pixels(images: Any) -> Any:
    values = (images / 255.0).astype(np.float32)
    values.flags.writeable = False  # so that they may stay on the device
    return values


def _labelled(y: NDArray[Any], many: int, rng: np.random.Generator, *, evenly: bool) -> NDArray[np.bool_]:
    """Which of a site's rows have labels: as many of each class, as far as that goes, or any."""
    order = rng.permutation(len(y))
    if evenly:  # the first of each class, then the second of each ...
        turn = np.zeros(len(y), dtype=np.int64)
        for label in np.unique(y):
            turn[order[y[order] == label]] = np.arange(np.count_nonzero(y == label))
        order = order[np.argsort(turn[order], kind="stable")]
    known = np.zeros(len(y), dtype=bool)
    known[order[:many]] = True
    return known


def _sites(
    data: str, partition: str, sites: int, rows: int, labels: int, seed: int, learner: Any
) -> tuple[list[cg.Site], dict[str, NDArray[Any]]]:
    """The sites, and the true labels of their rows without."""
    X, y, _, _ = _images(data)
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(y))[:rows]
    made, truth = [], {}
    for number, own in enumerate(PARTITIONS[partition].assign(y[drawn], sites, rng)):
        mine = drawn[own]
        known = _labelled(y[mine], labels // sites, rng, evenly=partition == "iid")
        name = f"site{number}"
        truth[name] = y[mine[~known]]
        pixels, others = _pixels(X[mine[known]]), _pixels(X[mine[~known]])
        made.append(cg.Site(name, pixels, y[mine[known]], unlabeled=others, learner=learner))
    return made, truth


def _run(
    data: str,
    method: str,
    partition: str,
    rounds: int,
    sites: int,
    rows: int,
    labels: int,
    tests: int,
    steps: int,
    seed: int,
    device: str,
) -> Found:
    # FedMatch's published strengths belong to its rate: at .01 this net no longer learns.
    rate = 1e-3 if method == "FedMatch" else RATE
    net = cg.TorchClassifier(
        "cnn_aimhi", optimizer="sgd", lr=rate, weight_decay=2e-4, batch_size=50, augment=True, device=device
    )
    made, truth = _sites(data, partition, sites, rows, labels, seed, net)
    _, _, X_test, y_test = _images(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        run = undisturbed(
            cg.run(
                _algorithm(method, rounds, steps, min(1.0, AT_A_TIME / sites)),
                sites=made,
                test=(_pixels(X_test[:tests]), y_test[:tests]),
                test_sites=False,
                classes=np.arange(10),
                seed=seed,
            )
        )
    accuracy = run.metrics.groupby("metric")["value"].get_group("global_accuracy")
    labelled = run.labels if isinstance(run.labels, dict) else {}
    right = [np.mean(found == truth[party]) for party, found in labelled.items() if len(found)]
    sent = run.costs[run.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum()
    return {
        "last": float(accuracy.iloc[-1]),
        "best": float(accuracy.max()),
        "right": float(np.mean(right)) if right else None,
        "sent": float(sent.mean()),
        "seconds": run.about["seconds"],
    }


def _row(method: str, partition: str, labels: int, runs: list[Found]) -> dict[str, Any]:
    last = np.array([run["last"] for run in runs])
    means = {key: float(np.mean([run[key] for run in runs])) for key in ("last", "best", "sent", "seconds")}
    right = [run["right"] for run in runs if run["right"] is not None]
    column = {1_000: 0, 5_000: 2}.get(labels)
    return means | {
        "method": method,
        "partition": partition,
        "spread": float(np.abs(last - last.mean()).max()) if len(runs) > 1 else None,
        "right": float(np.mean(right)) if right else None,
        "paper": None if column is None else PAPER[method][column + (partition != "iid")] / 100,
    }


if __name__ == "__main__":
    print_with_options(report, __doc__)
