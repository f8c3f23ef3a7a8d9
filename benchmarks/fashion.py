"""FedCT on Fashion-MNIST with the paper's MLP (Table 1), against local and centralized training.

    python -m benchmarks.fashion [--seeds 3] [--communications 400] [--steps 50] [--device cuda] [--jobs 3]
                                 [--keep runs/fashion]

Five sites with 2,000 private rows each, 50,000 public rows, the data set's own 10,000 test rows. The authors' rounds
are mini-batch steps: T = 20,000 with b = 50 is 400 communications of 50 steps of 64 private and 64 pseudo-labelled
rows. All methods do the same number of steps. Accuracy is the mean over sites after the last step, and its best over
the run. Centralized is one net on all private rows. `jobs` runs work at a time, all on the one device; `keep` names a
folder from which an interrupted benchmark goes on.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.pool import Found, Task, in_parallel, machines
from benchmarks.report import Column, Report, print_with_options, watched

SITES, PRIVATE, PUBLIC = 5, 10_000, 50_000
PAPER = {"local": None, "FedCT": 0.84, "centralized": None}
SMALL: dict[str, Any] = {"seeds": 1, "communications": 3, "steps": 5}


def report(
    seeds: int = 3, communications: int = 400, steps: int = 50, device: str = "cpu", jobs: int = 1, keep: str = ""
) -> Report:
    """Measure all methods on every seed."""
    tasks = {
        f"{name}-{seed}": Task(_run, (name, communications, steps, seed, device))
        for name in sorted(PAPER)  # the longest first
        for seed in range(seeds)
    }
    found: dict[str, list[Found]] = defaultdict(list)
    # Not pinned: the device does the work, and what the cores do is to keep it busy.
    for name, run in watched(in_parallel(tasks, jobs, keep, pin=False), "Fashion-MNIST", len(tasks)):
        found[name.rpartition("-")[0]].append(run)
    rows = [_row(name, found[name]) for name in PAPER]
    columns = {
        "method": Column("method"),
        "accuracy": Column("accuracy", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "best round": Column("best", ".4f"),
        "paper": Column("paper", ".2f"),
        "consensus quality": Column("quality", ".4f"),
        "kB sent per site": Column("sent", ".1f", 1000),
        "seconds": Column("seconds", ".0f"),
    }
    many = f"{seeds} {'seed' if seeds == 1 else 'seeds'}"
    title = f"Fashion-MNIST, MLP of Table 13, {communications} x {steps} steps, {many}, {device}"
    all_runs = [run for runs in found.values() for run in runs]
    devices = sorted({run["device"] for run in all_runs})
    notes = (
        f"On {' and '.join(devices)}; {jobs} {'run' if jobs == 1 else 'runs'} at a time, which the seconds show. What "
        "is sent without a release are acknowledgements."
    )
    return Report(title, columns, rows, notes, machine=machines(all_runs))


def _pixels(images: Any) -> Any:
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32)


def _run(method: str, communications: int, steps: int, seed: int, device: str) -> Found:
    (X, y), test = ((_pixels(images), labels) for images, labels in fashion_mnist(data_folder()))
    split = cg.split(X, y, sites=SITES, public=PUBLIC, test=0, train=PRIVATE, seed=seed)
    net = cg.TorchClassifier("mlp", lr=1e-3, batch_size=64, epochs=2, device=device)
    parts = dict(zip(split.names, split.sites, strict=True))
    if method == "centralized":  # one site that has all rows: the same, without fitting the same net five times
        parts = {"pool": tuple(np.concatenate(part) for part in zip(*split.sites, strict=True))}
    sites = [cg.Site(name, *part, learner=net) for name, part in parts.items()]
    algorithm = (cg.FedCT if method == "FedCT" else cg.Local)(rounds=communications, steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        run = cg.run(algorithm, sites=sites, public=split.public, test=test, public_truth=split.public_truth, seed=seed)
    accuracy = run.accuracy.mean(axis=1)
    quality = run.metrics[run.metrics["metric"] == "consensus_quality"]["value"]
    sent = run.costs[run.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum()
    return {
        "accuracy": float(accuracy.iloc[-1]),
        "best": float(accuracy.max()),
        "quality": float(quality.iloc[-1]) if len(quality) else None,
        "sent": float(sent.mean()),
        "seconds": run.about["seconds"],
        "device": _device(device),
    }


def _device(device: str) -> str:
    import torch

    where = torch.cuda.get_device_name() if device.startswith("cuda") else device
    return f"{where} with PyTorch {torch.__version__}"


def _row(name: str, runs: list[Found]) -> dict[str, Any]:
    last = np.array([run["accuracy"] for run in runs])
    means = {key: float(np.mean([run[key] for run in runs])) for key in ("best", "sent", "seconds")}
    return means | {
        "method": name,
        "accuracy": float(last.mean()),
        "spread": float(np.abs(last - last.mean()).max()) if len(runs) > 1 else None,
        "paper": PAPER[name],
        "quality": float(np.mean([run["quality"] for run in runs])) if name == "FedCT" else None,
    }


if __name__ == "__main__":
    print_with_options(report, __doc__)
