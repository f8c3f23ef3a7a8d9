"""Accuracy against epsilon for DP-FedCT, by route: noise on labels, PrivateVoting, DP-SGD.

    python -m benchmarks.privacy [--seeds 3] [--image_seeds 1] [--data adult|fashion_mnist] [--device cpu] [--jobs 2]
                                 [--keep FOLDER] [--picture FILE]

Five sites, 10,000 public rows, three communications, (epsilon, 1e-5)-differential privacy per record for all that a
site ever releases. Adult: 31,073 private rows and 7,769 test rows, as in Table 3. Fashion-MNIST: 40,000 private rows
and the data set's own test rows. The noise on labels is randomized response, every label changing, calibrated for three
releases; the site's own learner is not private there, and only what it releases is. `the paper's own parameters` are
independent bits flipped as for epsilon = 0.1 and a sensitivity of 3,000 bits: coins. What that is worth if every label
may change stands beside it. Accuracy is the mean over sites; consensus quality is the share of public labels that are
right.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import adult, data_folder, fashion_mnist
from benchmarks.pool import Found, Task, in_parallel
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.learners.prepare import flatten
from collegium.privacy.calibration import calibrated

SITES, PUBLIC, ROUNDS, DELTA = 5, 10_000, 3, 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
NO_NOISE, LABELS, VOTING, SGD, PAPER = (
    "not private",
    "noise on labels",
    "PrivateVoting",
    "DP-SGD",
    "the paper's own parameters",
)
SMALL: dict[str, Any] = {"seeds": 1, "data": "adult", "rows": 2_000}


def report(
    seeds: int = 3,
    image_seeds: int = 1,
    data: str = "",
    device: str = "cpu",
    jobs: int = 0,
    keep: str = "",
    picture: str = "",
    rows: int = 0,
) -> Report:
    """Measure every route on every seed."""
    names = [data] if data else ["adult", "fashion_mnist"]
    routes = [(NO_NOISE, None), (PAPER, None), *((route, e) for route in (LABELS, VOTING, SGD) for e in EPSILONS)]
    tasks = {
        f"{name}|{route}|{epsilon}|{seed}".replace(" ", "_"): Task(_run, (name, route, epsilon, seed, device, rows))
        for name in names
        for route, epsilon in routes
        for seed in range(seeds if name == "adult" else image_seeds)
    }
    found: dict[tuple[str, str, str], list[Found]] = defaultdict(list)
    for key, run in watched(in_parallel(tasks, jobs, keep), "privacy", len(tasks)):
        name, route, epsilon, _ = key.replace("_", " ").replace("fashion mnist", "fashion_mnist").split("|")
        found[name, route, epsilon].append(run)
    table = [_row(name, route, e, found[name, route, str(e)]) for name in names for route, e in routes]
    bare = {row["data"]: row["accuracy"] for row in table if row["route"] == NO_NOISE}
    table = [row | {"gap": 100 * (bare[row["data"]] - row["accuracy"])} for row in table]
    if picture:
        _draw(table, Path(picture))
    columns = {
        "data": Column("data"),
        "route": Column("route"),
        "epsilon": Column("epsilon", ".3g"),
        "accuracy": Column("accuracy", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "points below not private": Column("gap", ".1f"),
        "consensus quality": Column("quality", ".4f"),
        "model of the consensus": Column("global_accuracy", ".4f"),
        "seconds": Column("seconds", ".0f"),
    }
    notes = (
        "Learners: Adult - forests of 100 trees of depth 10; PrivateVoting of trees of depth 4 with such a forest as "
        "student; DP-SGD of a linear model, then such forests. Fashion-MNIST - logistic regression; PrivateVoting and "
        "DP-SGD of it. Epsilon is that of all releases of a site together, per record, at delta 1e-5, as `run.privacy` "
        "says; seeds draw rows and sites anew. Measured on "
        + " and ".join(sorted({run["machine"] for runs in found.values() for run in runs}))
        + "."
    )
    return Report(
        f"DP-FedCT, {SITES} sites, |U| = {PUBLIC:,}, {seeds} seeds (Fashion-MNIST: {image_seeds})",
        columns,
        table,
        notes,
        words=2,
    )


def _run(name: str, route: str, epsilon: float | None, seed: int, device: str, rows: int) -> Found:
    warnings.simplefilter("ignore")
    split = _adult(seed, rows) if name == "adult" else _fashion(seed, rows)
    plain, private, net = _learners(name, split, epsilon or 1.0, device)
    learner, mechanism = {NO_NOISE: plain, LABELS: plain, PAPER: plain, VOTING: private, SGD: net}[route], None
    classes = 2 if name == "adult" else 10
    if route == LABELS and epsilon is not None:
        mechanism = calibrated(
            "randomized_response",
            epsilon=epsilon,
            delta=DELTA,
            rounds=ROUNDS,
            public_size=len(split.public),
            n_classes=classes,
        )
    if route == PAPER:
        mechanism = cg.XorMechanism(theta=0.1 / 3000)
    sites = [cg.Site(site, X, y, learner=learner) for site, (X, y) in zip(split.names, split.sites, strict=True)]
    run = cg.run(
        cg.FedCT(rounds=ROUNDS, mechanism=mechanism),
        sites=sites,
        public=split.public,
        public_truth=split.public_truth,
        test=split.test,
        global_learner=plain,
        seed=seed,
        progress=False,
    )
    metrics = run.metrics.drop_duplicates("metric", keep="last").set_index("metric")["value"]
    return {
        "accuracy": float(run.summary().loc["mean", "accuracy"]),
        "quality": float(metrics["consensus_quality"]),
        "global_accuracy": float(metrics["global_accuracy"]),
        "epsilon": float(run.privacy["epsilon"].max()),
        "seconds": float(run.about["seconds"]),
    }


def _learners(name: str, split: Any, epsilon: float, device: str) -> tuple[Any, Any, Any]:
    """A learner that is not private, one whose teachers vote, and a net with DP-SGD."""
    if name == "adult":
        forest = RandomForestClassifier(100, max_depth=10)
        voting = cg.PrivateVoting(DecisionTreeClassifier(max_depth=4), epsilon=epsilon, delta=DELTA, student=forest)
        words = [column for column in split.public if split.public[column].dtype.kind != "i" or column in _CODED]
        numbers = [column for column in split.public if column not in words]
        prepare = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
            (make_pipeline(FunctionTransformer(np.log1p, validate=False), StandardScaler()), numbers),
        )
        net = cg.PrivateTorch(
            "linear", epsilon, DELTA, prepare=prepare, student=forest, epochs=10, batch_size=512, lr=0.02
        )
        return forest, voting, net
    plain = make_pipeline(FunctionTransformer(flatten), LogisticRegression(C=0.01, max_iter=100))
    voting = cg.PrivateVoting(plain, epsilon=epsilon, delta=DELTA)
    net = cg.PrivateTorch("linear", epsilon, DELTA, student=plain, epochs=20, batch_size=512, lr=0.01, device=device)
    return plain, voting, net


_CODED = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")


def _adult(seed: int, rows: int) -> Any:
    X, y = adult(data_folder())
    return cg.split(X, y, sites=SITES, public=rows or PUBLIC, train=rows or 31_073, test=7_769, seed=seed)


def _fashion(seed: int, rows: int) -> Any:
    (X, y), (X_test, y_test) = fashion_mnist(data_folder())
    scaled, scaled_test = ((images / 255.0).astype(np.float32) for images in (X, X_test))
    split = cg.split(scaled, y, sites=SITES, public=rows or PUBLIC, train=rows or 40_000, test=0, seed=seed)
    return replace(split, test=(scaled_test, y_test))


def _row(name: str, route: str, epsilon: float | None, runs: list[Found]) -> Found:
    values = {key: float(np.mean([run[key] for run in runs])) for key in runs[0] if key != "machine"}
    accuracies = [run["accuracy"] for run in runs]
    shown = None if route == NO_NOISE else values["epsilon"]
    return values | {
        "data": name, "route": route, "asked": epsilon, "epsilon": shown,
        "spread": float(np.std(accuracies)) if len(runs) > 1 else None,
    }  # fmt: skip


def _draw(table: list[Found], file: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in table))
    figure, panels = plt.subplots(1, len(names), figsize=(5.5 * len(names), 4), squeeze=False, layout="constrained")
    for name, panel in zip(names, panels[0], strict=True):
        mine = [row for row in table if row["data"] == name]
        for route, marker in ((VOTING, "o"), (SGD, "s"), (LABELS, "^")):
            curve = [(row["asked"], row["global_accuracy"]) for row in mine if row["route"] == route]
            panel.plot(*zip(*curve, strict=True), marker=marker, label=route)
        bare, coins = (next(row for row in mine if row["route"] == route) for route in (NO_NOISE, PAPER))
        panel.axhline(bare["global_accuracy"], color="black", lw=1, label=NO_NOISE)
        panel.axhline(coins["global_accuracy"], color="grey", ls=":", label=f"{PAPER}: coins")
        panel.set(
            xscale="log",
            xlabel="epsilon per record, all rounds",
            ylabel="accuracy of what the consensus teaches",
            title=name,
        )
        panel.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    print_with_options(report, __doc__)
