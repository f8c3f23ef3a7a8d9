"""What an earlier, hand-written attack found on Adult, and what `cg.audit` finds of the same.

    python -m benchmarks.audit_review [--shadows 64] [--seeds 5] [--workers 2]

With shadows: five sites, FedCT with 3 rounds (1 with a private learner), 400 canaries at one site, one in eight of them
mislabelled, and nothing else; 200 records at each of the others, 1,000 public rows. One run: a site with 4,000 records
and 1,000 mislabelled canaries, two sites with 500 records each, a forged public set, 1 round; `seeds` such audits, with
other canaries and coins.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import adult_numbers, data_folder
from benchmarks.report import Column, Report, print_with_options, watched

SMALL: dict[str, Any] = {"shadows": 2, "seeds": 1, "records": 100, "workers": 0}
KINDS = {"ordinary": 7.0, "mislabelled": 1.0}
TREE = DecisionTreeClassifier()


class Case(NamedTuple):
    """One audit, and what the review found: AUC and TPR at 1 % of all canaries and of the mislabelled, and a bound."""

    site: str
    learner: Any
    rounds: int
    options: Mapping[str, Any]
    review: tuple[float | None, float | None, float | None, float | None, float | None]


def with_shadows(records: int) -> list[Case]:
    """Audits by likelihood ratios."""
    voting = cg.PrivateVoting(
        DecisionTreeClassifier(max_depth=4), teachers=max(10, records // 100), epsilon=1, queries=100
    )
    sgd = cg.PrivateTorch("linear", epsilon=1, batch_size=min(128, records // 4), epochs=20)
    logistic, forged = LogisticRegression(max_iter=300), {"forged": True}
    return [
        Case("tree, honest public set", TREE, 3, {}, (0.594, 0.034, 0.711, 0.081, None)),
        Case("tree, forged public set", TREE, 3, forged, (0.752, 0.105, 0.912, 0.198, None)),
        Case("tree, the model itself", TREE, 3, {"view": "model"}, (0.698, 0.209, 0.987, 0.793, None)),
        Case("logistic regression, forged", logistic, 3, forged, (0.606, 0.031, 0.663, 0.087, None)),
        Case("PrivateVoting, forged", voting, 1, forged, (0.499, 0.012, None, None, None)),
        Case("DP-SGD, forged", sgd, 1, forged, (0.501, 0.009, None, None, None)),
    ]


def of_one_run(records: int) -> list[Case]:
    """Audits without shadows."""
    forged = {"forged": True}
    voting = cg.PrivateVoting(DecisionTreeClassifier(max_depth=4), teachers=max(10, records // 5), epsilon=1)
    sgd = cg.PrivateTorch("linear", epsilon=1, steps=150, batch_size=min(256, records // 2))
    return [
        Case("tree", TREE, 1, forged, (None, None, None, None, 2.16)),
        Case("forest", RandomForestClassifier(50), 1, forged, (None, None, None, None, 3.05)),
        Case("PrivateVoting", voting, 1, forged, (None, None, None, None, 0.0)),
        Case("DP-SGD", sgd, 1, forged, (None, None, None, None, 0.04)),
    ]


def report(shadows: int = 64, seeds: int = 5, records: int = 400, workers: int = 2) -> Report:
    """Audit every case."""
    jobs = [("shadows", case) for case in with_shadows(records)] + [("one run", case) for case in of_one_run(records)]
    rows = []
    for way, case in watched(jobs, "the review's figures", len(jobs)):
        if way == "shadows":
            sites, public = _census([records, *[records // 2] * 4], case.learner)
            options = {"canaries": records, "kinds": KINDS, "shadows": shadows, "workers": workers}
            rows.append(_row_with_shadows(case, _audited(case, sites, public, 0, options)))
        else:
            sites, public = _census([records * 25 // 2, 500, 500], case.learner)
            options = {"canaries": records * 5 // 2}
            rows.append(_row_of_one_run(case, [_audited(case, sites, public, seed, options) for seed in range(seeds)]))
    columns = {
        "attack": Column("attack"),
        "site": Column("site"),
        "AUC, review": Column("review_auc", ".3f"),
        "AUC": Column("auc"),
        "TPR at 1 %, review": Column("review_tpr", ".3f"),
        "TPR at 1 %": Column("tpr"),
        "AUC of mislabelled, review": Column("review_mislabelled", ".3f"),
        "AUC of mislabelled": Column("mislabelled"),
        "TPR at 1 % of mislabelled, review": Column("review_mislabelled_tpr", ".3f"),
        "TPR at 1 % of mislabelled": Column("mislabelled_tpr", ".3f"),
        "epsilon, review": Column("review_bound", ".2f"),
        "epsilon at least": Column("bound"),
        "claim": Column("claim", ".2f"),
        "verdict": Column("verdict"),
        "seconds": Column("seconds", ".1f"),
    }
    notes = (
        f"With {shadows} shadows, {max(1, workers)} at a time: one audit, and 95 % intervals over canaries. One run: "
        f"means of {seeds} audits, and the smallest and the largest. The review drew other canaries and coins. A bound "
        "on epsilon is of one run alone, from 160 guesses with shadows and 400 without, at delta 1e-5. Seconds are "
        "those of one audit."
    )
    return Report("Adult: the review's figures", columns, rows, notes, words=2)


def _audited(case: Case, sites: list[cg.Site], public: Any, seed: int, options: Mapping[str, Any]) -> cg.Audit:
    settings = {"seed": seed, "progress": False, **options, **case.options}
    return cg.audit(cg.FedCT(rounds=case.rounds), sites, public, **settings)


def _census(sizes: list[int], learner: Any) -> tuple[list[cg.Site], Any]:
    """Sites of these sizes, the first with the learner; and the public rows."""
    X, y = adult_numbers(data_folder())
    drawn = np.random.default_rng(0).permutation(len(X))[: sum(sizes) + 1_000]
    X, y = X[drawn], y[drawn]
    parts = [slice(low, high) for low, high in pairwise(np.cumsum([0, *sizes]))]
    learners = [learner, *[TREE] * (len(sizes) - 1)]
    sites = [cg.Site(f"site{i}", X[part], y[part], learner=learners[i]) for i, part in enumerate(parts)]
    return sites, X[sum(sizes) :]


def _row_with_shadows(case: Case, found: cg.Audit) -> dict[str, Any]:
    wrong = found.by_kind["mislabelled"]
    return _of_review(case) | {
        "attack": f"shadows, {found.attack}",
        "auc": _between(found.auc, *found.auc_interval),
        "tpr": _between(found.tpr[0.01], *found.tpr_interval[0.01]),
        "mislabelled": _between(wrong.auc, *wrong.auc_interval),
        "mislabelled_tpr": wrong.tpr[0.01],
        "bound": f"{found.epsilon_lower:.2f}",
        "claim": None if found.claim is None else found.claim.epsilon,
        "verdict": found.verdict,
        "seconds": found.seconds,
    }


def _row_of_one_run(case: Case, found: list[cg.Audit]) -> dict[str, Any]:
    bounds = [each.epsilon_lower for each in found]
    return _of_review(case) | {
        "attack": "one run",
        "auc": _range([each.auc for each in found]),
        "tpr": _range([each.tpr[0.01] for each in found]),
        "bound": f"{np.mean(bounds):.2f} ({min(bounds):.2f}-{max(bounds):.2f})",
        "claim": None if found[0].claim is None else found[0].claim.epsilon,
        "verdict": ", ".join(sorted({each.verdict for each in found})),
        "seconds": float(np.mean([each.seconds for each in found])),
    }


def _of_review(case: Case) -> dict[str, Any]:
    names = ("review_auc", "review_tpr", "review_mislabelled", "review_mislabelled_tpr", "review_bound")
    return {"site": case.site, **dict(zip(names, case.review, strict=True))}


def _range(values: list[float]) -> str:
    return _between(float(np.mean(values)), min(values), max(values))


def _between(value: float, low: float, high: float) -> str:
    return f"{value:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    print_with_options(report, __doc__)
