"""Is a public set that sites make together as good as a real one?

    python -m benchmarks.together [--seeds 5] [--jobs 2] [--minutes 60] [--out build/together.jsonl] [--sets adult]
                                  [--uniform 0] [--times 3] [--familiar 1]
    python -m benchmarks together --measure 0 --write       the table of what is in the file
    python -m benchmarks.together --audits 3                attacks on all of it, with noise on labels, too
    python -m benchmarks.together --joint 1                 how many columns of Covertype must be right together

Twenty sites with decision trees and two rounds of FedCT on a public set that is real, made together (epsilon 1 and .3
at delta 1e-5), or uniform (any value of the declared ranges, which costs nothing). As many rows each. "site" is the
mean test accuracy of the sites' own models after they have learned from the consensus, "student" that of a random
forest that has seen only public rows and their consensus. Ranges and categories are declared, as a code book would: by
the whole data set. The 44 indicators of Covertype are the two columns that they stand for, wilderness area and soil.

``--uniform 0`` leaves uniform rows out: no method changes them, and they take a quarter of the time. ``--times 3``
makes three times as many rows as there are real ones: made-up rows cost nothing but their labels. ``--familiar 1`` has
sites vote on what looks familiar, as is advised where classes differ, and measures Dir(0.1) alone.

Every cell is measured once and kept in a file of JSON lines: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.data.sources import load_source
from collegium.learners.prepare import with_preparation
from collegium.runs.making import making_of
from collegium.together.columns import read_columns
from collegium.together.making import like, stand_ins

if TYPE_CHECKING:
    from benchmarks.report import Report

# Rows per site, of the public set and for testing.
SIZES = {
    "adult": (500, 8000, 8000),
    "covertype": (1000, 8000, 8000),
    "mushroom": (200, 2000, 1500),
    "wine_type": (120, 1500, 1000),
}
SITES, EPSILONS, KEEP = 20, (1.0, 0.3), "build/together.jsonl"
PARTITIONS: dict[str, Any] = {"iid": cg.Iid(), "Dir(0.1)": cg.BalancedDirichlet(0.1)}
# Where classes are so skewed, a plain majority names one class only, on whatever rows.
RULES: dict[str, cg.Consensus] = {"iid": cg.Majority(), "Dir(0.1)": cg.Informed()}
DROPPED = {"adult": ["fnlwgt"]}  # a weight of the census, and no property of anybody
JOINT = [
    ["Elevation", "soil"],
    ["wilderness"],
    ["Horizontal_Distance_To_Roadways", "Horizontal_Distance_To_Fire_Points"],
    ["Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"],
]
SMALL = {"seeds": 1, "jobs": 1, "minutes": 5, "out": "", "sets": "breast_cancer"}
Cell = tuple[int, str, str]


def table_of(name: str) -> tuple[pd.DataFrame, Any]:
    """All rows of a data set, with its own test rows, as a table."""
    folder = os.environ.get("COLLEGIUM_DATA")
    data = load_source(name, folder=None if folder is None else Path(folder))
    X = pd.DataFrame(data.X.toarray() if hasattr(data.X, "toarray") else data.X)
    y = data.y
    if data.test is not None:
        X, y = pd.concat([X, pd.DataFrame(data.test[0])], ignore_index=True), np.concatenate([y, data.test[1]])
    X = X.drop(columns=DROPPED.get(name, [])).rename(columns=str)
    return (from_indicators(X) if name == "covertype" else X), y


def from_indicators(X: pd.DataFrame) -> pd.DataFrame:
    """Covertype's 10 measurements, and its wilderness area (of 4) and soil (of 40) as one column each."""
    named = {"wilderness": X.iloc[:, 10:14], "soil": X.iloc[:, 14:54]}
    words = {name: part.to_numpy().argmax(axis=1).astype(str).astype(object) for name, part in named.items()}
    return X.iloc[:, :10].assign(**words)


def declared(X: pd.DataFrame) -> dict[str, Any]:
    """What a code book would say of every column."""
    said: dict[str, Any] = {}
    for name in X:
        known = X[name].dropna()
        if not pd.api.types.is_numeric_dtype(known) or known.nunique() <= 2:
            said[name] = {"categories": sorted(known.unique().tolist()), "missing": bool(X[name].isna().any())}
        else:
            said[name] = (known.min().item(), known.max().item())
    return said


def dealt(cell: Cell) -> tuple[Any, list[cg.Site], pd.DataFrame, Any]:
    """The parts of a data set, its sites, and all of its rows and labels."""
    seed, name, partition = cell
    X, y = table_of(name)
    per_site, public, test = SIZES.get(name, (18, 80, 80))
    parts = cg.split(
        X, y, SITES, public=public, test=test, train=SITES * per_site, partition=PARTITIONS[partition], seed=seed
    )
    learner = with_preparation(DecisionTreeClassifier(max_depth=8, min_samples_leaf=5, random_state=0), X)
    return parts, [cg.Site(n, *own, learner=learner) for n, own in zip(parts.names, parts.sites, strict=True)], X, y


def scored(
    cell: Cell, parts: Any, sites: list[cg.Site], X: pd.DataFrame, classes: Any, rows: pd.DataFrame | cg.PublicSet,
    voters: cg.Voters | None = None,
) -> dict[str, float]:  # fmt: skip
    """What sites and a student learn with these public rows; `X` has all that may be in any row."""
    forest = with_preparation(RandomForestClassifier(100, min_samples_leaf=2, random_state=0), X)
    run = cg.run(
        cg.FedCT(2, consensus=RULES[cell[2]], voters=voters), sites=sites, public=rows, test=parts.test,
        classes=classes, seed=cell[0], global_learner=forest, progress=False, alone=False,
    )  # fmt: skip
    last = run.metrics.groupby("metric")["value"].last()
    accuracy = {"alone": run.accuracy.iloc[0].mean(), "site": run.accuracy.iloc[-1].mean()}
    accuracy["student"] = last.get("global_accuracy", np.nan)
    return {key: float(value) for key, value in accuracy.items()}


def measure(cell: Cell, uniform: int = 1, times: int = 1, familiar: int = 0) -> list[dict[str, Any]]:
    """All public sets in one cell; so many made-up rows for every real one."""
    warnings.simplefilter("ignore")
    seed, name, partition = cell
    parts, sites, X, y = dealt(cell)
    columns, public = declared(X), len(parts.public)
    voters = cg.Familiar() if familiar else None
    found = []
    beside: list[tuple[str, float | None]] = [("real", None), ("uniform", None)] if uniform else [("real", None)]
    for kind, epsilon in [*beside, *(("made", each) for each in EPSILONS)]:
        start, cost = time.perf_counter(), dict[str, Any]()
        rows: Any = parts.public
        if kind == "uniform":
            known = read_columns(columns, X.iloc[:0])
            rows = like(stand_ins(known, public, np.random.default_rng(seed)), X.iloc[:0])
        elif kind == "made" and epsilon is not None:
            made = cg.public_together(
                sites, epsilon=epsilon, rows=times * public, columns=columns, seed=seed, progress=False
            )
            assert made.run is not None
            assert made.claim is not None
            sent = int(made.run.costs.groupby("party")["bytes_up"].sum()[parts.names].max())
            cost = {"seconds": time.perf_counter() - start, "bytes": sent, "claimed": made.claim.epsilon}
            rows = made
        cell_of = {"seed": seed, "data": name, "partition": partition, "public": kind, "epsilon": epsilon}
        found.append(cell_of | scored(cell, parts, sites, X, np.unique(y), rows, voters) | cost)
    return found


def jointly(seed: int) -> Iterator[dict[str, Any]]:
    """Covertype, iid: real public rows of which some columns stay together and each other one is shuffled.

    No noise, and no model: how many columns must be right together before students come near those of real rows.
    """
    cell = seed, "covertype", "iid"
    parts, sites, X, y = dealt(cell)
    rng, kept = np.random.default_rng(seed), list[str]()
    for more in (*JOINT, [name for name in X if name not in {*(each for some in JOINT for each in some)}]):
        kept += more
        own = {name: parts.public[name] for name in X}
        rows = pd.DataFrame({k: v if k in kept else rng.permutation(v.to_numpy()) for k, v in own.items()})
        yield {"together": len(kept), "added": more} | scored(
            cell, parts, sites, X, np.unique(y), rows.astype(parts.public.dtypes.to_dict())
        )


def audited(seed: int, name: str) -> dict[str, Any]:
    """An attack on a site whose set is made together (epsilon 1) and whose labels have noise, all in one game."""
    _, sites, X, y = dealt((seed, name, "iid"))
    making = making_of(
        sites, columns=declared(X), dropouts=0.2, rows=200, epsilon=1.0, delta=1e-5, relation="add_remove", model="tree"
    )
    labels = cg.FedCT(1, mechanism=cg.RandomizedResponse(0.02))
    found = cg.audit(labels, sites, making, seed=seed, classes=np.unique(y))
    claimed = float("nan") if found.claim is None else found.claim.epsilon
    told = {"data": name, "seed": seed, "canaries": found.canaries, "auc": found.auc}
    return told | {"at least": found.epsilon_lower, "claimed": claimed, "verdict": found.verdict}


def measured(
    seeds: int, jobs: int, minutes: int, out: str, sets: str, uniform: int = 1, times: int = 1, familiar: int = 0
) -> list[dict[str, Any]]:
    """What is in the file, and all cells that are not and that there is time for."""
    found, end = kept(out), time.monotonic() + 60 * minutes
    done = {(row["seed"], row["data"], row["partition"]) for row in found}
    dealt_as = ["Dir(0.1)"] if familiar else PARTITIONS
    todo = [cell for cell in product(range(seeds), sets.split(",") if sets else SIZES, dealt_as) if cell not in done]
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(measure, cell, uniform, times, familiar) for cell in todo]
        for future in as_completed(waiting):
            if future.cancelled():
                continue
            new = future.result()
            found += new
            if out:
                Path(out).parent.mkdir(parents=True, exist_ok=True)
                with Path(out).open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in new)
            if time.monotonic() > end:
                for each in waiting:
                    each.cancel()
    return found


def kept(out: str) -> list[dict[str, Any]]:
    """What was measured before."""
    file = Path(out or "/nonexistent")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def summed_up(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per data set, partition and epsilon: accuracies of students and sites, and how far behind a real set."""
    cells = defaultdict(list)
    for row in found:
        cells[row["data"], row["partition"], row["public"], row["epsilon"]].append(row)
    rows = []
    for (data, partition, kind, epsilon), own in sorted(cells.items(), key=str):
        if kind != "made":
            continue
        real, uniform = cells[data, partition, "real", None], cells[data, partition, "uniform", None]
        told = {"data": data, "partition": partition, "epsilon": epsilon, "seeds": len(own)}
        told |= {"alone": _mean(own, "alone")}
        for key in ("student", "site"):
            told |= {
                f"{key} real": _mean(real, key),
                f"{key} made": _mean(own, key),
                f"{key} uniform": _mean(uniform, key),
            }
            told[f"{key} behind"] = 100 * (_mean(real, key) - _mean(own, key))
        rows.append(told | {"kB": _mean(own, "bytes") / 1000, "seconds": _mean(own, "seconds")})
    return rows


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows])) if rows else float("nan")


def report(
    seeds: int = 5, jobs: int = 2, minutes: int = 600, out: str = KEEP, sets: str = "", measure: int = 1
) -> Report:
    """The table."""
    from benchmarks.report import Column, Report  # its tables need a package that a machine for computing may lack

    rows = summed_up(measured(seeds, jobs, minutes, out, sets) if measure else kept(out))
    columns = {name: Column(name) for name in ("data", "partition", "epsilon", "seeds")} | {
        "alone": Column("alone", ".3f")
    }
    for key in ("student", "site"):
        columns |= {f"{key} {kind}": Column(f"{key} {kind}", ".3f") for kind in ("real", "made", "uniform")}
        columns[f"{key} behind (points)"] = Column(f"{key} behind", ".2f")
    columns |= {"kB per site": Column("kB", ".0f"), "seconds": Column("seconds", ".1f")}
    notes = f"{SITES} sites, FedCT with two rounds (at Dir(0.1) with the rule Informed), decision trees; students are "
    notes += "random forests."
    return Report("A public set made together", columns, rows, notes, words=2)


def main() -> None:
    """Measure, and print a line for each row of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = {"seeds": 5, "jobs": 2, "minutes": 600, "out": KEEP, "sets": "", "uniform": 1, "times": 1}
    options |= {"familiar": 0}
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--audits", type=int, default=0)
    parser.add_argument("--joint", type=int, default=0)
    given = vars(parser.parse_args())
    for seed in range(joint := given.pop("joint")):
        warnings.simplefilter("ignore")
        for row in jointly(seed):
            print(json.dumps({"seed": seed} | row), flush=True)
    if joint:
        return
    if audits := given.pop("audits"):
        warnings.simplefilter("ignore")
        for seed, name in product(range(audits), given["sets"].split(",") if given["sets"] else SIZES):
            print(json.dumps(audited(seed, name)), flush=True)
        return
    for row in summed_up(measured(**given)):
        print(" ".join(f"{key}={value:.3f}" if isinstance(value, float) else str(value) for key, value in row.items()))


if __name__ == "__main__":
    main()
