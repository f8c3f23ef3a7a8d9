"""One cell of the benchmark of rules: a data set, how it is dealt to ten sites, and what is wrong with some of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.machine import in_words
from benchmarks.remembering import Remembered, remembering
from collegium.consensus.advice import skew_of
from collegium.data.sources import load_source
from collegium.study.preparing import scaled

Found = dict[str, Any]
Cell = tuple[int, str, str, str]
"""Seed, data set, partition, situation."""

SITES, TEST, MARGIN = 10, 1_500, 0.005
READ: Final = 20_000
"""Rows of a data set that are used at all, drawn once."""
TUNED: Final = ("adult", "digits")
"""Data sets on which settings of rules were chosen; what is reported of the others is news."""
DATA: Final = ("breast_cancer", "mushroom", "wine_type", "cod_rna", "covertype", "mnist", *TUNED)
PARTITIONS: Final[dict[str, Any]] = {
    "iid": cg.Iid(),
    **{f"Dir({a})": cg.BalancedDirichlet(a) for a in (0.5, 0.1, 0.01)},
}
MILD = ("iid", "Dir(0.5)")
HOSTILE = ("30% flip", "30% one class", "30% copy")
SITUATIONS: Final = ("alike", "mixed", "one useless", "20% flip", *HOSTILE)
RULES: Final[dict[str, cg.Algorithm]] = {
    "majority": cg.FedCT(2),
    "by agreement": cg.FedCT(2, consensus=cg.WeightedMajority("agreement")),
    "Dawid-Skene": cg.FedCT(2, consensus=cg.DawidSkene()),
    "familiar": cg.FedCT(2, voters=cg.Familiar()),
    "informed": cg.FedCT(2, consensus=cg.Informed()),
    "familiar, informed": cg.FedCT(2, consensus=cg.Informed(), voters=cg.Familiar()),
    "majority, guarded": cg.FedCT(2, guard=True),
    "familiar, guarded": cg.FedCT(2, voters=cg.Familiar(), guard=True),
    "informed, guarded": cg.FedCT(2, consensus=cg.Informed(), guard=True),
    "familiar, informed, guarded": cg.FedCT(2, consensus=cg.Informed(), voters=cg.Familiar(), guard=True),
    "FedKT majority": cg.FedKT(),
    "FedKT Dawid-Skene": cg.FedKT(consensus=cg.DawidSkene()),
    "FedKT informed": cg.FedKT(consensus=cg.Informed()),
}


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
def numbers_of(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Some rows of a data set, as numbers, and their labels."""
    data = load_source(name, folder=None if name in ("breast_cancer", "digits") else data_folder())
    X, y = numbers(scaled(data.X)), np.asarray(data.y)
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:READ])
    return X[some], y[some]


def rows_of(name: str, seed: int, rows: int, public: int, partition: str) -> Any:
    """A data set, divided."""
    X, y = numbers_of(name)
    # Small sets keep their proportions.
    share = min(1.0, len(y) / (SITES * rows + public + 300))
    unlabelled, labelled = int(share * public), int(share * SITES * rows)
    return cg.split(
        X,
        y,
        SITES,
        public=unlabelled,
        train=labelled,
        test=min(TEST, len(y) - unlabelled - labelled),
        partition=PARTITIONS[partition],
        seed=seed,
    )


def numbers(X: Any) -> Any:
    """A table as an array of numbers: frequent words as columns, sparse rows filled up, one pixel in nine."""
    if hasattr(X, "columns"):
        words = X.select_dtypes(exclude="number").astype(str)
        for column in words:
            words[column] = words[column].where(words[column].isin(words[column].value_counts().index[:12]), "other")
        columns = [pd.get_dummies(words)] if len(words.columns) else []
        return pd.concat([X.select_dtypes("number").fillna(0), *columns], axis=1).to_numpy(np.float32)
    dense = X.toarray() if hasattr(X, "toarray") else X
    return dense[:, ::3, ::3].reshape(len(dense), -1) if dense.ndim > 2 else dense


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
        sites.append(cg.Site(name, X, y, learner=Remembered([("scaled", StandardScaler()), ("learner", learner)])))
    lying = set() if situation == "30% copy" else set(split.names[:hostile])
    return sites, set(split.names) - lying


def cells(seeds: int, sets: Sequence[str]) -> list[Cell]:
    """All cells; a run that is stopped has seen every partition with the first seeds. Hostile sites come last."""
    every = product(range(seeds), sets, PARTITIONS, SITUATIONS)
    return sorted((cell for cell in every if cell[3] not in HOSTILE or cell[2] in MILD), key=lambda c: c[3] in HOSTILE)


def outcomes(cell: Cell, rules: Sequence[str], rows: int, public: int) -> list[Found]:
    """What these rules do in one cell."""
    warnings.simplefilter("ignore")
    with remembering():
        return list(_outcomes(cell, rules, rows, public))


def _outcomes(cell: Cell, rules: Sequence[str], rows: int, public: int) -> Iterator[Found]:
    seed, name, partition, situation = cell
    split = rows_of(name, seed, rows, public, partition)
    sites, honest = sites_of(split, situation)
    shared = {"public": split.public, "public_truth": split.public_truth, "test": split.test, "seed": seed}
    options = {"sites": sites, "progress": False, "classes": np.unique(numbers_of(name)[1]), **shared}
    X, y = split.test
    alone = {party: model.predict(X) for party, model in cg.run(cg.Local(), **options).models.items()}
    where = {"seed": seed, "data": name, "partition": partition, "situation": situation, "skew": skew_of(sites)}
    for rule in rules:
        run = cg.run(RULES[rule], **options)
        found = {**where, "rule": rule, "student": None, "student_balanced": None, "machine": in_words()}
        if run.global_model is not None:
            said = run.global_model.predict(X)
            found |= {"student": _right(said, y), "student_balanced": float(balanced_accuracy_score(y, said))}
        if isinstance(RULES[rule], cg.FedCT):  # sites of FedKT learn nothing from the others
            found |= _of_sites({party: model.predict(X) for party, model in run.models.items()}, alone, honest, y)
        yield found


def _of_sites(together: dict[str, Any], alone: dict[str, Any], honest: set[str], y: Any) -> Found:
    """How good the honest sites' models are, and how many of them lost."""
    both = [(together[party], alone[party]) for party in together if party in honest]
    return {
        "alone": float(np.mean([_right(before, y) for _, before in both])),
        "alone_balanced": float(np.mean([balanced_accuracy_score(y, before) for _, before in both])),
        "accuracy": float(np.mean([_right(after, y) for after, _ in both])),
        "balanced": float(np.mean([balanced_accuracy_score(y, after) for after, _ in both])),
        "worse": sum(_right(before, y) - _right(after, y) > MARGIN for after, before in both),
        "sites": len(both),
    }


def _right(said: Any, y: Any) -> float:
    return float(np.mean(said == y))
