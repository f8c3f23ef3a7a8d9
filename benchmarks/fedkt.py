"""FedKT's Table 1 on the data at hand: accuracy and time beside the authors' code, local training and PATE.

    python -m benchmarks.fedkt [--seeds 3] [--data adult,cod-rna] [--workers 0]

Adult is LIBSVM's a9a, cod-rna the 59,535 rows of LIBSVM's training file: 50 parties, beta = 0.5, s = 2, t = 5. Each
seed draws the split that the authors' code draws with it, row by row: 75 % private, dealt by Dirichlet proportions
class by class (the class of the file's first row last) where a party that has its share gets no more and each gets at
least 10; half of the rest public, half for testing. Teachers are trees of depth 6; students and final model are forests
of 100 trees of depth 6 (Adult) or XGBoost with a learning rate of 0.05 (cod-rna). `workers` 0 runs sites in threads.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.pool import undisturbed
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.data.sources import load_source

PARTIES, BETA, LEAST = 50, 0.5, 10
TREE = DecisionTreeClassifier(max_depth=6)
SMALL: dict[str, Any] = {"seeds": 1, "data": "cod-rna"}
# The authors' code, run on the same splits: accuracy by seed; and how long it took.
AUTHORS: dict[tuple[str, str], tuple[float, ...]] = {
    ("adult", "FedKT"): (0.8214, 0.8224, 0.8077),
    ("adult", "local"): (0.670, 0.658, 0.664),
    ("cod-rna", "FedKT"): (0.8851, 0.8865, 0.8949),
    ("cod-rna", "local"): (0.655, 0.651, 0.660),
}
SECONDS = {("adult", "FedKT"): "64-77", ("cod-rna", "FedKT"): "33 (CPU)"}
PAPER = {
    ("adult", "FedKT"): 0.822, ("adult", "local"): 0.686, ("adult", "PATE"): 0.835,
    ("cod-rna", "FedKT"): 0.883, ("cod-rna", "local"): 0.650, ("cod-rna", "PATE"): 0.911,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Split:
    """One draw of the authors' code: each party's rows, the public and the test rows, as row numbers."""

    parties: list[NDArray[np.intp]]
    public: NDArray[np.intp]
    test: NDArray[np.intp]


def authors_split(y: NDArray[Any], parties: int, seed: int, *, shuffled: bool = False) -> Split:
    """The split that the authors' code makes of labels `y` with this seed; `shuffled` with its order of rows, too."""
    rng = np.random.RandomState(seed)
    train, rest = train_test_split(np.arange(len(y)), random_state=rng)
    dealt = dirichlet(np.asarray(y)[train] == y[0], parties, rng)
    for rows in dealt if shuffled else ():
        rng.shuffle(rows)
    half = len(rest) // 2
    return Split([train[rows] for rows in dealt], rest[:half], rest[half:])


def dirichlet(labels: NDArray[Any], parties: int, rng: np.random.RandomState) -> list[NDArray[np.intp]]:
    """Each class by Dirichlet proportions; a party that has its share of all rows gets none of the later classes."""
    while True:
        dealt: list[list[int]] = [[] for _ in range(parties)]
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            rng.shuffle(rows)
            shares = rng.dirichlet(np.repeat(BETA, parties))
            shares = np.array([s * (len(own) < len(labels) / parties) for s, own in zip(shares, dealt, strict=True)])
            cuts = (np.cumsum(shares / shares.sum()) * len(rows)).astype(int)[:-1]
            dealt = [own + part.tolist() for own, part in zip(dealt, np.split(rows, cuts), strict=True)]
        if min(map(len, dealt)) >= LEAST:
            return [np.array(own, dtype=np.intp) for own in dealt]


def table(name: str, folder: Path) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Adult or cod-rna as numbers, in the order of the file."""
    data = load_source({"adult": "a9a", "cod-rna": "cod_rna"}[name], folder=folder)
    rows = data.X.toarray() if sparse.issparse(data.X) else data.X
    return np.asarray(rows, dtype=np.float32), np.asarray(data.y)


def student(name: str) -> Any:
    """The paper's student and final model."""
    if name == "adult":
        return RandomForestClassifier(100, max_depth=6)
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, max_depth=6, learning_rate=0.05, gamma=1, n_jobs=1)


def methods(name: str) -> dict[str, tuple[cg.Algorithm, Any, Any]]:
    """Each method: its algorithm, the sites' learner, the final learner."""
    paper = student(name)
    tree = DecisionTreeClassifier()
    rule = cg.Majority() if name == "adult" else cg.DawidSkene()
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return {
        "local": (cg.Local(), paper, None),
        "FedKT": (cg.FedKT(teacher=TREE, student=paper), paper, None),
        "FedKT, other learners": (cg.FedKT(teacher=TREE, student=tree, consensus=rule), paper, linear),
        "PATE": (cg.Pate(teachers=PARTIES), TREE, paper),
    }


def report(seeds: int = 3, data: str = "adult,cod-rna", workers: int = 0) -> Report:
    """Run every method on every split, one after the other."""
    warnings.filterwarnings("ignore", message=".*sklearn.utils.parallel.delayed.*")
    folder = data_folder()
    jobs = [(name, seed) for name in data.split(",") for seed in range(seeds)]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for name, seed in watched(jobs, "FedKT", len(jobs)):
        for method, outcome in _outcomes(name, seed, folder, workers).items():
            found.setdefault((name, method), []).append(outcome)
    columns = {
        "data": Column("data"),
        "method": Column("method"),
        "accuracy, %": Column("accuracy"),
        "mean": Column("mean", ".2f"),
        "authors' code, %": Column("authors"),
        "mean ": Column("authors_mean", ".2f"),
        "paper, %": Column("paper", ".1f"),
        "seconds": Column("seconds", ".1f"),
        "CPU seconds": Column("cpu", ".1f"),
        "authors' seconds": Column("authors_seconds"),
        "bytes a party sends": Column("bytes", ",.0f"),
    }
    notes = (
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}; beside ours the authors' code on the same splits, with its "
        "training seed 0. Other training seeds move both: on Adult's first split a re-implementation of their "
        "loop gives 82.1, 78.1, 79.3 and 82.1 with four of them. `Other learners`: unpruned trees as students and "
        "logistic regression as final model, with the majority (Adult) or Dawid-Skene (cod-rna) as consensus: the best "
        "of four students, four final models and two rules on the splits of seeds 10 to 14, which are not these. "
        "Seconds are those of one run from end to end, "
        "beside whatever else ran on the machine; CPU seconds are its own. Local accuracy is the mean over parties."
    )
    return Report("FedKT, Table 1", columns, [_row(*key, outcomes) for key, outcomes in found.items()], notes, words=2)


def _outcomes(name: str, seed: int, folder: Path, workers: int) -> dict[str, dict[str, float]]:
    X, y = table(name, folder)
    split = authors_split(y, PARTIES, seed)
    shared = {"public": X[split.public], "test": (X[split.test], y[split.test]), "seed": seed, "workers": workers}
    outcomes = {}
    for method, (algorithm, learner, final) in methods(name).items():
        sites = [cg.Site(f"party{i}", X[rows], y[rows], learner=learner) for i, rows in enumerate(split.parties)]
        outcomes[method] = timed(algorithm, sites=sites, global_learner=final, **shared)
    return outcomes


def timed(algorithm: cg.Algorithm, **options: Any) -> dict[str, float]:
    """A run's accuracy, seconds by the clock and of the CPU, and what a party sends."""
    clock, cpu = time.perf_counter(), sum(os.times()[:4])
    run = undisturbed(cg.run(algorithm, progress=False, **options))
    clock, cpu = time.perf_counter() - clock, sum(os.times()[:4]) - cpu
    final = run.metrics.query("metric == 'global_accuracy'")["value"]
    accuracy = float(final.iloc[-1]) if len(final) else float(run.accuracy.iloc[-1].mean())
    sent = run.releases["bytes"].sum() / len(run.about["parties"])
    return {"accuracy": accuracy, "seconds": clock, "cpu": cpu, "bytes": float(sent)}


def _row(name: str, method: str, outcomes: list[dict[str, float]]) -> dict[str, Any]:
    authors = AUTHORS.get((name, method.partition(",")[0]), ())[: len(outcomes)]
    means = {key: float(np.mean([outcome[key] for outcome in outcomes])) for key in ("seconds", "cpu", "bytes")}
    return means | {
        "data": name,
        "method": method,
        "accuracy": _percents([outcome["accuracy"] for outcome in outcomes]),
        "mean": 100 * float(np.mean([outcome["accuracy"] for outcome in outcomes])),
        "authors": _percents(authors),
        "authors_mean": 100 * float(np.mean(authors)) if authors else None,
        "paper": 100 * PAPER[key] if (key := (name, method)) in PAPER else None,
        "authors_seconds": SECONDS.get((name, method)),
    }


def _percents(values: Any) -> str:
    return " / ".join(f"{100 * value:.2f}" for value in values)


if __name__ == "__main__":
    print_with_options(report, __doc__)
