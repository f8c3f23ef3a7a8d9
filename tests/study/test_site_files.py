"""Studies as people have them: a file per site, learners by site, pipelines."""

from __future__ import annotations

import tomllib

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

import collegium as cg
from collegium.core.building import build
from collegium.errors import ConfigError
from collegium.study.schema import json_schema
from collegium.study.study import Study

TOML = """
name = "sepsis"
[data]
target = "ill"
drop = ["patient"]
public = "public.csv"
test = "test.parquet"
[algorithm]
name = "fedct"
rounds = 2
[sites.north]
data = "north.csv"
learner = { name = "random_forest", n_estimators = 5 }
[sites.east]
data = "east.parquet"
learner = ["imputer", "scaler", { name = "pca", n_components = 2 }, "logistic_regression"]
[sites.south]
data = "south.csv"
"""


def patients(rng, rows):
    X = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["age", "pulse", "lactate"])
    X["ill"] = np.where(X["age"] + X["lactate"] > 0, "yes", "no")
    X["patient"] = np.arange(rows)
    return X


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    north, east, south, public, test = (patients(rng, rows) for rows in (60, 50, 40, 80, 50))
    east.loc[::9, "pulse"] = np.nan
    north.to_csv(tmp_path / "north.csv", index=False)
    east.to_parquet(tmp_path / "east.parquet")
    south[["patient", "ill", "lactate", "pulse", "age"]].to_csv(tmp_path / "south.csv", index=False)
    public.drop(columns=["ill", "patient"]).to_csv(tmp_path / "public.csv", index=False)
    test.to_parquet(tmp_path / "test.parquet")
    (tmp_path / "study.toml").write_text(TOML)
    return tmp_path


def test_every_site_has_its_file_and_its_learner(folder):
    prepared = Study.from_toml(folder / "study.toml").prepare(folder)
    assert [(site.name, len(site)) for site in prepared.sites] == [("north", 60), ("east", 50), ("south", 40)]
    assert [list(site.X.columns) for site in prepared.sites] == [["age", "pulse", "lactate"]] * 3
    assert len(prepared.public) == 80
    assert prepared.public_truth is None
    assert len(prepared.test[1]) == 50
    assert prepared.sites[0].learner.n_estimators == 5
    assert [type(step) for _, step in prepared.sites[1].learner.steps][-2:] == [PCA, LogisticRegression]
    assert isinstance(prepared.sites[2].learner, RandomForestClassifier)


def test_it_runs_as_the_same_tables_do_in_python(folder):
    study = Study.from_toml(folder / "study.toml")
    run = study.run(folder / "run", base=folder)
    assert run.refusals.empty
    assert list(run.verdict["site"]) == ["north", "east", "south"]
    assert Study.from_toml(folder / "run" / "study.toml") == study
    prepared = study.prepare(folder)
    by_hand = cg.run(prepared.algorithm, sites=prepared.sites, public=prepared.public, test=prepared.test)
    assert run.accuracy.equals(by_hand.accuracy)


def test_labels_of_the_public_file_measure_the_consensus(folder):
    patients(np.random.default_rng(1), 30).to_csv(folder / "public.csv", index=False)
    prepared = Study.from_toml(folder / "study.toml").prepare(folder)
    assert "ill" not in prepared.public
    assert len(prepared.public_truth) == 30
    blank = patients(np.random.default_rng(1), 30).assign(ill=None)
    blank.to_csv(folder / "public.csv", index=False)
    assert Study.from_toml(folder / "study.toml").prepare(folder).public_truth is None


def test_without_a_test_file_a_share_of_every_sites_rows_is_held_out(folder):
    changes = ["data.test=0.2", "data.public=0.5"]
    prepared = Study.from_toml(folder / "study.toml", changes).prepare(folder)
    assert [len(site) for site in prepared.sites] == [24, 20, 16]
    assert len(prepared.test[1]) == 15
    assert len(prepared.public) == len(prepared.public_truth) == 75
    every = pd.concat([*(site.X for site in prepared.sites), prepared.public, prepared.test[0]])
    assert len(every) == len(every.drop_duplicates()) == 150
    counted = Study.from_toml(folder / "study.toml", ["data.test=30"]).prepare(folder)
    assert len(counted.test[1]) == 30


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("data.source=iris", ["data.source", "files of their own"]),
        ("partition.sites=3", ["partition", "files of their own"]),
        ("sites.east.data=east.xlsx", ["sites[1].data", ".parquet"]),
        ("sites.north.data=norht.csv", ["norht.csv", "'north.csv'"]),
        ("sites.east.name=north", ["two sections are for 'north'"]),
        ("sites.west.learner=knn", ["sites[3].data"]),
        ("data.target=illness", ["'illness'", "'ill'"]),
        ('data.drop=["pateint"]', ["data.drop", "'patient'"]),
        ("data.test=own", ["data.test"]),
        ("data.test=200", ["data.test", "150 rows"]),
        ("data.public=0", ["data.public", "FedCT"]),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, change, parts):
    with pytest.raises(ConfigError) as caught:
        Study.from_toml(folder / "study.toml", [change]).prepare(folder)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_labels_of_another_type_are_named_by_site(folder):
    frame = pd.read_csv(folder / "south.csv")
    frame.assign(ill=(frame["ill"] == "yes").astype(int)).to_csv(folder / "south.csv", index=False)
    with pytest.raises(cg.SiteError, match=r"south.*numbers.*north.*strings"):
        Study.from_toml(folder / "study.toml").run(base=folder)


def test_one_source_takes_a_public_and_a_test_file_too(folder):
    files = {"source": "north.csv", "public": "public.csv", "test": "test.parquet"}
    table = {
        "data": {"target": "ill", "drop": ["patient"]} | files,
        "partition": {"sites": 2},
        "algorithm": "fedct",
    }
    prepared = Study.from_dict(table).prepare(folder)
    assert [len(site) for site in prepared.sites] == [30, 30]
    assert (len(prepared.public), len(prepared.test[1])) == (80, 50)


def test_a_section_with_a_name_is_for_that_site():
    table = {"data": {"source": "iris"}, "partition": {"sites": 4}, "algorithm": "local"}
    sections = [{"learner": "decision_tree"}, {"name": "site2", "learner": "knn"}]
    sites = Study.from_dict(table | {"sites": sections}).prepare().sites
    learners = [site.learner[-1] if isinstance(site.learner, Pipeline) else site.learner for site in sites]
    assert [isinstance(learner, KNeighborsClassifier) for learner in learners] == [False, False, True, False]
    with pytest.raises(ConfigError, match=r"there is no site 'site9'.*site0"):
        Study.from_dict(table | {"sites": [*sections, {"name": "site9"}]}).prepare()
    with pytest.raises(ConfigError, match="no section is for 'site0'"):
        Study.from_dict(table | {"sites": sections[1:]}).prepare()


def test_a_pipeline_works_on_its_columns_side_by_side():
    steps = tomllib.loads("""learner = [
        { name = "tfidf", columns = "note", ngram_range = [1, 2] },
        { name = "imputer", columns = ["age"] },
        { name = "scaler", columns = ["age"] },
        "logistic_regression",
    ]""")["learner"]
    frame = pd.DataFrame(
        {"note": ["very ill", "well", "ill", "is well"], "age": [70, np.nan, 80, 30], "sex": [0, 1, 1, 0]}
    )
    model = build("learner", steps, "learner").fit(frame, ["yes", "no", "yes", "no"])
    assert list(model.predict(frame)) == ["yes", "no", "yes", "no"]
    assert model.n_features_in_ == 3
    texts, numbers = (chain for _, chain, _ in model[0].transformers[:2])
    assert texts.ngram_range == (1, 2)
    assert len(numbers) == 2


@pytest.mark.parametrize(
    ("steps", "parts"),
    [
        ([], ["learner", "empty"]),
        (["scalar", "svm"], ["learner[0].name", "'scaler'"]),
        (["svm", "scaler"], ["learner[0].name", "transformer"]),
        (["scaler", {"name": "pca", "columns": ["a"]}, "svm"], ["learner[1].columns", "first"]),
        ([{"name": "pca", "n_component": 2}, "svm"], ["learner[0].n_component", "'n_components'"]),
        ([{"name": "pca", "columns": 3}, "svm"], ["learner[0].columns"]),
    ],
)
def test_a_pipeline_with_a_mistake_says_where(steps, parts):
    with pytest.raises(ConfigError) as caught:
        build("learner", steps, "learner")
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_private_learner_takes_a_pipeline_as_its_base():
    learner = build("learner", {"name": "private_voting", "base": ["scaler", "svm"]}, "learner")
    assert isinstance(learner.base, Pipeline)


def test_the_schema_takes_it():
    valid, schema = tomllib.loads(TOML), jsonschema.Draft202012Validator(json_schema())
    schema.validate(valid)
    assert not schema.is_valid(valid | {"sites": {"north": {"date": "north.csv"}}})
    assert not schema.is_valid(valid | {"sites": {"north": {"learner": [1]}}})
