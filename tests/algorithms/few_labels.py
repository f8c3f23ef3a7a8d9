"""Small federations with few labels, as the tests of semi-supervised methods share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tests.core.exchanges import Disturbed

import collegium as cg
from collegium.core import Federation
from collegium.core.workbench import Workbench
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
ORDER = np.random.default_rng(0).permutation(len(X))
TEST = X[ORDER[:400]], Y[ORDER[:400]]


def net(**settings: Any) -> cg.TorchClassifier:
    """A small net for digits."""
    return cg.TorchClassifier("mlp", **{"optimizer": "sgd", "lr": 0.1, "batch_size": 20} | settings)


def sites(
    sizes: tuple[int, ...] = (60, 60, 60, 60), labels: tuple[int, ...] | int = 8, learner: Any = None
) -> list[cg.Site]:
    """Digits as sites a, b, c ..., the first rows of each with labels; a site may have none, or all."""
    many = (labels,) * len(sizes) if isinstance(labels, int) else labels
    parts = np.split(ORDER[400 : 400 + sum(sizes)], np.cumsum(sizes)[:-1])
    return [
        cg.Site(
            name,
            X[rows[:n]] if n else None,
            Y[rows[:n]] if n else None,
            unlabeled=X[rows[n:]] if n < len(rows) else None,
            learner=learner or net(),
        )
        for name, rows, n in zip("abcdefgh", parts, many, strict=False)
    ]


def run(algorithm: cg.Algorithm, who: list[cg.Site] | None = None, **options: Any) -> cg.Run:
    """A run on digits."""
    settings: dict[str, Any] = {"test": TEST, "classes": range(10), "progress": False} | options
    return cg.run(algorithm, sites=sites() if who is None else who, **settings)


def accuracy(result: cg.Run) -> float:
    """Of the global model in the last round."""
    return float(result.metrics.query("metric == 'global_accuracy'")["value"].iloc[-1])


def right(result: cg.Run, who: list[cg.Site]) -> float:
    """The share of the sites' points that were labelled rightly; the sites' rows are known by their values."""
    truth = {row.tobytes(): label for row, label in zip(X, Y, strict=True)}
    found = [
        label == truth[row.tobytes()]
        for site in who
        for row, label in zip(site.unlabeled, result.labels[site.name], strict=True)
    ]
    return float(np.mean(found))


@contextmanager
def disturbed(
    algorithm: cg.Algorithm, party: str, step: str, change: Callable[[Any], None] | None = None
) -> Iterator[tuple[Federation, Disturbed]]:
    """The algorithm over a link that loses a site at a step, or changes what it says there."""
    who = tuple(sites())
    inner = LocalLink(Hosting(who, np.arange(10), None, None, 0, "run 1"))
    try:
        link = Disturbed(inner, party, step, change)
        bench = Workbench(who, np.arange(10), None, None, 0)
        fed = Federation(link, run="run 1", n_classes=10, seed=0, workbench=bench)
        algorithm.coordinate(fed)
        fed.flush()
        yield fed, link
    finally:
        inner.close()
