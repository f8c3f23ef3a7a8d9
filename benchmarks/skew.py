"""Pathological label skew: how good the ways to a consensus are where each site knows few of the classes.

    python -m benchmarks.skew [--seeds 3] [--samples 10_000] [--public 6_000] [--workers 2]

Fashion-MNIST: ten sites that share `samples` private rows, `public` public rows, 3,000 rows of the data set's own test
split. Features are 60 principal components of the public rows, scaled to a mean norm of 5. Accuracy is that on the
test rows, mean over sites: after the last of four rounds, and after the first round that learns from a consensus.
Coverage and quality are those of the first consensus. Every figure is a mean over seeds; each seed draws public and
private rows and their partition anew. The reference is what a sketch of the methods reached with logistic regression
on one draw of its own.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.report import Column, Report, print_with_options, watched

Case = tuple[float, str, str]

ALPHAS = (0.01, 0.1)
SITES, PRIVATE, PUBLIC, TEST, ROUNDS = 10, 10_000, 6_000, 3_000, 4
COMPONENTS, NORM = 60, 5.0
SMALL = {"seeds": 1, "samples": 1_000, "public": 600}

LOGISTIC = "logistic regression"
LEARNERS = {LOGISTIC: LogisticRegression(max_iter=150, C=0.3), "MLP": MLPClassifier((128,), max_iter=30)}
CERTAIN = "most certain site (its scores leave)"
METHODS = {
    "local": cg.Local(),
    "majority": cg.FedCT(ROUNDS),
    "qualified majority, 0.9": cg.FedCT(ROUNDS, consensus=cg.QualifiedMajority(0.9)),
    "Dawid-Skene": cg.FedCT(ROUNDS, consensus=cg.DawidSkene()),
    "familiar, 1.0": cg.FedCT(ROUNDS, voters=cg.Familiar(1.0)),
    "familiar, 1.0, and Dawid-Skene": cg.FedCT(ROUNDS, consensus=cg.DawidSkene(), voters=cg.Familiar(1.0)),
    CERTAIN: None,  # known by its reference only
    "centralized": cg.Centralized(),
}
REFERENCES = {
    (0.01, "local"): ".221",
    (0.01, "majority"): ".455",
    (0.01, "qualified majority, 0.9"): ".221",
    (0.01, "familiar, 1.0"): ".787-.790",
    (0.01, CERTAIN): ".796-.802",
    (0.01, "centralized"): ".830",
    (0.1, "local"): ".385",
    (0.1, "majority"): ".693-.712",
    (0.1, "qualified majority, 0.9"): ".409",
    (0.1, "familiar, 1.0"): ".793-.801",
    (0.1, CERTAIN): ".800-.804",
    (0.1, "centralized"): ".830",
}


def measure(seeds: int = 3, samples: int = PRIVATE, public: int = PUBLIC, workers: int = 2) -> list[dict[str, Any]]:
    """One row per alpha, learner and method."""
    _hush()
    outcomes = defaultdict(list)
    cases = list(product(ALPHAS, LEARNERS, METHODS))
    for case, outcome in watched(_runs(seeds, samples, public, workers), "skew", len(cases) * seeds):
        outcomes[case].append(outcome)
    return [_row(case, outcomes[case]) for case in cases if case in outcomes or case[1] == LOGISTIC]


def _hush() -> None:
    """Learners that stop before they converge would say so in every round, here and in the workers."""
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    os.environ["PYTHONWARNINGS"] = "ignore:Stochastic Optimizer,ignore:lbfgs failed"


def _runs(seeds: int, samples: int, public: int, workers: int) -> Iterator[tuple[Case, dict[str, float]]]:
    train, test = fashion_mnist(data_folder())
    for alpha, seed in product(ALPHAS, range(seeds)):
        partition = cg.BalancedDirichlet(alpha)
        split = cg.split(*train, SITES, public=public, test=0, train=samples, partition=partition, seed=seed)
        features = _Features(split.public)
        shared = {
            "public": features(split.public),
            "public_truth": split.public_truth,
            "test": (features(test[0][:TEST]), test[1][:TEST]),
        }
        private = [(name, features(X), y) for name, (X, y) in zip(split.names, split.sites, strict=True)]
        for learner, (method, algorithm) in product(LEARNERS, METHODS.items()):
            if algorithm is None:
                continue
            sites = [cg.Site(*rows, learner=LEARNERS[learner]) for rows in private]
            run = cg.run(algorithm, sites=sites, **shared, seed=seed, workers=workers, progress=False)
            yield (alpha, learner, method), _outcome(run)


class _Features:
    """Principal components of the public images."""

    def __init__(self, public: Any) -> None:
        self._pca = PCA(COMPONENTS, random_state=0).fit(_flat(public))
        self._scale = NORM / np.linalg.norm(self._pca.transform(_flat(public)), axis=1).mean()

    def __call__(self, images: Any) -> Any:
        return self._pca.transform(_flat(images)) * self._scale


def _flat(images: Any) -> Any:
    return images.reshape(len(images), -1) / 255.0


def _outcome(run: cg.Run) -> dict[str, float]:
    accuracy = run.accuracy.mean(axis=1)
    first = run.metrics[run.metrics["round"] == 0].set_index("metric")["value"]
    return {
        "accuracy": accuracy.iloc[-1],
        "first_accuracy": accuracy.iloc[1] if len(accuracy) > 1 else np.nan,
        "coverage": first.get("consensus_size", np.nan),
        "quality": first.get("consensus_quality", np.nan),
    }


def _row(case: Case, outcomes: list[dict[str, float]]) -> dict[str, Any]:
    alpha, learner, method = case
    row: dict[str, Any] = {"alpha": alpha, "learner": learner, "method": method}
    if learner == LOGISTIC:
        row["reference"] = REFERENCES.get((alpha, method))
    if outcomes:
        row |= {name: float(np.mean([outcome[name] for outcome in outcomes])) for name in outcomes[0]}
        row["lowest"] = min(outcome["accuracy"] for outcome in outcomes)
        row["highest"] = max(outcome["accuracy"] for outcome in outcomes)
    return row


def report(seeds: int = 3, samples: int = PRIVATE, public: int = PUBLIC, workers: int = 2) -> Report:
    """The table."""
    return Report(
        f"Label skew on Fashion-MNIST: {SITES} sites, {samples:,} private and {public:,} public rows, seeds: {seeds}",
        {
            "Dirichlet": Column("alpha"),
            "learner": Column("learner"),
            "method": Column("method"),
            "accuracy": Column("accuracy", ".3f"),
            "lowest": Column("lowest", ".3f"),
            "highest": Column("highest", ".3f"),
            "after one consensus": Column("first_accuracy", ".3f"),
            "coverage": Column("coverage", ".3f"),
            "quality": Column("quality", ".3f"),
            "reference": Column("reference"),
        },
        measure(seeds, samples, public, workers),
        words=3,
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
