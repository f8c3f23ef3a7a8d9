"""Tables of hospitals have blank cells: whichever table has them, a study can be rehearsed, checked and carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.cli.commands import collegium
from tests.flare.offices import OfficeHost, write_site

from collegium.flare.coordinator.coordinate import coordinate
from collegium.study.study import Study

NAMES = ("north", "south")
STUDY = """
name = "wards"
[data]
source = "public.{suffix}"
[algorithm]
name = "fedct"
rounds = 2
[[sites]]
learner = "{learner}"
[federation]
classes = ["no", "yes"]
wait = 0.2
"""


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 9, rows), "crp": rng.gamma(2.0, 5.0, rows)})
    frame["stays"] = rng.integers(9, size=rows)
    frame["ward"] = rng.choice(["a", "b"], rows)
    return frame.assign(ill=np.where(frame["crp"] > 9, "yes", "no"))


def blanked(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    frame = frame.astype({"stays": "Int64"}) if what == "NA" else frame.copy()
    if what == "all":
        return frame.assign(crp=np.nan, ward=None)
    frame.loc[3, {"number": "crp", "word": "ward", "NA": "stays"}[what]] = pd.NA if what == "NA" else None
    return frame


def write(frame: pd.DataFrame, file: Path) -> None:
    if file.suffix == ".csv":
        frame.to_csv(file, index=False)
    elif file.suffix == ".parquet":
        frame.to_parquet(file)
    else:
        arrays: dict[str, Any] = {"X": frame[["age", "crp"]].to_numpy()}
        if "ill" in frame:
            arrays["y"] = frame["ill"].to_numpy(str)
        np.savez(file, **arrays)


@pytest.mark.parametrize(
    ("where", "what", "suffix", "learner"),
    [
        ("public", "number", "csv", "logistic_regression"),
        pytest.param("public", "number", "npz", "random_forest", marks=pytest.mark.slow),
        ("public", "word", "parquet", "knn"),
        pytest.param("public", "NA", "parquet", "decision_tree", marks=pytest.mark.slow),
        ("public", "all", "csv", "svm"),
        pytest.param("north", "number", "npz", "logistic_regression", marks=pytest.mark.slow),
        ("north", "all", "csv", "logistic_regression"),
        pytest.param("north", "all", "parquet", "decision_tree", marks=pytest.mark.slow),
        ("south", "NA", "parquet", "mlp"),
        pytest.param("everywhere", "number", "csv", "private_voting", marks=pytest.mark.slow),
        ("everywhere", "all", "csv", "gradient_boosting"),
    ],
)
@pytest.mark.filterwarnings("ignore:Skipping features")  # what the imputer says of a blank column
def test_blank_cells(where: str, what: str, suffix: str, learner: str, tmp_path: Path) -> None:
    tables = {name: table(60, seed) for seed, name in enumerate(NAMES)} | {"public": table(80, 9).drop(columns="ill")}
    tables = {name: blanked(each, what) if where in (name, "everywhere") else each for name, each in tables.items()}
    write(tables["public"], tmp_path / f"public.{suffix}")
    (tmp_path / "study.toml").write_text(STUDY.format(suffix=suffix, learner=learner))
    for name in NAMES:
        write_site(tmp_path / name, name, learner=learner)
        file = tmp_path / name / "site.toml"
        file.write_text(
            file.read_text()
            .replace("train.csv", f"train.{suffix}")
            .replace('"diagnosis"', '"y"' if suffix == "npz" else '"ill"')
        )
        write(tables[name], tmp_path / name / f"train.{suffix}")
    study = tmp_path / "study.toml"
    for command in (["rehearse", str(study)], ["site", "check", str(tmp_path / "north"), str(study)]):
        said = collegium(*command)
        assert said.returncode == 0, said.stdout + said.stderr
    host = OfficeHost({name: tmp_path / name for name in NAMES})
    run = coordinate(Study.from_toml(study), host, base=tmp_path, out=tmp_path / "out", progress=False)
    logs = [file.read_text() for file in tmp_path.glob("*/agent/**/site.log")]
    assert run.refusals.empty, logs
    assert run.global_model is not None
    assert set(run.releases["kind"]) >= {"HardLabels", "Scores"}
