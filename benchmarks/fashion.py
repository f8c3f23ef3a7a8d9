"""FedCT on Fashion-MNIST with the paper's MLP (Table 1), against local and centralized training.

    python -m benchmarks.fashion [--seeds 3] [--communications 400] [--steps 50] [--device cuda]

Five sites with 2,000 private rows each, 50,000 public rows, the data set's own 10,000 test rows. The authors' rounds
are mini-batch steps: T = 20,000 with b = 50 is 400 communications of 50 steps of 64 private and 64 pseudo-labelled
rows. All methods do the same number of steps. Accuracy is the mean over sites after the last step, and its best over
the run. Centralized is one net on all private rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.report import Column, Report, print_with_options, watched

Data = tuple[Any, Any]

SITES, PRIVATE, PUBLIC = 5, 10_000, 50_000
PAPER = {"local": None, "FedCT": 0.84, "centralized": None}
SMALL: dict[str, Any] = {"seeds": 1, "communications": 3, "steps": 5}


def report(seeds: int = 3, communications: int = 400, steps: int = 50, device: str = "cpu") -> Report:
    """Measure all methods on every seed."""
    methods: dict[str, cg.Algorithm] = {
        "local": cg.Local(rounds=communications, steps=steps),
        "FedCT": cg.FedCT(rounds=communications, steps=steps),
        "centralized": cg.Local(rounds=communications, steps=steps),
    }
    (X, y), test = ((_pixels(images), labels) for images, labels in fashion_mnist(data_folder()))
    cases = [(name, seed) for name in methods for seed in range(seeds)]
    found: dict[str, list[cg.Run]] = {name: [] for name in methods}
    for name, seed in watched(cases, "Fashion-MNIST", len(cases)):
        found[name].append(_run(name, methods[name], (X, y), test, seed, device))
    rows = [_row(name, runs) for name, runs in found.items()]
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
    title = f"Fashion-MNIST, MLP of Table 13, {communications} x {steps} steps, {seeds} seeds, {device}"
    return Report(title, columns, rows)


def _pixels(images: Any) -> Any:
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32)


def _run(method: str, algorithm: cg.Algorithm, data: Data, test: Data, seed: int, device: str) -> cg.Run:
    split = cg.split(*data, sites=SITES, public=PUBLIC, test=0, train=PRIVATE, seed=seed)
    net = cg.TorchClassifier("mlp", lr=1e-3, batch_size=64, epochs=2, device=device)
    parts = dict(zip(split.names, split.sites, strict=True))
    if method == "centralized":  # one site that has all rows: the same, without fitting the same net five times
        parts = {"pool": tuple(np.concatenate(part) for part in zip(*split.sites, strict=True))}
    sites = [cg.Site(name, *part, learner=net) for name, part in parts.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        return cg.run(
            algorithm, sites=sites, public=split.public, test=test, public_truth=split.public_truth, seed=seed
        )


def _row(name: str, runs: list[cg.Run]) -> dict[str, Any]:
    last = np.array([run.accuracy.iloc[-1].mean() for run in runs])
    quality = [run.metrics[run.metrics["metric"] == "consensus_quality"]["value"] for run in runs]
    sites = [run.costs[run.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum().mean() for run in runs]
    return {
        "method": name,
        "accuracy": float(last.mean()),
        "spread": float(np.abs(last - last.mean()).max()) if len(runs) > 1 else None,
        "best": float(np.mean([run.accuracy.mean(axis=1).max() for run in runs])),
        "paper": PAPER[name],
        "quality": float(np.mean([values.iloc[-1] for values in quality])) if len(quality[0]) else None,
        "sent": float(np.mean(sites)),
        "seconds": float(np.mean([run.about["seconds"] for run in runs])),
    }


if __name__ == "__main__":
    print_with_options(report, __doc__)
