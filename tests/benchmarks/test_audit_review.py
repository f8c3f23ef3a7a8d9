"""The review's figures: every case beside its own audit, on rows that stand in for Adult's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import audit_review


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6_000, 4)).astype(np.float32)
    monkeypatch.setattr(audit_review, "adult_numbers", lambda folder: (X, (X[:, 0] + X[:, 1] > 0).astype(np.int64)))
    monkeypatch.setattr(audit_review, "data_folder", lambda: None)


def test_each_audit_stands_beside_what_the_review_found(monkeypatch: pytest.MonkeyPatch) -> None:
    few, one = audit_review.with_shadows(80)[1:2], audit_review.of_one_run(80)[:1]
    monkeypatch.setattr(audit_review, "with_shadows", lambda records: few)
    monkeypatch.setattr(audit_review, "of_one_run", lambda records: one)
    shadows, single = audit_review.report(shadows=2, seeds=2, records=80, workers=0).rows
    assert (shadows["review_auc"], shadows["review_mislabelled"]) == (0.752, 0.912)
    assert (shadows["attack"], single["attack"]) == ("shadows, rmia", "one run")
    assert "mislabelled" in shadows, "the mislabelled canaries have a number of their own"
    assert "mislabelled" not in single, "all of them are"
    assert (single["review_bound"], single["claim"], single["verdict"]) == (2.16, None, "no claim")
    assert float(single["bound"].partition(" ")[0]) > 0.5, "a tree remembers a mislabelled record"


@pytest.mark.parametrize("records", [80, 400])
def test_private_learners_fit_the_sites(records: int) -> None:
    cases: list[Any] = [*audit_review.with_shadows(records), *audit_review.of_one_run(records)]
    for case in cases:
        if hasattr(case.learner, "check"):
            case.learner.check()
            assert case.learner.epsilon == 1
