"""Metrics beside accuracy: by site, round and for the global model, the same as scikit-learn's own functions."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from sklearn import metrics as sk
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.cli.studies import score_tables, summary_table
from collegium.errors import ConfigError
from collegium.learners.metrics import OURS, read_metrics

NAMES = ["balanced_accuracy", "roc_auc", "neg_log_loss", *(name for name in OURS if name != "roc_auc")]


def share_of_benign(model: Any, X: Any, y: Any) -> float:
    return float(np.mean(model.predict(X) == "benign"))


@pytest.fixture(scope="module")
def run(cancer: Any) -> cg.Run:
    return cancer.run(cg.FedCT(rounds=2), DecisionTreeClassifier(max_depth=2), metrics=[*NAMES, share_of_benign])


def test_they_are_noted_by_site_and_round_and_for_the_global_model(run: cg.Run) -> None:
    rows = run.metrics.query("metric == 'balanced_accuracy' and split == 'test'")
    assert list(zip(rows["round"], rows["party"], strict=True)) == [(t, f"site{i}") for t in (0, 1) for i in range(5)]
    assert "global_roc_auc" in set(run.metrics["metric"])
    assert list(run.scores.index) == [*(f"site{i}" for i in range(5)), "global model (coordinator)"]
    assert run.scores.notna().all(axis=None) or "calibration_curve[0.9]" in run.scores


def test_they_are_what_scikit_learn_says_of_the_final_models(run: cg.Run, cancer: Any) -> None:
    X, y = cancer.split.test
    model, told = run.models["site1"], run.scores.loc["site1"]
    said, sure, positive = model.predict(X), model.predict_proba(X)[:, 1], y == "malignant"
    expected = {
        "balanced_accuracy": sk.balanced_accuracy_score(y, said),
        "roc_auc": sk.roc_auc_score(positive, sure),
        "f1": sk.f1_score(y, said, pos_label="malignant"),
        "precision": sk.precision_score(y, said, pos_label="malignant"),
        "recall": sk.recall_score(y, said, pos_label="malignant"),
        "sensitivity": sk.recall_score(y, said, pos_label="malignant"),
        "specificity": sk.recall_score(y, said, pos_label="benign"),
        "log_loss": sk.log_loss(y, model.predict_proba(X)),
        "neg_log_loss": -sk.log_loss(y, model.predict_proba(X)),
        "brier": sk.brier_score_loss(positive, sure),
        "share_of_benign": np.mean(said == "benign"),
        "confusion_matrix[malignant,benign]": np.sum(positive & (said == "benign")),
    }
    for name, value in expected.items():
        assert told[name] == pytest.approx(value), name
    assert 0 <= told["calibration_error"] <= 1


def test_many_classes(digits: Any) -> None:
    run = digits.run(cg.FedCT(rounds=1), metrics=[name for name in NAMES if "[" not in name])
    X, y = digits.split.test
    model, told = run.models["site0"], run.scores.loc["site0"]
    assert told["f1"] == pytest.approx(sk.f1_score(y, model.predict(X), average="macro"))
    assert told["sensitivity"] == pytest.approx(sk.recall_score(y, model.predict(X), average="macro"))
    assert told["roc_auc"] == pytest.approx(sk.roc_auc_score(y, model.predict_proba(X), multi_class="ovr"))
    assert 0.9 < told["specificity"] < 1


def test_callbacks_and_comparisons_have_them(cancer: Any) -> None:
    seen = []

    class Watch(cg.Callback):
        def on_round(self, report: Any) -> None:
            seen.append(report.mean("balanced_accuracy", "test"))

    run = cancer.run(cg.FedCT(rounds=2), metrics=["balanced_accuracy"], callbacks=[Watch()])
    assert len(seen) == 2
    table = cg.compare_runs({"a": run, "b": cancer.run(cg.FedCT(rounds=1))})
    assert table.loc["a", "balanced_accuracy"] == pytest.approx(seen[-1])
    assert np.isnan(table.loc["b", "balanced_accuracy"])
    assert table.loc["a", "base_rate"] == run.about["base_rate"] == pytest.approx(76 / 114)


def test_they_are_shown_in_a_terminal_and_in_a_notebook_without_curves(run: cg.Run) -> None:
    console = Console(width=80, file=io.StringIO())
    for table in score_tables(run):
        console.print(table)
    assert "…" not in console.file.getvalue()  # type: ignore[attr-defined]
    console.print(summary_table(run, "a"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"Always saying the largest class: accuracy {76 / 114:.3f}" in shown
    for text in (shown, run._repr_html_()):
        for name in ("balanced_accuracy", "specificity", "share_of_benign"):
            assert name in text
        assert "confusion_matrix" not in text
    assert f"{run.scores.loc['site0', 'brier']:.4g}" in shown


def test_metrics_without_a_test_set_are_nothing(cancer: Any) -> None:
    with pytest.warns(cg.Advice, match="Nothing is measured of f1, brier: there is no test set"):
        cancer.run(cg.Local(), metrics=["f1", "brier"], test=None)


def test_a_learner_without_probabilities_has_no_auc(cancer: Any) -> None:
    run = cancer.run(cg.FedCT(rounds=1), RidgeClassifier(), metrics=["roc_auc", "f1"])
    assert run.scores["roc_auc"].isna().all()
    assert run.scores["f1"].notna().all()
    assert "cannot measure roc_auc" in "".join(run.logs["site0"])


def test_mistakes_are_found_before_the_run() -> None:
    for wrong, why in [
        (["balanced_acuracy"], "Did you mean 'balanced_accuracy'"),
        ("f1", "must be a list"),
        ([3], "a name or a function"),
        (["f1", "f1"], "named twice"),
        (["accuracy"], "is measured anyway"),
    ]:
        with pytest.raises(ConfigError, match=why):
            read_metrics(wrong)
    with pytest.raises(ConfigError, match="metrics"):
        cg.Study.from_dict({"data": {"source": "iris"}, "algorithm": "fedct", "metrics": ["nonsense"]})
