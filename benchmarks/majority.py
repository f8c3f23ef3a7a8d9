"""Speed of the majority vote: the streamed tally beside other ways to count, on one core.

    python -m benchmarks.majority [--sites 100] [--samples 10_000_000]

Every way counts the same kind of labels: each site agrees with a common truth in 80 % of the samples,
abstains in 2 %, and is at random otherwise. Making the labels is not timed. The slower ways need all
labels at once and run on fewer samples; what is compared is labels per second. The peak of memory is that
of counts, winners and temporaries, and of all labels where a way needs them at once.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.machine import limited_to
from benchmarks.report import Column, Report, print_with_options
from collegium.core.tally import Tally

N_CLASSES = 10
SLOW_SHARE = 50
"""The ways that hold all labels at once run on this fraction of the samples."""
SMALL = {"sites": 20, "samples": 100_000}


def site_labels(site: int, n_samples: int, n_classes: int) -> NDArray[np.int8]:
    """One site's labels of the public set."""
    truth = np.arange(n_samples, dtype=np.int64) * 7919 // 13 % n_classes
    rng = np.random.default_rng(site)
    dice = rng.integers(0, 100, n_samples, dtype=np.uint8)
    labels = np.where(dice < 80, truth.astype(np.int8), rng.integers(0, n_classes, n_samples, dtype=np.int8))
    labels[dice >= 98] = -1
    return labels


def measure(sites: int = 100, samples: int = 10_000_000, n_classes: int = N_CLASSES) -> list[dict[str, Any]]:
    """One row per way to count: its labels, seconds, labels per second, ratio to ours, and peak of memory."""
    few = max(1, samples // SLOW_SHARE)
    votes = np.stack([site_labels(site, few, n_classes) for site in range(sites)])
    with limited_to(cores=1):
        rows = [
            _streamed(sites, samples, n_classes),
            _timed("scipy.stats.mode", votes, lambda: stats.mode(votes, axis=0)),
            _timed("one-hot sum in numpy", votes, lambda: _one_hot_winners(votes, n_classes)),
            _one_pass(sites, samples, n_classes),
        ]
    for row in rows:
        row["labels_per_second"] = row["labels"] / row["seconds"]
        row["ratio"] = row["labels_per_second"] / rows[0]["labels_per_second"]
    return rows


def _streamed(sites: int, samples: int, n_classes: int) -> dict[str, Any]:
    start = time.perf_counter()
    tally = Tally(samples, n_classes, sites)
    seconds = time.perf_counter() - start
    for site in range(sites):
        labels = site_labels(site, samples, n_classes)
        start = time.perf_counter()
        tally.add(labels)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    tally.winners(seed=0)
    seconds += time.perf_counter() - start

    def with_one_site() -> None:
        tally = Tally(samples, n_classes, sites)
        tally.add(labels)
        tally.winners(seed=0)

    return _row("Collegium, streamed", sites, samples, seconds, _peak_bytes(with_one_site))


def _one_hot_winners(votes: NDArray[np.int8], n_classes: int) -> NDArray[np.intp]:
    one_hot: NDArray[np.bool_] = votes[:, :, None] == np.arange(n_classes, dtype=np.int8)
    winner: NDArray[np.intp] = one_hot.sum(axis=0).argmax(axis=1)
    return winner


def _timed(way: str, votes: NDArray[np.int8], count: Callable[[], object]) -> dict[str, Any]:
    start = time.perf_counter()
    count()
    seconds = time.perf_counter() - start
    sites, samples = votes.shape
    return _row(way, sites, samples, seconds, votes.nbytes + _peak_bytes(count))


def _one_pass(sites: int, samples: int, n_classes: int) -> dict[str, Any]:
    seconds = 0.0
    passes = min(sites, 10)
    for site in range(passes):
        labels = site_labels(site, samples, n_classes).view(np.uint8)
        start = time.perf_counter()
        labels.sum(dtype=np.uint64)
        seconds += time.perf_counter() - start
    return _row("one pass over the bytes (sum)", passes, samples, seconds, 0)


def _row(way: str, sites: int, samples: int, seconds: float, peak: int) -> dict[str, Any]:
    return {
        "way": way,
        "labels": sites * samples,
        "seconds": seconds,
        "peak_bytes": peak,
        "peak_bytes_per_sample": peak / samples,
    }


def _peak_bytes(action: Callable[[], object]) -> int:
    """Peak of what the action allocates; apart from the timing, which tracing would slow down."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def report(sites: int = 100, samples: int = 10_000_000) -> Report:
    """The table."""
    return Report(
        f"Majority vote of {sites} sites on {samples:,} samples, C = {N_CLASSES}, on one core",
        {
            "way": Column("way"),
            "labels": Column("labels", ","),
            "seconds": Column("seconds", ".2f"),
            "million labels/s": Column("labels_per_second", ",.1f", per=1e6),
            "to ours": Column("ratio", ".3f"),
            "peak MB": Column("peak_bytes", ",.1f", per=1e6),
            "bytes per sample": Column("peak_bytes_per_sample", ".1f"),
        },
        measure(sites, samples),
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
