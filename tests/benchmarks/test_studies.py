from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import studies
from collegium.study.study import Study


def test_the_studies_whose_data_is_at_hand_run() -> None:
    rows = studies.report(**studies.SMALL).rows
    assert [row["study"] for row in rows] == ["fedct_table6_breast_cancer_1"]
    assert {row["outcome"] for row in rows} == {"runs"}


def test_a_study_whose_data_is_elsewhere_is_said_to_be(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path))
    (row,) = studies.report(only="dp_fedct_adult").rows
    assert row["outcome"].startswith("no data")


def test_the_private_study_of_a_census_runs_on_rows_with_words_and_gaps(tmp_path) -> None:
    pytest.importorskip("opacus")
    rng, n = np.random.default_rng(0), 600
    age = rng.integers(17, 90, n).astype(float)
    income = np.where(age + rng.normal(0, 10, n) > 50, ">50K", "<=50K")
    blank = rng.random(n) < 0.1
    rows = pd.DataFrame({"age": np.where(blank, np.nan, age), "work": rng.choice(["state", "own", None], n)})
    rows.assign(income=income).to_csv(tmp_path / "census.csv", index=False)
    file = studies.STUDIES / "dp_fedct_adult.toml"
    smaller = [*studies.cut(Study.from_toml(file), 100), "data.source=census.csv", "data.target=income"]
    run = Study.from_toml(file, smaller).run(base=tmp_path, progress=False)
    assert run.refusals.empty
    assert set(run.privacy["kind"]) == {"dp"}
    assert run.privacy["epsilon"].max() <= 1.0


def test_every_study_can_be_cut_short() -> None:
    for file in sorted(studies.STUDIES.glob("*.toml")):
        study = Study.from_toml(file, studies.cut(Study.from_toml(file), 50))
        assert study.data.train is None or study.data.train <= 50, file.name
