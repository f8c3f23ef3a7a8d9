"""Sites with different kinds of model share labels of film reviews.

    python -m benchmarks.text [--seeds 3] [--first 0] [--samples 1000] [--public 10_000] [--test 5_000] [--rounds 3]
                              [--minilm 0] [--rules NAME,NAME] [--folder DIR] [--kept FILE]

IMDB: ten sites with `samples` private reviews each, `public` public ones and `test` to test on, all drawn anew for each
of `seeds` seeds, from `first` on, from the data set's training split. Three kinds of model alternate over the sites:
TF-IDF with a linear SVM, a bag of n-grams with a linear model trained by SGD, as fastText has it, and naive Bayes on
counts of words. Words and pairs of words are hashed, once for the whole benchmark. With `minilm`, the last so many
sites have a logistic regression on the frozen features of all-MiniLM-L6-v2 (128 tokens) instead; COLLEGIUM_FEATURES
keeps these for the next run.

Every rule that was tried is in the table, unless `rules` names some. `gain` is the mean over sites minus that of the
best kind of model alone; `losers` counts the sites that end below their own local model, over all seeds; `kB` is what
the site that sends most sends in the whole run. Runs that are in the file `kept` are not run again, and new ones are
added to it.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
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

SITES = 10
SMALL = {"seeds": 1, "samples": 60, "public": 200, "test": 200}
LOCAL = "local"
Outcome = dict[str, Any]
RULES: dict[str, dict[str, Any] | None] = {
    LOCAL: None,
    "majority": {},
    "qualified majority, .9": {"consensus": cg.QualifiedMajority(0.9)},
    "agreement": {"consensus": cg.WeightedMajority("agreement")},
    "Dawid-Skene": {"consensus": cg.DawidSkene()},
    "informed": {"consensus": cg.Informed()},
    "informed by confidence": {"consensus": cg.Informed(), "weights": "confidence"},
    "informed with guard": {"consensus": cg.Informed(), "guard": True},
    "informed and familiar": {"consensus": cg.Informed(), "voters": cg.Familiar()},
    "informed and familiar with guard": {"consensus": cg.Informed(), "voters": cg.Familiar(), "guard": True},
}
"""What FedCT is run with, by name; the last is what the project advises where learners differ."""


class Counts(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Counts of hashed words and, with `longest` 2, of pairs: those of a review that all sites read are made once."""

    def __init__(self, longest: int = 2) -> None:
        self.longest = longest

    def fit(self, X: Any, y: Any = None) -> Counts:
        """Nothing is learned."""
        return self

    def transform(self, X: Any) -> Any:
        """The counts of these texts."""
        return _known[self.longest].rows(list(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class _Known:
    """The counts of all texts that were read so far."""

    def __init__(self, longest: int) -> None:
        self._hashing = HashingVectorizer(ngram_range=(1, longest), n_features=2**18, alternate_sign=False, norm=None)
        self._place: dict[str, int] = {}
        self._counts: Any = sparse.csr_matrix((0, 2**18))
        self._lock = threading.Lock()  # sites work in threads

    def rows(self, texts: list[str]) -> Any:
        """The counts of these."""
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._place]
            if new:
                self._counts = sparse.vstack([self._counts, self._hashing.transform(new)], format="csr")
                self._place |= {text: len(self._place) + at for at, text in enumerate(new)}
            return self._counts[[self._place[text] for text in texts]]


_known = {longest: _Known(longest) for longest in (1, 2)}
KINDS: dict[str, Any] = {
    "TF-IDF, SVM": make_pipeline(Counts(), TfidfTransformer(sublinear_tf=True), LinearSVC(C=0.3)),
    "n-grams, SGD": make_pipeline(Counts(), Normalizer(), SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=20)),
    "naive Bayes": make_pipeline(Counts(), MultinomialNB(alpha=0.3)),
}
MINILM = "MiniLM, logistic regression"


@dataclass(frozen=True)
class Setting:
    """What is measured, as the options say."""

    seeds: int = 3
    first: int = 0
    samples: int = 1000
    public: int = 10_000
    test: int = 5_000
    rounds: int = 3
    minilm: int = 0
    rules: str = ""
    folder: str = ""
    kept: str = ""

    def chosen(self) -> list[str]:
        """The rules, by name."""
        return [LOCAL, *(name for name in RULES if name != LOCAL and (not self.rules or name in self.rules.split(",")))]

    def split(self, seed: int) -> cg.Split:
        """The data."""
        data = _reviews(self.folder)
        train = self.samples * SITES
        return cg.split(data.X, data.y, SITES, public=self.public, test=self.test, train=train, seed=seed)


@cache
def _reviews(folder: str) -> Any:
    return load_source("imdb", folder=Path(folder) if folder else None)


def measure(setting: Setting, known: Mapping[str, Any] = KINDS) -> list[dict[str, Any]]:
    """One row per rule."""
    chosen, minilm = setting.chosen(), setting.minilm
    kinds = [list(known)[at % len(known)] for at in range(SITES - minilm)] + [MINILM] * minilm
    learners = [_language_model() if kind == MINILM else known[kind] for kind in kinds]
    found: dict[str, list[Outcome]] = {name: [] for name in chosen}
    for name, outcome in watched(_outcomes(setting, kinds, learners), "text", setting.seeds * len(chosen)):
        found[name].append(outcome)
        print(name, np.round(outcome["accuracy"], 4).tolist(), flush=True)
    tables = {name: np.array([each["accuracy"] for each in rows]) for name, rows in found.items()}
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
            "least": (table - alone).min() if name != LOCAL else None,
            "quality": float(np.mean([each["quality"] for each in found[name]])),
            "kb": max(each["bytes"] for each in found[name]) / 1000,
            **{kind: table[:, [k == kind for k in kinds]].mean() for kind in by_kind},
        }
        for name, table in tables.items()
    ]


def _outcomes(setting: Setting, kinds: Sequence[str], learners: Sequence[Any]) -> Iterator[tuple[str, Outcome]]:
    """What every rule came to, seed by seed."""
    file = Path(setting.kept) if setting.kept else None
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    kept: dict[str, Outcome] = dict(json.loads(line) for line in lines)
    splits = cache(setting.split)
    for name in setting.chosen():
        for seed in range(setting.first, setting.first + setting.seeds):
            what = [name, seed, setting.samples, setting.public, setting.test, setting.rounds, setting.folder, *kinds]
            key = json.dumps([*what, *map(str, learners)])
            if key not in kept:
                kept[key] = _outcome(setting.rounds, RULES[name], splits(seed), seed, learners)
                if file is not None:
                    with file.open("a") as end:
                        end.write(json.dumps([key, kept[key]]) + "\n")
            yield name, kept[key]


def _outcome(
    rounds: int, settings: Mapping[str, Any] | None, split: cg.Split, seed: int, learners: Sequence[Any]
) -> Outcome:
    sites = [
        cg.Site(name, X, y, learner=learner)
        for name, (X, y), learner in zip(split.names, split.sites, learners, strict=True)
    ]
    algorithm = cg.Local() if settings is None else cg.FedCT(rounds, **settings)
    shared = {} if settings is None else {"public": split.public, "public_truth": split.public_truth}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.Advice)  # every rule is run
        run = cg.run(algorithm, sites=sites, test=split.test, seed=seed, progress=False, **shared)
    if not run.refusals.empty:
        raise SystemExit(f"Sites did not answer: {', '.join(run.refusals['party'].unique())}.")
    quality = run.metrics.query("metric == 'consensus_quality'")["value"]
    return {
        "accuracy": run.accuracy.iloc[-1].tolist(),
        "bytes": int(run.releases.groupby("party")["bytes"].sum().max()) if len(run.releases) else 0,
        "quality": float(quality.iloc[-1]) if len(quality) else np.nan,
    }


@cache
def _language_model() -> Any:
    return cg.TextClassifier("minilm", train="embed", max_length=128)


def report(
    seeds: int = 3,
    first: int = 0,
    samples: int = 1000,
    public: int = 10_000,
    test: int = 5_000,
    rounds: int = 3,
    minilm: int = 0,
    rules: str = "",
    folder: str = "",
    kept: str = "",
) -> Report:
    """The table."""
    return table(Setting(seeds, first, samples, public, test, rounds, minilm, rules, folder, kept))


def table(setting: Setting, known: Mapping[str, Any] = KINDS) -> Report:
    """The table of a setting, with these kinds of model."""
    rows = measure(setting, known)
    kinds = [kind for kind in (*known, MINILM) if kind in rows[0]]
    return Report(
        f"IMDB, {SITES} sites x {setting.samples:,} reviews, {setting.public:,} public, {setting.test:,} to test on, "
        f"{setting.rounds} rounds, seeds {setting.first} to {setting.first + setting.seeds - 1}",
        {
            "rule": Column("rule"),
            "accuracy": Column("accuracy", ".4f"),
            "sd over seeds": Column("spread", ".4f"),
            "worst site": Column("lowest", ".4f"),
            "gain": Column("gain", "+.4f"),
            "losers": Column("losers"),
            "least gain of a site": Column("least", "+.4f"),
            "consensus right": Column("quality", ".4f"),
            "kB": Column("kb", ".1f"),
            **{kind: Column(kind, ".4f") for kind in kinds},
        },
        rows,
        "`gain`: the mean over all sites minus that of the best kind alone. `losers`: sites below their own local "
        f"model, of {SITES * setting.seeds}; beside it, how the site that gains least does.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
