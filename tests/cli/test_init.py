from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.cli.commands import collegium

import collegium as cg
from collegium.study.drafting import draft_study
from collegium.study.study import Study


def patients(rng, rows):
    X = pd.DataFrame({"patient_id": rng.permutation(10_000)[:rows], "age": rng.normal(60, 9, rows)})
    X["ward"], X["lactate"] = rng.choice(["icu", "er"], rows), rng.gamma(2, 1, rows)
    return X.assign(died=np.where(X["lactate"] > 2, "yes", "no"))


@pytest.fixture
def folder(tmp_path):
    """Two sites, public rows and test rows."""
    rng, folder = np.random.default_rng(0), tmp_path / "my data"
    folder.mkdir()
    patients(rng, 90).to_csv(folder / "north.csv", index=False)
    east = patients(rng, 300)
    east.loc[::9, "age"] = np.nan
    east.to_parquet(folder / "east side.parquet")
    patients(rng, 60).drop(columns="died").to_csv(folder / "public.csv", index=False)
    patients(rng, 60).to_csv(folder / "TestSet.csv", index=False)
    return folder


def test_a_study_is_written_that_runs(folder):
    said = collegium("init", str(folder))
    assert said.returncode == 0, said.stderr
    found = dict(line.split(": ", 1) for line in said.stdout.splitlines()[:5])
    assert {key: value.strip() for key, value in found.items()} == {
        "sites": "east side, north", "target": "died", "public": "public.csv", "test": "TestSet.csv",
        "study": str(folder / "study.toml"),
    }  # fmt: skip
    assert f"collegium run {folder / 'study.toml'}" in said.stdout
    assert "Nothing was found" in said.stdout
    study = Study.from_toml(folder / "study.toml")
    assert (study.name, study.data.drop, study.metrics) == ("my-data", ["patient_id"], ["balanced_accuracy", "roc_auc"])
    assert [site.learner for site in study.sites] == ["random_forest", "logistic_regression"]
    assert "blank cells in 'age'" in (folder / "study.toml").read_text()
    ran = collegium("run", "study.toml", "--set", "algorithm.rounds=1", "--json", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout)["accuracy"]) == {"north", "east side", "mean"}


def test_numbers_that_each_hospital_gives_its_own_patients_are_dropped(folder):
    for name in ("north", "south"):
        rows = patients(np.random.default_rng(1), 50).assign(patient_id=range(50))
        rows.to_csv(folder / f"{name}.csv", index=False)
    (folder / "east side.parquet").unlink()
    assert '"patient_id": numbers the rows' in draft_study(folder).text


def test_a_file_is_no_folder(folder):
    assert "name the folder that it is in" in collegium("init", str(folder / "north.csv")).stderr


def test_spreadsheets_are_to_be_saved_as_csv(tmp_path):
    (tmp_path / "north.xlsx").write_bytes(b"")
    said = collegium("init", str(tmp_path))
    assert said.returncode == 2
    assert "Save spreadsheets as CSV" in said.stderr


def test_nothing_is_overwritten(folder):
    (folder / "study.toml").write_text("mine")
    assert collegium("init", str(folder)).returncode == 2
    assert (folder / "study.toml").read_text() == "mine"
    assert collegium("init", "--out", "other.toml", cwd=folder).returncode == 0
    assert (folder / "other.toml").exists()
    elsewhere = collegium("init", str(folder), "--out", str(folder.parent / "study.toml"))
    assert elsewhere.returncode == 2
    assert "beside" in elsewhere.stderr


def test_what_the_check_finds_is_shown(folder):
    pd.read_csv(folder / "north.csv").replace({"died": {"yes": "Yes"}}).to_csv(folder / "north.csv", index=False)
    said = collegium("init", str(folder))
    assert said.returncode == 0, said.stderr
    assert "label-spelling" in said.stdout


def test_a_public_file_is_known_by_what_it_lacks(folder):
    (folder / "public.csv").rename(folder / "cases.csv")
    assert draft_study(folder).public == "cases.csv"


def test_without_public_and_test_files_shares_of_the_sites_rows_are_taken(folder):
    (folder / "public.csv").unlink()
    (folder / "TestSet.csv").unlink()
    made = draft_study(folder, "died")
    assert (made.public, made.test) == (None, None)
    (folder / "study.toml").write_text(made.text)
    prepared = Study.from_toml(folder / "study.toml").prepare(folder)
    assert len(prepared.public) > 100
    assert len(prepared.test[1]) > 30


def test_columns_that_some_files_lack_are_dropped_with_a_reason(folder):
    pd.read_csv(folder / "north.csv").assign(room=1).to_csv(folder / "north.csv", index=False)
    made = draft_study(folder)
    assert '# "room": not in all files' in made.text
    (folder / "study.toml").write_text(made.text)
    assert Study.from_toml(folder / "study.toml").data.drop == ["room", "patient_id"]
    assert Study.from_toml(folder / "study.toml").run(base=folder).refusals.empty


def test_texts_get_a_pipeline(tmp_path):
    rng = np.random.default_rng(0)
    words = {"ill": ["fever", "pain", "cough", "rash"], "well": ["fine", "healthy", "strong", "rested"]}
    for name, rows in {"north": 60, "east": 60, "public": 60, "test": 60}.items():
        y = rng.choice(["ill", "well"], rows)
        texts = [" ".join([*rng.choice(words[label], 4), "patient", str(n)]) for n, label in enumerate(y)]
        frame = pd.DataFrame(
            {"note": texts, "age": rng.normal(60, 9, rows), "sex": rng.choice(["f", "m"], rows), "state": y}
        )
        frame.loc[3, ["note", "age"]] = None
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    made = draft_study(tmp_path, "state")
    (tmp_path / "study.toml").write_text(made.text)
    study = Study.from_toml(tmp_path / "study.toml", ["algorithm.rounds=1"])
    assert [step["name"] for step in study.sites[0].learner[:-1]] == ["tfidf", "imputer", "scaler", "one_hot"]
    run = study.run(base=tmp_path)
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.8


def frame(**columns):
    return pd.DataFrame({name: list(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({}, ["no tables", ".csv"]),
        ({"one": frame(a="12", y="ab")}, ["one table only", "one.csv", "by_column"]),
        ({"a": frame(b="12", c="xy"), "d": frame(e="12", f="xy")}, ["no column in common"]),
        ({"a": frame(b="12", y="xy"), "d": frame(e="12", y="xy")}, ["no column in common", "Besides 'y'"]),
        ({"a": frame(b="1212", c="xyxy"), "d": frame(b="1212", c="xyxy")}, ["Which column", "'b', 'c'", "--target"]),
        ({"a": frame(b=[0.5, 1.5], c=[1.5, 2.5]), "d": frame(b=[0.5, 1.5], c=[1.5, 2.5])}, ["No column looks like"]),
        ({"a": frame(b=range(50), y=range(30, 80)), "d": frame(b=range(50), y=range(30, 80))}, ["'y'", "measurement"]),
        ({"a": frame(b="12", y="xy"), "test": frame(b="12", y="xy")}, ["a.csv is the only file of a site"]),
        ({"test1": frame(b="12", y="xy"), "test2": frame(b="12", y="xy")}, ["Which file", "test rows"]),
        ({"a": frame(b="12", y=["x", None]), "d": frame(b="12", y="xy")}, ["a.csv: 1 of 2 rows", "drop"]),
        ({"a": frame(b=["1;2"]), "d": frame(b="12", y="xy")}, ["one column only", "separates"]),
    ],
)  # fmt: skip
def test_folders_that_are_no_study_get_a_clear_line(files, parts, tmp_path):
    for name, table in files.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    said = collegium("init", cwd=tmp_path)
    assert said.returncode == 2
    assert len(said.stderr.strip().splitlines()) == 1
    assert all(part in said.stderr for part in parts), said.stderr
    assert not (tmp_path / "study.toml").exists()


def test_a_target_that_is_nowhere_is_answered_with_the_nearest(folder):
    with pytest.raises(cg.ConfigError, match=r"'dyed'.*'died'"):
        draft_study(folder, "dyed")
    with pytest.raises(cg.ConfigError, match="no folder"):
        draft_study(folder / "none")
