"""Which rule to take: every rule on real data sets, from equal sites to skewed, useless and hostile ones.

    python -m benchmarks.consensus [--seeds 5] [--rows 100] [--public 600] [--keep build/consensus.jsonl] [--measure 1]

Ten sites with `rows` rows each, `public` public rows, at most 1,500 test rows. Partitions are iid and Dirichlet
(balanced) with alpha .5, .1 and .01. Situations: "alike" (decision trees), "mixed" (five kinds of learners), "one
useless" (mixed, and one site in five always says its larger class), "20% flip" (trees; two sites have turned their
labels round); and with 30% of the sites, where the partition is iid or .5: "30% flip", "30% one class" (they always
vote for one class) and "30% copy" (they have the rows of another site).

FedCT takes two rounds: sites train alone, and then with the consensus. A site is worse than alone if it loses more than
half a point of test accuracy; only honest sites count. Each cell is measured once and kept in a file of JSON lines, so
that a run that was stopped goes on where it was; `--measure 0` shows what is there.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.data.sources import load_source
from collegium.study.preparing import scaled

SITES, TEST, MARGIN = 10, 1_500, 0.005
DATA = ("breast_cancer", "digits", "adult", "cod_rna", "covertype", "wine_type", "mushroom", "fashion_mnist")
PARTITIONS: dict[str, Any] = {"iid": cg.Iid(), **{f"Dir({a})": cg.BalancedDirichlet(a) for a in (0.5, 0.1, 0.01)}}
MILD = ("iid", "Dir(0.5)")
HOSTILE = ("30% flip", "30% one class", "30% copy")
SITUATIONS = ("alike", "mixed", "one useless", "20% flip", *HOSTILE)
RULES: dict[str, cg.FedCT] = {
    "majority": cg.FedCT(2),
    "qualified majority": cg.FedCT(2, consensus=cg.QualifiedMajority(0.9)),
    "by agreement": cg.FedCT(2, consensus=cg.WeightedMajority("agreement")),
    "Dawid-Skene": cg.FedCT(2, consensus=cg.DawidSkene()),
    "informed": cg.FedCT(2, consensus=cg.Informed()),
    "familiar, informed": cg.FedCT(2, consensus=cg.Informed(), voters=cg.Familiar()),
    "majority, guarded": cg.FedCT(2, guard=True),
    "informed, guarded": cg.FedCT(2, consensus=cg.Informed(), guard=True),
    "familiar, informed, guarded": cg.FedCT(2, consensus=cg.Informed(), voters=cg.Familiar(), guard=True),
}
SMALL = {"seeds": 1, "rows": 30, "public": 60, "keep": "", "sets": "breast_cancer"}
Cell = tuple[int, str, str, str]
KEEP = "build/consensus.jsonl"


class OneClass(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Says the last class that it has seen, whatever it is asked, and in its own tests too."""

    def fit(self, X: Any, y: Any) -> OneClass:
        """Learn nothing."""
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        """Always the same."""
        return np.full(len(X), self.classes_[-1])


def learners(situation: str) -> list[Any]:
    """What the sites bring, cycled over them."""
    tree = DecisionTreeClassifier(max_depth=8, random_state=0)
    mixed: list[Any] = [
        tree,
        RandomForestClassifier(30, random_state=0),
        LogisticRegression(max_iter=300),
        GaussianNB(),
    ]
    if situation == "mixed":
        return [*mixed, KNeighborsClassifier(5)]
    return [*mixed, DummyClassifier()] if situation == "one useless" else [tree]


@cache
def rows_of(name: str, seed: int, rows: int, public: int, partition: str) -> Any:
    """A data set, divided."""
    data = load_source(name, folder=None if name in ("breast_cancer", "digits") else data_folder())
    X = numbers(scaled(data.X))
    # Small sets keep their proportions.
    share = min(1.0, len(data.y) / (SITES * rows + public + 300))
    return cg.split(
        X,
        data.y,
        SITES,
        public=int(share * public),
        train=int(share * SITES * rows),
        test=min(TEST, len(data.y) - int(share * public) - int(share * SITES * rows)),
        partition=PARTITIONS[partition],
        seed=seed,
    )


def numbers(X: Any) -> Any:
    """A table as an array of numbers: frequent words as columns, sparse rows filled up, every third pixel."""
    if hasattr(X, "columns"):
        words = X.select_dtypes(exclude="number").astype(str)
        for column in words:
            words[column] = words[column].where(words[column].isin(words[column].value_counts().index[:12]), "other")
        columns = [pd.get_dummies(words)] if len(words.columns) else []
        return pd.concat([X.select_dtypes("number").fillna(0), *columns], axis=1).to_numpy(np.float32)
    dense = X.toarray() if hasattr(X, "toarray") else X
    return dense.reshape(len(dense), -1)[:, ::3] if dense.ndim > 2 else dense


def sites_of(split: Any, situation: str) -> tuple[list[cg.Site], set[str]]:
    """The sites, and the names of the honest ones."""
    classes = np.unique(np.concatenate([y for _, y in split.sites]))
    hostile = {"20% flip": 2, "30% flip": 3, "30% one class": 3, "30% copy": 3}.get(situation, 0)
    kinds, sites = learners(situation), []
    for number, (name, (X, y)) in enumerate(zip(split.names, split.sites, strict=True)):
        learner = kinds[number % len(kinds)]
        if number < hostile and situation.endswith("flip"):
            y = classes[len(classes) - 1 - np.searchsorted(classes, y)]
        elif number < hostile and situation == "30% one class":
            learner = OneClass()
        elif number < hostile:
            X, y = split.sites[hostile]
        sites.append(cg.Site(name, X, y, learner=make_pipeline(StandardScaler(), learner)))
    lying = set() if situation == "30% copy" else set(split.names[:hostile])
    return sites, set(split.names) - lying


def cells(seeds: int, sets: str) -> list[Cell]:
    """All cells; a run that is stopped has seen every situation with the first seeds."""
    chosen = sets.split(",") if sets else DATA
    every = product(range(seeds), chosen, PARTITIONS, SITUATIONS)
    return [cell for cell in every if cell[3] not in HOSTILE or cell[2] in MILD]


def outcomes(cell: Cell, rules: list[str], rows: int, public: int) -> Iterator[dict[str, Any]]:
    """What these rules do in one cell."""
    seed, name, partition, situation = cell
    split = rows_of(name, seed, rows, public, partition)
    sites, honest = sites_of(split, situation)
    shared = {"public": split.public, "public_truth": split.public_truth, "test": split.test, "seed": seed}
    options = {"sites": sites, "progress": False, "classes": np.unique(split.public_truth), **shared}
    X, y = split.test
    alone = {party: model.predict(X) for party, model in cg.run(cg.Local(), **options).models.items()}
    for rule in rules:
        run = cg.run(RULES[rule], **options)
        answers = {party: model.predict(X) for party, model in run.models.items() if party in honest}
        lost = [np.mean(alone[party] == y) - np.mean(said == y) > MARGIN for party, said in answers.items()]
        last = run.metrics.groupby("metric")["value"].last()
        yield {
            "seed": seed,
            "data": name,
            "partition": partition,
            "situation": situation,
            "rule": rule,
            "alone": float(np.mean([np.mean(alone[party] == y) for party in answers])),
            "alone_balanced": float(np.mean([balanced_accuracy_score(y, alone[party]) for party in answers])),
            "accuracy": float(np.mean([np.mean(said == y) for said in answers.values()])),
            "balanced": float(np.mean([balanced_accuracy_score(y, said) for said in answers.values()])),
            "student": float(last.get("global_accuracy", np.nan)),
            "quality": float(last.get("consensus_quality", np.nan)),
            "worse": int(np.sum(lost)),
            "sites": len(answers),
        }


def measured(seeds: int, rows: int, public: int, keep: str, sets: str) -> list[dict[str, Any]]:
    """One row per cell and rule; those that are in the file are not measured again."""
    warnings.simplefilter("ignore")
    found = kept(keep)
    done = {(row["seed"], row["data"], row["partition"], row["situation"], row["rule"]) for row in found}
    missing = {cell: [rule for rule in RULES if (*cell, rule) not in done] for cell in cells(seeds, sets)}
    todo = [(cell, rules) for cell, rules in missing.items() if rules]
    for cell, rules in watched(todo, "consensus", len(todo)):
        new = list(outcomes(cell, rules, rows, public))
        found += new
        if keep:
            Path(keep).parent.mkdir(parents=True, exist_ok=True)
            with Path(keep).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in new)
    return found


def kept(keep: str) -> list[dict[str, Any]]:
    """What was measured before."""
    file = Path(keep or "/nonexistent")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def summed_up(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per partition and situation, and first one for all: each rule's accuracy, and sites worse than alone."""
    groups = defaultdict(list)
    for row in found:
        groups["all", "all"].append(row)
        groups[row["partition"], row["situation"]].append(row)
    order = {name: place for place, name in enumerate((*PARTITIONS, *SITUATIONS))}
    rows = []
    for key in sorted(groups, key=lambda key: [order.get(part, -1) for part in key]):
        own = groups[key]
        told: dict[str, Any] = dict(zip(("partition", "situation"), key, strict=True))
        told["alone"] = float(np.mean([row["alone"] for row in own]))
        rows.append(told | {rule: _cell([row for row in own if row["rule"] == rule]) for rule in RULES})
    return rows


def _cell(own: list[dict[str, Any]]) -> str | None:
    if not own:
        return None
    worse = sum(row["worse"] for row in own) / sum(row["sites"] for row in own)
    return f"{np.mean([row['accuracy'] for row in own]):.3f} / {worse:.0%}"


def whole_cells(found: list[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """The cells in which all rules were measured, by rule: others would compare rules on different data."""
    cells: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in found:
        cells[row["data"], row["partition"], row["situation"], row["seed"]][row["rule"]] = row
    return [cell for cell in cells.values() if len(cell) == len(RULES)]


def compared(whole: list[dict[str, dict[str, Any]]]) -> str:
    """How far each rule is behind the best of its cell."""
    words = []
    for rule in RULES:
        behind = [max(row["accuracy"] for row in cell.values()) - cell[rule]["accuracy"] for cell in whole]
        close = np.mean([gap <= MARGIN for gap in behind])
        balanced = np.mean([cell[rule]["balanced"] for cell in whole])
        words.append(
            f"{rule} {np.mean(behind):.3f} ({close:.0%} of cells within half a point; balanced {balanced:.3f})"
        )
    return f" Behind the best rule of each cell, on average: {'; '.join(words)}."


def report(
    seeds: int = 5, rows: int = 100, public: int = 600, keep: str = KEEP, sets: str = "", measure: int = 1
) -> Report:
    """The table; `sets` names data sets, separated by commas (default: all)."""
    found = measured(seeds, rows, public, keep, sets) if measure else kept(keep)
    whole = whole_cells(found)
    told = [row for cell in whole for row in cell.values()]
    columns = {"partition": Column("partition"), "sites": Column("situation"), "alone": Column("alone", ".3f")}
    columns |= {rule: Column(rule) for rule in RULES}
    seen = Counter(str(next(iter(cell.values()))["data"]) for cell in whole)
    notes = "Accuracy of the sites together / share of sites worse than alone. Cells in which all rules were measured: "
    notes += (
        f"{', '.join(f'{n} of {name}' for name, n in sorted(seen.items()))}; seeds: {len({r['seed'] for r in told})}."
    )
    return Report("Which consensus", columns, summed_up(told), notes + (compared(whole) if whole else ""), words=2)


if __name__ == "__main__":
    print_with_options(report, __doc__)
