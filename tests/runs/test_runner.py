from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core.labels import Labels
from collegium.errors import in_one_line
from collegium.runs.runner import thinned


class Secretive(DecisionTreeClassifier):
    """Raises an exception that quotes data."""

    def fit(self, X, y):
        raise ValueError(f"SECRET patient number 4711: {X[0]}")


def test_the_issue_example_runs_as_it_is_written():
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    clf = DecisionTreeClassifier()
    split = cg.split(X, y, sites=5, public=370, test=114, partition=cg.Iid(), seed=0)
    sites = [cg.Site(f"site{i}", Xi, yi, learner=clf) for i, (Xi, yi) in enumerate(split.sites)]
    run = cg.run(
        cg.FedCT(rounds=5, consensus=cg.QualifiedMajority(0.9)),
        sites=sites,
        public=split.public,
        test=split.test,
        public_truth=None,
        seed=0,
        workers=0,
    )
    assert set(run.models["site0"].predict(X)) <= {0, 1}
    assert {"party", "round", "step", "kind", "bytes", "sha256"} <= set(run.releases.columns)
    assert list(run.metrics.columns) == ["round", "party", "split", "metric", "value"]
    assert len(run.releases) == 25


def test_a_learner_that_raises_is_reported_with_a_code_and_the_others_go_on(cancer, capfd, tmp_path):
    sites = cancer.sites()
    sites[2] = cg.Site("site2", sites[2].X, sites[2].y, learner=Secretive())
    with pytest.warns(cg.CollegiumWarning, match="site2.*step-failed") as caught:
        run = cancer.run(cg.FedCT(rounds=3), sites=sites, out=tmp_path / "run")
    assert set(run.models) == {"site0", "site1", "site3", "site4"}
    assert set(run.refusals["code"]) == {"step-failed"}
    assert run.summary().loc["site2", "failures"] == 3
    captured = capfd.readouterr()
    said = captured.out + captured.err + "".join(str(w.message) for w in caught) + run.summary().to_string()
    assert "SECRET" not in said
    assert "SECRET" in "".join(run.logs["site2"])
    log = tmp_path / "run" / "sites" / "site2" / "site.log"
    holding = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"SECRET" in path.read_bytes()]
    assert holding == [log]


def test_a_quorum_ends_the_run_when_too_few_sites_work(cancer):
    sites = cancer.sites()
    sites[2] = cg.Site("site2", sites[2].X, sites[2].y, learner=Secretive())
    with pytest.raises(cg.QuorumLost, match="4 of 5") as caught:
        cancer.run(cg.FedCT(rounds=3), sites=sites, quorum=1.0)
    assert "SECRET" not in str(caught.value)


def test_all_sites_failing_ends_the_run(cancer):
    with pytest.raises(cg.QuorumLost, match="0 of 5") as caught:
        cancer.run(cg.FedCT(rounds=3), Secretive())
    assert caught.value.__notes__ == ["The sites' logs: this error's `logs`, by site"]
    assert "SECRET" in "".join(caught.value.logs["site3"])
    assert "SECRET" not in str(caught.value)
    # Whoever runs a simulation sees at once what was raised: beside the message, which may be kept elsewhere.
    assert "SECRET" in str(caught.value.__cause__)
    assert str(caught.value.__cause__) in in_one_line(caught.value)


def test_a_site_whose_policy_forbids_labels_releases_none(cancer):
    sites = cancer.sites()
    closed = cg.Policy(unprotected=())
    sites[0] = cg.Site("site0", sites[0].X, sites[0].y, learner=DecisionTreeClassifier(), policy=closed)
    with pytest.warns(cg.CollegiumWarning, match="unprotected"):
        run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    assert "site0" not in set(run.releases["party"])
    assert "site0" in run.models


def test_first_round_labels_are_packed_to_log2_of_the_classes(digits):
    run = digits.run(cg.FedCT(rounds=2))
    first = run.releases[run.releases["round"] == 0]
    limit = 1.05 * 700 * np.log2(10) / 8
    assert (first["bytes"] <= limit).all()
    assert (first["bytes"] > 0).all()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_dataframes_with_categories_go_through_a_pipeline(workers):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 300), "ward": rng.choice(["icu", "er", "gp"], 300)})
    frame.loc[::7, "ward"] = None
    y = np.where((frame["age"] > 60) ^ (frame["ward"] == "icu"), "ill", "well")
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["ward"]), remainder=StandardScaler())
    split = cg.split(frame, y, sites=3, public=100, test=60, seed=0)
    sites = [
        cg.Site(n, *part, learner=make_pipeline(encode, KNeighborsClassifier(3)))
        for n, part in zip(split.names, split.sites, strict=True)
    ]
    run = cg.run(cg.FedCT(rounds=2), sites=sites, public=split.public, test=split.test, workers=workers)
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.6
    assert set(run.models["site0"].predict(frame)) == {"ill", "well"}


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_sparse_matrices(digits, workers):
    split = digits.split
    sites = [
        cg.Site(f"s{i}", sparse.csr_matrix(X), y, learner=LogisticRegression()) for i, (X, y) in enumerate(split.sites)
    ]
    public, test = sparse.csc_matrix(split.public), (sparse.csr_matrix(split.test[0]), split.test[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=FutureWarning)
        run = cg.run(cg.FedCT(rounds=2), sites=sites, public=public, test=test, workers=workers)
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.85


def test_sites_lacking_classes_learn_them_from_the_others(digits):
    X, y = digits.split.sites[0]
    only = np.isin(y, [0, 1, 2])
    learner = LogisticRegression(max_iter=500)
    sites = [cg.Site("narrow", X[only], y[only], learner=learner), *digits.sites(learner)[1:]]
    run = digits.run(cg.FedCT(rounds=3), sites=sites)
    accuracy = run.accuracy["narrow"]
    assert accuracy.iloc[0] < 0.35
    assert accuracy.iloc[-1] > 0.7
    assert run.models["narrow"].predict_proba(X).shape == (len(X), 10)


def test_costs_count_bytes_and_seconds(digits):
    run = digits.run(cg.FedCT(rounds=3))
    sites = run.costs[run.costs["party"] != "coordinator"]
    assert (sites[["bytes_up", "bytes_down"]] > 0).all(axis=None)
    assert (sites["seconds_fit"] > 0).all()
    assert (sites["seconds_predict"] > 0).all()
    assert (sites["seconds_wire"] > 0).all()
    coordinator = run.costs[run.costs["party"] == "coordinator"]
    assert (coordinator["seconds_consensus"] > 0).all()
    released = run.releases.groupby("party")["wire_bytes"].sum()
    assert (sites.groupby("party")["bytes_up"].sum() > released).all()


def test_consensus_quality_is_measured_where_the_truth_is_known(cancer):
    run = cancer.run(cg.FedCT(rounds=2), public_truth=cancer.split.public_truth)
    quality = run.metrics[run.metrics["metric"] == "consensus_quality"]["value"]
    truth = cancer.split.public_truth
    assert quality.iloc[-1] == pytest.approx(np.mean(run.classes[run.labels.codes] == truth))


def test_the_global_model_learned_the_public_consensus_only(cancer):
    run = cancer.run(cg.FedCT(rounds=3), global_learner=KNeighborsClassifier(1))
    predicted = run.global_model.predict(cancer.split.public)
    assert (predicted == run.classes[run.labels.codes]).all()
    assert run.global_model.estimator.n_samples_fit_ == len(cancer.split.public)


def test_without_a_test_set_nothing_is_measured_on_one(cancer):
    run = cancer.run(cg.FedCT(rounds=1), test=None)
    assert "test" not in set(run.metrics["split"])
    assert run.summary()["accuracy"].isna().all()


def test_a_progress_bar_is_shown_when_asked_for(cancer, capfd):
    cancer.run(cg.FedCT(rounds=2), progress=True)
    assert "FedCT" in capfd.readouterr().err
    cancer.run(cg.FedCT(rounds=2))
    assert capfd.readouterr().err == ""


def test_out_must_be_a_folder(cancer, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(cg.ConfigError, match="is a file"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path / "file")


def test_a_deadline_in_the_past_is_an_error(cancer):
    with pytest.raises(cg.ConfigError, match="deadline"):
        cancer.run(cg.FedCT(rounds=1), deadline=0)


class FailsTheTest(DecisionTreeClassifier):
    """Cannot predict the test set."""

    def predict(self, X):
        if len(X) == 114:
            raise ValueError("SECRET")
        return super().predict(X)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_model_that_cannot_take_the_test_takes_part_all_the_same(cancer, workers):
    sites = cancer.sites()
    sites[1] = cg.Site("site1", sites[1].X, sites[1].y, learner=FailsTheTest())
    run = cancer.run(cg.FedCT(rounds=2), sites=sites, workers=workers)
    assert run.refusals.empty
    assert "site1" not in run.accuracy.columns
    assert "SECRET" in "".join(run.logs["site1"])


class NoPickle(DecisionTreeClassifier):
    """Cannot be stored."""

    def __getstate__(self):
        raise TypeError("SECRET")


def test_a_model_that_cannot_be_stored_fails_at_its_site_only(cancer, tmp_path):
    sites = cancer.sites()
    sites[1] = cg.Site("site1", sites[1].X, sites[1].y, learner=NoPickle())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = cancer.run(cg.FedCT(rounds=2), sites=sites, out=tmp_path / "run")
    said = " ".join(str(warning.message) for warning in caught)
    assert "step-failed" in said
    assert "cannot be stored" in said
    assert "SECRET" not in said
    assert set(run.releases["party"]) == {"site0", "site2", "site3", "site4"}
    assert set(cg.load(tmp_path / "run").models) == {"site0", "site2", "site3", "site4"}


def test_a_first_site_that_fails_costs_only_the_global_model(cancer):
    sites = cancer.sites()
    sites[0] = cg.Site("site0", sites[0].X, sites[0].y, learner=Secretive())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    assert run.global_model is None
    assert len(run.models) == 4
    said = " ".join(str(warning.message) for warning in caught)
    assert "No global model" in said
    assert "global_learner" in said
    assert "SECRET" not in said


def test_filters_for_warnings_are_put_back(digits):
    before = list(warnings.filters)
    digits.run(cg.FedCT(rounds=2), RandomForestClassifier(10))
    assert warnings.filters == before


def test_labels_that_are_fractions(cancer):
    split = cancer.split
    half = {"malignant": 0.5, "benign": 1.0}
    sites = [
        cg.Site(name, X, [half[label] for label in y], learner=learner)
        for (name, (X, y)), learner in zip(
            zip(split.names, split.sites, strict=True),
            [DecisionTreeClassifier(), LogisticRegression(), KNeighborsClassifier(3)] * 2,
            strict=False,
        )
    ]
    test = (split.test[0], np.array([half[label] for label in split.test[1]]))
    run = cancer.run(cg.FedCT(rounds=2), sites=sites, test=test)
    assert run.refusals.empty
    assert set(run.models["site0"].predict(split.test[0])) == {0.5, 1.0}
    assert run.summary().loc["mean", "accuracy"] > 0.7


def test_sites_need_not_take_the_test():
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    parts = {"a": slice(0, 20), "b": slice(20, 40)}
    sites = [cg.Site(name, X[part], y[part], learner=cg.TorchClassifier("linear")) for name, part in parts.items()]
    with_sites, without = (
        cg.run(cg.FedAvg(rounds=2), sites=sites, test=(X[40:], y[40:]), test_sites=each) for each in (True, False)
    )
    assert with_sites.accuracy.shape == (2, 2)
    assert without.accuracy.empty
    common = [run.metrics.query("metric == 'global_accuracy'")["value"].tolist() for run in (with_sites, without)]
    assert common[0] == common[1]
    assert without.summary()["accuracy"].isna().all()


def test_thinned_labels_keep_every_class_and_its_share():
    codes = np.array([0] * 900 + [1] * 90 + [2] + [-1] * 50, dtype=np.int8)
    few = thinned(Labels(codes, 4), 100, seed=0)
    kept = few.known
    assert np.array_equal(few.codes[kept], codes[kept])
    assert np.bincount(few.codes[kept]).tolist() == [90, 9, 1]
    assert thinned(few, None, seed=0) is thinned(few, 100, seed=0) is few


@pytest.mark.parametrize(
    ("kind", "workers"),
    [(pd.Series, 2), (list, 1), (np.array, 1), (lambda texts: pd.Series(texts).to_frame("note"), 1)],
)
def test_texts_may_be_a_series_a_list_or_a_table_of_one_column(kind, workers):
    texts = [f"{word} {number}" for number in range(20) for word in ("well", "ill")]
    X, y = kind(texts), np.array(["well", "ill"] * 20)
    learner = make_pipeline(TfidfVectorizer(), LogisticRegression())
    sites = [cg.Site(name, X, y, learner=learner) for name in "ab"]
    run = cg.run(cg.FedCT(rounds=2), sites=sites, public=X, test=(X, y), metrics=["roc_auc"], workers=workers)
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] == 1.0
    assert run.scores["roc_auc"].eq(1.0).all()
    assert list(run.models["a"].predict(["very ill"])) == list(run.models["a"].predict(pd.Series(["ill"]))) == ["ill"]


def test_a_column_of_texts_may_be_one_of_several():
    X = pd.DataFrame({"note": ["well", "ill"] * 20, "age": range(40)})
    learner = make_pipeline(make_column_transformer((TfidfVectorizer(), "note")), LogisticRegression())
    sites = [cg.Site(name, X, ["well", "ill"] * 20, learner=learner) for name in "ab"]
    run = cg.run(cg.FedCT(rounds=1), sites=sites, public=X, test=(X, ["well", "ill"] * 20))
    assert run.summary().loc["mean", "accuracy"] == 1.0


@pytest.mark.parametrize("stops", [None, 3])
def test_a_common_model_is_tested_as_often_as_asked_for_and_at_the_end(cancer, stops):
    class Stop(cg.Callback):
        def on_round(self, report):
            return report.round == stops

    pytest.importorskip("torch")
    sites = cancer.sites(cg.TorchClassifier("linear", batch_size=16))
    run = cancer.run(cg.FedAvg(rounds=8), sites=sites, test_every=3, callbacks=[Stop()])
    tested = run.metrics.query("metric == 'global_accuracy'")["round"].tolist()
    assert tested == ([2, 5, 7] if stops is None else [2, 3])


def test_sites_are_tested_as_often_as_asked_for(cancer):
    every, seldom = (cancer.run(cg.FedCT(rounds=4), test_every=n) for n in (1, 2))
    assert list(every.accuracy.index) == [0, 1, 2, 3]
    assert list(seldom.accuracy.index) == [1, 3]
    pd.testing.assert_frame_equal(seldom.accuracy, every.accuracy.loc[[1, 3]])
    with pytest.raises(cg.ConfigError, match="test_every must be an integer of at least 1"):
        cancer.run(cg.FedCT(rounds=4), test_every=0)
