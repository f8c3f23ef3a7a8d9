"""Membership attacks on sites that share labels of texts, beside FedAvg on the same net.

    python -m benchmarks.text_audit [--samples 200] [--public 400] [--shadows 16] [--model minilm] [--source imdb]

Three sites with `samples` reviews each. Half of the first site's are canaries: mislabelled, and there or not by a coin.
The attacker is the coordinator, with `shadows` further runs to compare with (LiRA). All sites have a linear head on the
frozen features of one language model (64 tokens); FedAvg sends that head's weights, FedCT labels of the public reviews.
With a forged public set the coordinator has put the canaries into it. The last row is FedCT with words instead: TF-IDF
and a linear SVM, which remembers more.
"""

from __future__ import annotations

from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import collegium as cg
from benchmarks.report import Column, Report, print_with_options
from collegium.data.sources import load_source

SITES, ROUNDS = 3, 3
SMALL: dict[str, Any] = {"samples": 60, "public": 60, "shadows": 4, "model": "tiny", "source": "reviews"}


def measure(
    samples: int = 200, public: int = 400, shadows: int = 16, model: str = "minilm", source: str = "imdb"
) -> list[dict[str, Any]]:
    """One row per audit."""
    data = load_source(source)
    split = cg.split(data.X, data.y, SITES, public=public, test=0, train=samples * SITES, seed=0)
    head = cg.TextClassifier(model, train="head", max_length=64, epochs=10)
    words = make_pipeline(TfidfVectorizer(), LinearSVC())
    cases: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("FedAvg, weights of the head", cg.FedAvg(ROUNDS, local_epochs=10), head, {}),
        ("FedCT, labels", cg.FedCT(ROUNDS), head, {}),
        ("FedCT, labels, forged public set", cg.FedCT(ROUNDS), head, {"forged": True}),
        ("FedCT, labels, TF-IDF and SVM, forged", cg.FedCT(ROUNDS), words, {"forged": True}),
    ]
    rows = []
    for name, algorithm, learner, options in cases:
        sites = [cg.Site(party, X, y, learner=learner) for party, (X, y) in zip(split.names, split.sites, strict=True)]
        found = cg.audit(algorithm, sites, split.public, shadows=shadows, seed=0, progress=False, **options)
        low, high = found.auc_interval
        rows.append({"what": name, "auc": found.auc, "low": low, "high": high, "epsilon": found.epsilon_lower})
        print(rows[-1], flush=True)
    return rows


def report(
    samples: int = 200, public: int = 400, shadows: int = 16, model: str = "minilm", source: str = "imdb"
) -> Report:
    """The table."""
    return Report(
        f"Membership of reviews ({source}, {model}): {SITES} sites x {samples}, {public} public, {shadows} shadow runs",
        {
            "what leaves": Column("what"),
            "AUC": Column("auc", ".3f"),
            "from": Column("low", ".3f"),
            "to": Column("high", ".3f"),
            "epsilon at least": Column("epsilon", ".2f"),
        },
        measure(samples, public, shadows, model, source),
        "An AUC of .5 is guessing. Half of the attacked site's records are mislabelled canaries: the worst case, not "
        "the usual one.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
