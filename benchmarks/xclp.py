"""XCLP: accuracy on digits over ten sites, the time of the solver, and of a whole job.

    python -m benchmarks.xclp [--seeds 10] [--points 500] [--solved 10_000]

Digits (1,797 of scikit-learn) are dealt to ten sites, iid or by Dirichlet's distribution (.5); a share of all rows
keeps its labels. Accuracy is that of the labels of all other rows, beside each site alone (LocalLabelPropagation; a
site without labels has none right). The other rows measure time on one core: of influences over 500 labelled of
`solved` points, and of a whole job of five sites with `points` points each through `masked`.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import collegium as cg
from benchmarks.machine import limited_to
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.core import Algorithm
from collegium.graphs import Nearest, influence
from collegium.graphs.neighbours import nearest

SITES = 10
SHARES = (0.02, 0.05, 0.1)
WAYS: dict[str, Algorithm] = {
    "exact similarities": cg.XCLP(bits=None),
    "4096-bit codes, masked": cg.XCLP(hamming="masked"),
    "exact, as in the paper": cg.XCLP(bits=None, power=1.0, balance="none"),
    "exact, as in the authors' code": cg.XCLP(bits=None, power=3.0, balance="count"),
    "each site alone": cg.LocalLabelPropagation(),
}
TARGETS = {
    ("exact similarities", "iid"): (0.885, 0.946, 0.968),
    ("4096-bit codes, masked", "iid"): (0.850, 0.940, 0.962),
}
PARTITIONS = {"iid": cg.Iid(), "Dirichlet .5": cg.Dirichlet(alpha=0.5)}
SMALL = {"seeds": 1, "points": 50, "solved": 6000}


def digit_sites(partition: Any, share: float, seed: int) -> tuple[list[cg.Site], dict[str, Any]]:
    """Ten sites of which each row keeps its label with that share, and the true labels of the others."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    known = np.zeros(len(y), bool)
    known[rng.choice(len(y), round(share * len(y)), replace=False)] = True
    sites, truth = [], {}
    for number, rows in enumerate(partition.assign(y, SITES, rng)):
        with_label, without = rows[known[rows]], rows[~known[rows]]
        name = f"site{number}"
        if len(rows):
            sites.append(cg.Site(name, X[with_label], y[with_label], unlabeled=X[without]))
            truth[name] = y[without]
    return sites, truth


def accuracy(way: Algorithm, partition: Any, share: float, seed: int) -> float:
    """The share of all unlabeled points whose label is right."""
    sites, truth = digit_sites(partition, share, seed)
    run = cg.run(way, sites=sites, seed=seed, classes=range(10), progress=False)
    found = run.labels if isinstance(run.labels, dict) else {}
    right = sum(int(np.sum(found[party] == truth[party])) for party in found)
    return right / sum(map(len, truth.values()))


def measure(seeds: int = 10, points: int = 500, solved: int = 10_000) -> list[dict[str, Any]]:
    """One row per way and partition, then the times."""
    rows: list[dict[str, Any]] = []
    cases = [(way, partition) for partition in PARTITIONS for way in WAYS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        for way, partition in watched(cases, "digits", len(cases)):
            row: dict[str, Any] = {"what": f"{way}, {partition}"}
            for share, target in zip(SHARES, TARGETS.get((way, partition), (None,) * 3), strict=True):
                found = [accuracy(WAYS[way], PARTITIONS[partition], share, seed) for seed in range(seeds)]
                row |= {f"at {share}": float(np.mean(found)), f"target {share}": target}
            rows.append(row)
    with limited_to(cores=1), threadpool_limits(1):
        return [*rows, *_solver(solved), _whole_job(points)]


def _solver(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    V = 0.35 * rng.standard_normal((10, 64))[rng.integers(0, 10, n)] + rng.standard_normal((n, 64))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    near = Nearest(n, 10)
    for start in range(0, n, 1000):
        part = range(start, min(start + 1000, n))
        similarities = V[start : part.stop] @ V.T
        similarities[np.arange(len(part)), np.arange(start, part.stop)] = -np.inf
        near.add(part, *nearest(similarities, 10))
    labelled = rng.choice(n, min(500, n), replace=False)
    rows = []
    for power in (1.0, 32.0):
        graph = near.graph(power)
        start_time = time.process_time()
        influence(graph, labelled, 0.99)
        seconds = time.process_time() - start_time
        what = f"500 columns of {n:,} points, power {power:g}"
        rows.append({"what": what, "seconds": seconds, "target seconds": 4.0 if n == 10_000 else None})
    return rows


def _whole_job(points: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((10, 64))
    y = rng.integers(0, 10, 5 * points)
    X = centres[y] + rng.standard_normal((len(y), 64))
    known = max(2, points // 10)
    parts = np.split(np.arange(len(y)), 5)
    sites = [cg.Site(f"site{i}", X[p[:known]], y[p[:known]], unlabeled=X[p[known:]]) for i, p in enumerate(parts)]
    start = time.process_time()
    cg.run(cg.XCLP(hamming="masked"), sites=sites, classes=range(10), progress=False)
    seconds = time.process_time() - start
    what = f"whole job, 5 sites x {points}, 4096 bits, masked"
    return {"what": what, "seconds": seconds, "target seconds": 5.0 if points == 500 else None}


def report(seeds: int = 10, points: int = 500, solved: int = 10_000) -> Report:
    """The table."""
    columns = {"what": Column("what")}
    for share in SHARES:
        columns |= {
            f"{share:.0%} labelled": Column(f"at {share}", ".3f"),
            f"target {share:.0%}": Column(f"target {share}"),
        }
    columns |= {"seconds": Column("seconds", ".2f"), "target s": Column("target seconds", ".0f")}
    return Report(
        f"Label propagation: digits over {SITES} sites (mean of {seeds} seeds), and times on one core",
        columns,
        measure(seeds, points, solved),
        notes="Accuracy on unlabeled points. Times are processor time of all parties together.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
