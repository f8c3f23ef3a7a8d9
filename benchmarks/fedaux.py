"""FedAUX on CIFAR-10 beside FedAvg, FedProx, FedDF and FedDF+P (FedAUX's Table 1), and what privacy costs (Figure 5).

    python -m benchmarks.fedaux [--seeds 3] [--even_seeds 1] [--curve_seeds 1] [--rounds 20] [--epochs 50]
                                [--sites 20] [--rows 25_000] [--tests 5_000] [--ridges 0.001,0.01,0.1]
                                [--epsilons 0.1,1,10] [--device cuda] [--jobs 2] [--keep runs/fedaux] [--measure 1]

The public set are `rows` of CIFAR-10's own training images, held out, since the paper's (STL-10) is not at hand; as
many others are private, dealt to the sites by a Dirichlet matrix at alpha .01 and 100. ResNet-8, Adam 1e-3, batches of
32, one local epoch, participation .4. SimCLR trains for `epochs` on the public images, once per seed, for all methods
that start from it. The coordinator distils for four epochs. Accuracy is that of the global model on `tests` of the test
images: its best round, as in the paper, and its last. FedAUX has the paper's lambda .1 and epsilon .1, and lambda .01
and epsilon 1, at which scores tell sites apart better; the curve is FedAUX at alpha .01 for all pairs of `ridges`
(lambda) and `epsilons`, and for lambda 1e-4 at epsilon 1,000, which is near what the authors' code does: a sum where
the paper has a mean, and next to no privacy. `seeds` are those of alpha .01. `measure` 0 makes the table of what `keep`
has.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import defaultdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.pool import Found, Task, in_parallel, machines, undisturbed
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.algorithms.fedaux import FedAUX
from collegium.data.benchmarks import read_benchmark
from collegium.learners.simclr import SimCLR

Arrays = dict[str, NDArray[Any]]
SKEWED, EVEN = 0.01, 100.0
# Accuracy in Table 1 at participation .4: alpha .01, alpha 100.
PAPER = {
    "FedAvg": (23.6, 82.2), "FedProx": (34.0, 82.3), "FedDF": (27.8, 81.4), "FedDF+P": (39.3, 88.9),
    "FedAUX": (71.2, 89.0),
}  # fmt: skip
DISTILL_EPOCHS = 4
"""20,000 rows four times: as many steps in a round as the paper's one epoch of 80,000 rows."""
RIDGE, EPSILON, DELTA = 0.1, 0.1, 1e-5
"""The paper's."""
OURS = (0.01, 1.0)
"""Lambda and epsilon with more signal than noise."""
AS_IN_THEIR_CODE = (1e-4, 1000.0)
"""Its sum of losses at lambda .1 is a mean at .1 / 6,250; its noise is next to none beside what one record moves."""
SMALL: dict[str, Any] = {
    "seeds": 1, "rounds": 1, "epochs": 1, "sites": 2, "rows": 60, "tests": 50, "ridges": "0.001", "epsilons": "10",
}  # fmt: skip


def report(
    seeds: int = 3,
    even_seeds: int = 1,
    curve_seeds: int = 1,
    rounds: int = 20,
    epochs: int = 50,
    sites: int = 20,
    rows: int = 25_000,
    tests: int = 5_000,
    ridges: str = "0.001,0.01,0.1",
    epsilons: str = "0.1,1,10",
    device: str = "cpu",
    jobs: int = 1,
    keep: str = "",
    measure: int = 1,
) -> Report:
    """Measure all methods at both skews, and the curve, each on its seeds."""
    cases = _cases([float(word) for word in ridges.split(",")], [float(word) for word in epsilons.split(",")])
    many = {name: _seeds(case, seeds, even_seeds, curve_seeds) for name, case in cases.items()}
    found: dict[str, list[Found]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        starts = [folder / f"simclr-{seed}.npz" for seed in range(max(many.values()))]
        first = {
            start.stem: Task(_pretrain, (str(start), seed, sites, rows, epochs, device))
            for seed, start in enumerate(starts)
            if measure and not start.exists()
        }
        tasks = {
            f"{name}-{seed}": Task(_run, (case, rounds, sites, rows, tests, seed, device, str(starts[seed])))
            for seed in range(max(many.values()))
            for name, case in cases.items()
            if seed < many[name]
        }
        for _ in watched(in_parallel(first, jobs), "SimCLR", len(first)):
            pass
        running = in_parallel(tasks, jobs, keep, measure=bool(measure))
        for name, run in watched(running, "CIFAR-10", len(tasks)):
            found[name.rpartition("-")[0]].append(run)
    columns = {
        "method": Column("method"),
        "alpha": Column("alpha", "g"),
        "seeds": Column("seeds"),
        "lambda": Column("ridge", "g"),
        "epsilon of the scores": Column("epsilon", "g"),
        "noise on scores": Column("noise", ".3f"),
        "best round": Column("best", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "last round": Column("last", ".4f"),
        "paper": Column("paper", ".3f"),
        "MB sent per site": Column("sent", ".2f", 1e6),
        "seconds": Column("seconds", ".0f"),
    }
    title = f"FedAUX, CIFAR-10, ResNet-8, {sites} sites, {rows:,} private rows, {rounds} rounds, {device}"
    notes = (
        f"CIFAR-10 as JPEG of quality 95, lossy. Public: {rows:,} held-out training images (the paper: STL-10), a "
        f"fifth of them negatives; SimCLR for {epochs} epochs. The paper has 100 rounds. Epsilon (delta {DELTA:g}, "
        "replacing a record) is that of the scores alone: the weights of every round are unprotected. Noise on scores "
        "is its standard deviation before the sigmoid, at most."
    )
    rows_found = [_row(case, found[name]) for name, case in cases.items() if found[name]]
    return Report(title, columns, rows_found, notes, machine=machines(run for runs in found.values() for run in runs))


def _cases(ridges: list[float], epsilons: list[float]) -> dict[str, dict[str, Any]]:
    """What is measured, by name: the methods at both skews, then the curve."""
    cases = {}
    for place, alpha in enumerate((SKEWED, EVEN)):
        for method, accuracy in PAPER.items():
            case: dict[str, Any] = {"method": method, "alpha": alpha, "paper": accuracy[place] / 100}
            if method == "FedAUX":
                case |= {"ridge": RIDGE, "epsilon": EPSILON}
            cases[f"{method}-{alpha:g}"] = case
        ours: dict[str, Any] = {"method": "FedAUX", "alpha": alpha, "ridge": OURS[0], "epsilon": OURS[1]}
        cases[_curve_name(alpha, *OURS)] = ours
    for ridge, epsilon in (*product(ridges, epsilons), AS_IN_THEIR_CODE):
        if (ridge, epsilon) not in ((RIDGE, EPSILON), OURS):  # which are among the methods
            case = {"method": "FedAUX", "alpha": SKEWED, "ridge": ridge, "epsilon": epsilon, "curve": True}
            cases[_curve_name(SKEWED, ridge, epsilon)] = case
    return cases


def _curve_name(alpha: float, ridge: float, epsilon: float) -> str:
    return f"FedAUX-{alpha:g}-{ridge:g}-{epsilon:g}"


def _seeds(case: dict[str, Any], skewed: int, even: int, curve: int) -> int:
    return curve if case.get("curve") else skewed if case["alpha"] == SKEWED else even


def _algorithm(case: dict[str, Any], rounds: int, start: Arrays) -> cg.Algorithm:
    settings: dict[str, Any] = {"rounds": rounds, "participation": 0.4}
    distilling = settings | {"distill_epochs": DISTILL_EPOCHS}
    match case["method"]:
        case "FedAvg":
            return cg.FedAvg(**settings)
        case "FedProx":
            return cg.FedProx(**settings, mu=0.1)
        case "FedDF":
            return cg.FedDF(**distilling)
        case "FedDF+P":
            return cg.FedDF(**distilling, start=start)
    return FedAUX(**distilling, pretrain=start, ridge=case["ridge"], epsilon=case["epsilon"], delta=DELTA)


def _split(alpha: float, sites: int, rows: int, seed: int) -> tuple[cg.Split, tuple[Any, Any]]:
    X, y, test = _cifar10()
    X, y = X[: 2 * rows], y[: 2 * rows]  # the images are in random order
    # The public rows are drawn before the private ones are dealt out: they are the same at every alpha.
    split = cg.split(X, y, sites, public=rows, test=0, train=rows, partition=cg.BalancedDirichlet(alpha), seed=seed)
    return split, test


@cache
def _cifar10() -> Any:
    return read_benchmark("cifar10", data_folder())


def _pixels(images: Any) -> Any:
    return (images / 255.0).astype(np.float32)


def _net(device: str) -> Any:
    return cg.TorchClassifier("resnet8", lr=1e-3, batch_size=32, device=device)


def _pretrain(path: str, seed: int, sites: int, rows: int, epochs: int, device: str) -> Found:
    """Write a file with features that SimCLR learned from this seed's public images."""
    split, _ = _split(EVEN, sites, rows, seed)
    weights = SimCLR(epochs=epochs, device=device, seed=seed).pretrain(_net(device), _pixels(split.public))
    np.savez(path, **weights)  # type: ignore[arg-type]
    return {}


def _run(
    case: dict[str, Any], rounds: int, sites: int, rows: int, tests: int, seed: int, device: str, start: str
) -> Found:
    split, (X_test, y_test) = _split(case["alpha"], sites, rows, seed)
    with np.load(start) as archive:
        h_0 = {name: archive[name] for name in archive.files}
    parts = zip(split.names, split.sites, strict=True)
    private = [cg.Site(name, _pixels(X), y, learner=_net(device)) for name, (X, y) in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        run = undisturbed(
            cg.run(
                _algorithm(case, rounds, h_0),
                sites=private,
                public=_pixels(split.public),
                test=(_pixels(X_test[:tests]), y_test[:tests]),
                test_sites=False,
                classes=np.arange(10),
                seed=seed,
            )
        )
    metrics = run.metrics.groupby("metric")["value"]
    accuracy = metrics.get_group("global_accuracy")
    sent = run.costs[run.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum()
    return {
        "best": float(accuracy.max()),
        "last": float(accuracy.iloc[-1]),
        "rounds": [float(value) for value in accuracy],
        "noise": float(metrics.get_group("score_noise").mean()) if case["method"] == "FedAUX" else None,
        "sent": float(sent.mean()),
        "seconds": run.about["seconds"],
    }


def _row(case: dict[str, Any], runs: list[Found]) -> dict[str, Any]:
    best = np.array([run["best"] for run in runs])
    means = {key: float(np.mean([run[key] for run in runs])) for key in ("best", "last", "sent", "seconds")}
    noise = [run["noise"] for run in runs if run["noise"] is not None]
    spread = float(np.abs(best - best.mean()).max()) if len(runs) > 1 else None
    return case | means | {"seeds": len(runs), "spread": spread, "noise": float(np.mean(noise)) if noise else None}


if __name__ == "__main__":
    print_with_options(report, __doc__)
