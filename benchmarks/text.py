"""Sites with different kinds of model share labels of film reviews.

    python -m benchmarks.text [--seeds 3] [--samples 1000] [--public 10_000] [--test 5_000] [--minilm 0] [--folder DIR]

IMDB: ten sites with `samples` private reviews each, `public` public ones and `test` to test on, all drawn anew for each
seed from the data set's training split. Three kinds of model alternate over the sites: TF-IDF with a linear SVM, a bag
of n-grams with a linear model trained by SGD, as fastText has it, and naive Bayes on counts of words. Words and pairs
of words are hashed, once for the whole benchmark. With `minilm`, the last so many sites have a logistic regression on
the frozen features of all-MiniLM-L6-v2 (128 tokens) instead.

Every rule that was tried is in the table. `gain` is the mean over sites minus that of the best kind of model alone;
`losers` counts the sites that end below their own local model, over all seeds; `kB` is what the site that sends most
sends in the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

import collegium as cg
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.data.sources import load_source

SITES, ROUNDS = 10, 3
SMALL = {"seeds": 1, "samples": 60, "public": 200, "test": 200}
LOCAL = "local"
RULES: dict[str, Any] = {
    LOCAL: cg.Local(),
    "majority": cg.FedCT(ROUNDS),
    "qualified majority, .9": cg.FedCT(ROUNDS, consensus=cg.QualifiedMajority(0.9)),
    "agreement": cg.FedCT(ROUNDS, consensus=cg.WeightedMajority("agreement")),
    "Dawid-Skene": cg.FedCT(ROUNDS, consensus=cg.DawidSkene()),
    "informed": cg.FedCT(ROUNDS, consensus=cg.Informed()),
    "informed, by confidence": cg.FedCT(ROUNDS, consensus=cg.Informed(), weights="confidence"),
}


class Counts(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Counts of hashed words and pairs of words: those of a review that all sites read are made once."""

    def fit(self, X: Any, y: Any = None) -> Counts:
        """Nothing is learned."""
        return self

    def transform(self, X: Any) -> Any:
        """The counts of these texts."""
        return _known.rows(list(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class _Known:
    """The counts of all texts that were read so far."""

    def __init__(self) -> None:
        self._hashing = HashingVectorizer(ngram_range=(1, 2), n_features=2**18, alternate_sign=False, norm=None)
        self._place: dict[str, int] = {}
        self._counts: Any = sparse.csr_matrix((0, 2**18))

    def rows(self, texts: list[str]) -> Any:
        """The counts of these."""
        new = [text for text in dict.fromkeys(texts) if text not in self._place]
        if new:
            self._place |= {text: len(self._place) + at for at, text in enumerate(new)}
            self._counts = sparse.vstack([self._counts, self._hashing.transform(new)], format="csr")
        return self._counts[[self._place[text] for text in texts]]


_known = _Known()
KINDS: dict[str, Any] = {
    "TF-IDF, SVM": make_pipeline(Counts(), TfidfTransformer(sublinear_tf=True), LinearSVC(C=0.3)),
    "n-grams, SGD": make_pipeline(Counts(), Normalizer(), SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=20)),
    "naive Bayes": make_pipeline(Counts(), MultinomialNB(alpha=0.3)),
}
MINILM = "MiniLM, logistic regression"


def measure(
    seeds: int = 3, samples: int = 1000, public: int = 10_000, test: int = 5_000, minilm: int = 0, folder: str = ""
) -> list[dict[str, Any]]:
    """One row per rule."""
    found: dict[str, list[pd.Series[float]]] = {name: [] for name in RULES}
    sent: dict[str, float] = dict.fromkeys(RULES, 0.0)
    quality: dict[str, list[float]] = {name: [] for name in RULES}
    kinds = [list(KINDS)[at % len(KINDS)] for at in range(SITES - minilm)] + [MINILM] * minilm
    for name, run in watched(_runs(seeds, samples, public, test, kinds, folder), "text", seeds * len(RULES)):
        found[name].append(run.accuracy.iloc[-1])
        sent[name] = max(sent[name], run.releases.groupby("party")["bytes"].sum().max() if len(run.releases) else 0)
        told = run.metrics.query("metric == 'consensus_quality'")["value"]
        quality[name].append(float(told.iloc[-1]) if len(told) else np.nan)
        print(name, np.round(run.accuracy.iloc[-1].tolist(), 4).tolist(), flush=True)
    tables = {name: np.array([each.to_numpy() for each in rows]) for name, rows in found.items()}
    alone = tables[LOCAL]
    by_kind = {kind: alone[:, [k == kind for k in kinds]].mean() for kind in dict.fromkeys(kinds)}
    best = max(by_kind.values())
    return [
        {
            "rule": name,
            "accuracy": table.mean(),
            "spread": table.mean(axis=1).std(),
            "lowest": table.min(),
            "gain": table.mean() - best,
            "losers": int((table < alone).sum()) if name != LOCAL else None,
            "quality": float(np.mean(quality[name])),
            "kb": sent[name] / 1000,
            **{kind: table[:, [k == kind for k in kinds]].mean() for kind in by_kind},
        }
        for name, table in tables.items()
    ]


def _runs(
    seeds: int, samples: int, public: int, test: int, kinds: list[str], folder: str
) -> Iterator[tuple[str, cg.Run]]:
    data = load_source("imdb", folder=Path(folder) if folder else None)
    _known.rows(data.X["text"].tolist())
    for seed in range(seeds):
        split = cg.split(data.X, data.y, SITES, public=public, test=test, train=samples * SITES, seed=seed)
        sites = [
            cg.Site(name, X, y, learner=_language_model() if kind == MINILM else KINDS[kind])
            for name, (X, y), kind in zip(split.names, split.sites, kinds, strict=True)
        ]
        for name, algorithm in RULES.items():
            shared = {} if name == LOCAL else {"public": split.public, "public_truth": split.public_truth}
            yield name, cg.run(algorithm, sites=sites, test=split.test, seed=seed, progress=False, **shared)


@cache
def _language_model() -> Any:
    return cg.TextClassifier("minilm", train="embed", max_length=128)


def report(
    seeds: int = 3, samples: int = 1000, public: int = 10_000, test: int = 5_000, minilm: int = 0, folder: str = ""
) -> Report:
    """The table."""
    rows = measure(seeds, samples, public, test, minilm, folder)
    kinds = [*KINDS, *([MINILM] if minilm else [])]
    return Report(
        f"IMDB, {SITES} sites x {samples:,} reviews, {public:,} public, {test:,} to test on, seeds: {seeds}",
        {
            "rule": Column("rule"),
            "accuracy": Column("accuracy", ".4f"),
            "sd over seeds": Column("spread", ".4f"),
            "worst site": Column("lowest", ".4f"),
            "gain": Column("gain", "+.4f"),
            "losers": Column("losers"),
            "consensus right": Column("quality", ".4f"),
            "kB": Column("kb", ".1f"),
            **{kind: Column(kind, ".4f") for kind in kinds},
        },
        rows,
        "`gain`: the mean over all sites minus that of the best kind alone. `losers`: sites below their own local "
        f"model, of {SITES * seeds}. {ROUNDS} rounds of FedCT.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
