"""Pre-trained features: CIFAR-10 at ten sites, heads on a frozen EfficientNet-Lite0 beside nets from scratch.

    python -m benchmarks.vision [--seeds 3] [--private 300] [--public 5000] [--tests 2000] [--size 128] [--rounds 10]
                                [--scratch 1] [--device cuda]

Ten sites have `private` rows each, iid or with classes drawn from Dir(.1). All rows come from the first `private` x 10
+ `public` training images, and the first `tests` test images, so that features are computed once for all seeds; with
COLLEGIUM_FEATURES they stay for the next run, too. Heads are linear, on images of `size` pixels a side. Every round is
one epoch of Adam (rate 1e-3). FedAUX has means with epsilon 1 as scores. From scratch, the net is AIMHI's, with two
convolutions, on images as they are; FedAUX then learns its features by 10 epochs of SimCLR on the public images. That
is measured on the first seed alone (`scratch` 0 leaves it out). XCLP and its baseline have labels of 10% of a site's
own rows and label the others (4096-bit sketches). A probe is logistic regression on all private rows in one place.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.report import Column, Report, print_with_options
from collegium.data.benchmarks import read_benchmark

SITES = 10
LABELED = 0.1
PARTITIONS: dict[str, Any] = {"iid": cg.Iid(), "Dir(.1)": cg.Dirichlet(0.1)}
FEATURES, SCRATCH = "EfficientNet-Lite0, frozen", "from scratch"
SMALL: dict[str, Any] = {
    "seeds": 1, "private": 6, "public": 40, "tests": 20, "size": 32, "rounds": 1, "scratch": 0,
}  # fmt: skip
Images = NDArray[np.float32]


def report(
    seeds: int = 3,
    private: int = 300,
    public: int = 5_000,
    tests: int = 2_000,
    size: int = 128,
    rounds: int = 10,
    scratch: int = 1,
    device: str = "cpu",
) -> Report:
    """Measure all methods on every seed."""
    rows: list[dict[str, Any]] = []
    for partition in PARTITIONS:
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for seed in range(seeds):
            split = _split(partition, private, public, tests, seed)
            for case, outcome in _runs(split, size, rounds, seed, scratch=bool(scratch and seed == 0), device=device):
                found.setdefault(case, []).append(outcome)
        rows += [_row(partition, *case, outcomes) for case, outcomes in found.items()]
    columns = {
        "split": Column("partition"),
        "method": Column("method"),
        "features": Column("features"),
        "accuracy": Column("accuracy", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "seeds": Column("seeds"),
        "kB sent per site": Column("sent", ".1f", 1e3),
        "seconds": Column("seconds", ".1f"),
    }
    sizes = f"{SITES} sites x {private} rows, {public:,} public, {tests:,} test images"
    title = f"CIFAR-10, {sizes}, {rounds} rounds, {device}"
    notes = (
        "Images are copies in lossy JPEG (quality 95). Accuracy is the mean over sites on the test images; for label "
        "propagation, the share of a site's own unlabeled rows that it labels right. Seconds are of a run after "
        "features are there, with the machine shared."
    )
    return Report(title, columns, rows, notes, words=3)


def _row(partition: str, method: str, features: str, outcomes: list[dict[str, float]]) -> dict[str, Any]:
    mean = {name: float(np.mean([each[name] for each in outcomes])) for name in ("accuracy", "sent", "seconds")}
    spread = float(np.std([each["accuracy"] for each in outcomes], ddof=1)) if len(outcomes) > 1 else None
    words = {"partition": partition, "method": method, "features": features}
    return {**words, **mean, "spread": spread, "seeds": len(outcomes)}


@cache
def _images(train: int, tests: int) -> tuple[Images, NDArray[Any], Images, NDArray[Any]]:
    X, y, test = read_benchmark("cifar10", data_folder())
    assert test is not None
    return _numbers(X[:train]), y[:train], _numbers(test[0][:tests]), test[1][:tests]


def _numbers(images: NDArray[np.uint8]) -> Images:
    return (images / 255).astype(np.float32)


def _split(partition: str, private: int, public: int, tests: int, seed: int) -> cg.Split:
    X, y, *test = _images(SITES * private + public, tests)
    split = cg.split(
        X, y, sites=SITES, public=public, test=0, train=SITES * private, partition=PARTITIONS[partition], seed=seed
    )
    return replace(split, test=tuple(test))


def _runs(
    split: cg.Split, size: int, rounds: int, seed: int, *, scratch: bool, device: str
) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    head = cg.VisionClassifier("efficientnet-lite0", size=size, epochs=1, device=device)
    head.embed(split.public)  # features of all images are there before any run is timed
    head.embed(split.test[0])
    for X, _ in split.sites:
        head.embed(X)
    for name, part in (("probe, pixels", _pixels), ("probe", head.embed)):
        yield (name, "" if part is _pixels else FEATURES), _probe(split, part)
    every = {
        "local": cg.Local(rounds=rounds),
        "FedCT": cg.FedCT(rounds=rounds),
        "FedCT (Informed, Familiar)": cg.FedCT(rounds=rounds, consensus=cg.Informed(), voters=cg.Familiar()),
        "FedAvg": cg.FedAvg(rounds=rounds),
        "FedDF": cg.FedDF(rounds=rounds),
        "FedAUX": cg.FedAUX(rounds=rounds, participation=1.0, scorer="mean", epsilon=1.0),
    }
    for name, method in every.items():
        yield (name, FEATURES), _run(method, split, head, seed)
    for name, propagation in (("XCLP", _xclp()), ("each site's own label propagation", cg.LocalLabelPropagation)):
        yield (name, FEATURES), _propagation(propagation, split, head, seed)
        yield (name, "pixels"), _propagation(propagation, split, None, seed)
    if scratch:
        net = cg.TorchClassifier("cnn_aimhi", epochs=1, device=device)
        simclr = cg.SimCLR(epochs=10, batch_size=256, device=device, progress=False)
        for name in ("local", "FedCT", "FedAvg"):
            yield (name, SCRATCH), _run(every[name], split, net, seed)
        method = cg.FedAUX(rounds=rounds, participation=1.0, scorer="mean", epsilon=1.0, pretrain=simclr)
        yield ("FedAUX", f"{SCRATCH}, SimCLR"), _run(method, split, net, seed)


def _run(method: cg.Algorithm, split: cg.Split, learner: Any, seed: int) -> dict[str, float]:
    sites = [cg.Site(name, *part, learner=learner) for name, part in zip(split.names, split.sites, strict=True)]
    start = time.perf_counter()
    run = _quietly(method, sites=sites, public=split.public, test=split.test, seed=seed)
    seconds = time.perf_counter() - start
    sent = run.releases.groupby("party")["bytes"].sum().mean() if len(run.releases) else 0.0
    return {"accuracy": float(run.accuracy.iloc[-1].mean()), "sent": float(sent), "seconds": seconds}


def _xclp() -> Any:
    return lambda **settings: cg.XCLP(hamming="plain", **settings)


def _propagation(method: Any, split: cg.Split, learner: Any, seed: int) -> dict[str, float]:
    """The share of a site's unlabeled rows that get their true label, over all of them."""
    rng = np.random.default_rng(seed)
    sites, truth = [], {}
    for name, (X, y) in zip(split.names, split.sites, strict=True):
        order = rng.permutation(len(y))
        known = order[: max(2, round(LABELED * len(y)))]
        rest = np.setdiff1d(order, known)
        shown = X if learner is not None else _pixels(X)
        sites.append(cg.Site(name, shown[known], y[known], unlabeled=shown[rest], learner=learner))
        truth[name] = y[rest]
    start = time.perf_counter()
    run = _quietly(method(embed=learner is not None), sites=sites, seed=seed)
    seconds = time.perf_counter() - start
    # A site that has no labels, and is alone, finds none.
    right = [np.asarray(run.labels.get(name, np.full(len(rest), -1))) == rest for name, rest in truth.items()]
    return {"accuracy": float(np.concatenate(right).mean()), "sent": np.nan, "seconds": seconds}


def _probe(split: cg.Split, features: Any) -> dict[str, float]:
    X, y = np.concatenate([part[0] for part in split.sites]), np.concatenate([part[1] for part in split.sites])
    start = time.perf_counter()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300)).fit(features(X), y)
    accuracy = model.score(features(split.test[0]), split.test[1])
    return {"accuracy": float(accuracy), "sent": np.nan, "seconds": time.perf_counter() - start}


def _pixels(X: Images) -> NDArray[np.float32]:
    return X.reshape(len(X), -1)


def _quietly(method: cg.Algorithm, **settings: Any) -> cg.Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice, and what a first run from scratch is told of its consensus
        return cg.run(method, **settings)


if __name__ == "__main__":
    print_with_options(report, __doc__)
