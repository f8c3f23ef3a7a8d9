"""Did it help me? Alone and together on the same rows, with an interval that tells the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import ConfigError
from collegium.runs import verdict
from collegium.runs.verdict import interval, judge

COLUMNS = ["site", "alone", "together", "difference", "low", "high", "helped"]


def test_alone_is_what_local_reaches_and_together_what_the_run_does(digits: Any) -> None:
    run, alone = digits.run(cg.FedCT(rounds=2)), digits.run(cg.Local())
    judged = run.verdict
    assert list(judged.columns) == COLUMNS
    assert list(judged["site"]) == [f"site{i}" for i in range(5)]
    np.testing.assert_allclose(judged["alone"], alone.accuracy.iloc[-1])
    np.testing.assert_allclose(judged["together"], run.accuracy.iloc[-1])
    np.testing.assert_allclose(judged["difference"], judged["together"] - judged["alone"])
    assert (judged["low"] <= judged["difference"]).all()
    assert (judged["difference"] <= judged["high"]).all()
    assert (judged["helped"] == (judged["low"] > 0)).all()
    assert judged["helped"].any()


def test_those_who_lost_are_named(cancer: Any) -> None:
    flip = {"benign": "malignant", "malignant": "benign"}
    sites = [
        site if i < 2 else cg.Site(site.name, site.X, [flip[y] for y in site.y], site.learner)
        for i, site in enumerate(cancer.sites())
    ]
    run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    assert run.known_verdict is None  # nobody has asked yet
    assert "site0" in run.concerns[0]  # which is cheap to find out
    shown = run._repr_html_()
    assert shown.count('<tr style="color:#b00020">') == 2  # who lost is red
    assert shown.index("would have been better off alone") < shown.index("Did it help?") < shown.index("first_accuracy")
    judged = run.verdict.set_index("site")
    assert judged.loc["site0", "high"] < 0
    assert not judged.loc["site0", "helped"]
    assert "site0" in run.concerns[0]
    assert "better off alone" in run.concerns[0]
    assert "site0" in run._repr_html_()


def test_methods_that_are_compared_share_what_sites_do_alone(cancer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cancer.run(cg.FedCT(rounds=2), seed=77).verdict
    monkeypatch.setattr(verdict.Alone, "_trained", lambda *_: pytest.fail("trained again"))
    second = cancer.run(cg.FedCT(rounds=3, consensus=cg.DawidSkene()), seed=77).verdict
    assert first["alone"].equals(second["alone"])


def test_a_folder_keeps_it(cancer: Any, tmp_path: Any) -> None:
    run = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run", metrics=["balanced_accuracy"], alone=True)
    loaded = cg.load(tmp_path / "run")
    assert loaded.verdict.equals(run.verdict)
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Did it help?" in report
    assert "balanced_accuracy" in report


def test_without_a_test_set_there_is_none(cancer: Any) -> None:
    for options in ({"test": None}, {"alone": False}):
        with pytest.raises(ConfigError, match="no verdict on this run"):
            _ = cancer.run(cg.FedCT(rounds=1), **options).verdict


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        changes = rng.choice([1, -1, 0], p=[0.12, 0.07, 0.81], size=300)
        low, high = interval(changes, rng)
        covered.append(low <= 0.05 <= high)
    assert 0.91 < np.mean(covered) < 0.98


def test_rows_that_both_get_right_tell_nothing() -> None:
    same = np.array([True, False, True])
    judged = judge({"a": same, "b": same}, {"a": same}, seed=0)
    assert judged.iloc[0].tolist() == ["a", *[2 / 3] * 2, 0.0, 0.0, 0.0, False]
    assert len(judged) == 1


def test_over_seeds_the_interval_is_that_of_the_repeats(digits: Any) -> None:
    runs = [digits.run(cg.FedCT(rounds=2), DecisionTreeClassifier(), seed=seed) for seed in range(3)]
    judged = cg.verdict_over(runs)
    assert list(judged.columns) == COLUMNS
    differences = [run.verdict["difference"][0] for run in runs]
    assert judged["difference"][0] == pytest.approx(np.mean(differences))
    assert judged["high"][0] - judged["low"][0] == pytest.approx(
        2 * 4.302653 * np.std(differences, ddof=1) / np.sqrt(3), rel=1e-5
    )
    with pytest.raises(ConfigError, match="two runs or more"):
        cg.verdict_over(runs[:1])


def test_repeats_that_are_all_the_same_have_the_interval_over_test_rows(cancer: Any) -> None:
    learner = make_pipeline(StandardScaler(), LogisticRegression())  # which draws nothing
    runs = [cancer.run(cg.FedCT(rounds=2), learner, seed=seed) for seed in range(2)]
    once, judged = runs[0].verdict.iloc[0], cg.verdict_over(runs).iloc[0]
    assert judged["difference"] == once["difference"] != 0
    assert judged["low"] < judged["difference"] < judged["high"]
    np.testing.assert_allclose(judged["low"], np.mean([run.verdict["low"][0] for run in runs]))


def test_a_consensus_of_one_class_is_a_warning(cancer: Any) -> None:
    sites = [
        cg.Site(site.name, site.X, site.y, learner=DummyClassifier(strategy="constant", constant="malignant"))
        for site in cancer.sites()
    ]
    with pytest.warns(cg.DoubtfulResult, match="nearly one class: 100.0% of its labels are 'malignant'"):
        run = cancer.run(cg.FedCT(rounds=1), sites=sites)
    assert any("nearly one class" in text for text in run.concerns)


class FailsLater(DecisionTreeClassifier):
    """Answers for the public set, and fails on the test set."""

    def predict(self, X: Any, *args: Any) -> Any:
        if len(X) == 114:
            raise RuntimeError("no test today")
        return super().predict(X, *args)


def test_a_site_that_fails_its_test_is_not_left_out_silently(cancer: Any) -> None:
    sites = cancer.sites()
    sites[2] = cg.Site("site2", sites[2].X, sites[2].y, learner=FailsLater())
    with pytest.warns(cg.DoubtfulResult, match="could not be tested: site2"):
        cancer.run(cg.FedCT(rounds=1), sites=sites)
