"""Several algorithms and seeds in one study."""

from __future__ import annotations

import re
import tomllib

import jsonschema
import numpy as np
import pandas as pd
import pytest

import collegium as cg
from collegium.errors import ConfigError
from collegium.reports.grids import mean_with_interval
from collegium.study.grid import run_grid
from collegium.study.schema import json_schema
from collegium.study.study import Study

pytestmark = pytest.mark.xdist_group("grids")  # its fixtures are made once

TOML = """
name = "three"
seeds = [0, 1, 2]
metrics = ["balanced_accuracy"]
[data]
source = "rows.csv"
target = "ill"
public = 60
test = 60
[partition]
sites = 3
[[algorithms]]
name = "fedct"
rounds = 2
[[algorithms]]
name = "fedct"
label = "informed"
rounds = 2
consensus = "informed"
[[algorithms]]
name = "local"
[[sites]]
learner = { name = "decision_tree", max_depth = 3 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("grid"), np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 3)), columns=["a", "b", "c"])
    X.assign(ill=np.where(X["a"] + X["b"] + rng.normal(0, 0.5, 240) > 0, "yes", "no")).to_csv(
        folder / "rows.csv", index=False
    )
    (folder / "study.toml").write_text(TOML)
    return folder


@pytest.fixture(scope="module")
def study(folder):
    return Study.from_toml(folder / "study.toml")


@pytest.fixture(scope="module")
def grid(study, folder):
    return study.run_grid(folder / "out", base=folder)


def test_every_algorithm_runs_with_every_seed_as_it_would_alone(grid, study, folder):
    assert list(grid.runs) == ["fedct", "informed", "local"]
    assert all(list(by_seed) == [0, 1, 2] for by_seed in grid.runs.values())
    single = study.cells()["informed", 1]
    assert single.build_algorithm() == cg.FedCT(rounds=2, consensus=cg.Informed())
    assert not single.is_grid
    alone = single.run(base=folder)
    assert grid.runs["informed"][1].accuracy.equals(alone.accuracy)
    assert cg.load(folder / "out" / "informed" / "seed-1").accuracy.equals(alone.accuracy)


def test_means_have_intervals_over_the_seeds(grid):
    table = grid.summary()
    values = [run.summary().loc["mean", "accuracy"] for run in grid.runs["fedct"].values()]
    row = table.loc["fedct"]
    assert row["accuracy"] == pytest.approx(np.mean(values))
    half = 4.302652729911275 * np.std(values, ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    assert [row["accuracy_low"], row["accuracy_high"]] == pytest.approx(
        [row["accuracy"] - half, row["accuracy"] + half]
    )
    assert row["balanced_accuracy_low"] <= row["balanced_accuracy"] <= row["balanced_accuracy_high"]
    assert (table["runs"] == 3).all()
    assert table.loc["local", "difference"] == table.loc["local", "lost"] == 0


def test_the_verdict_on_each_site_is_over_the_seeds(grid):
    own = grid.verdict[grid.verdict["algorithm"] == "fedct"]
    assert list(own["site"]) == ["site0", "site1", "site2"]
    expected = cg.verdict_over(list(grid.runs["fedct"].values()))
    assert own[list(expected)].reset_index(drop=True).equals(expected)


def test_one_page_compares_them(grid, folder):
    page = (folder / "out" / "comparison.html").read_text()
    assert page.startswith("<!doctype html>")
    words = re.sub(r"<[^>]+>", " ", page)
    assert all(word in words for word in ("3 methods, 3 seeds each", "informed", "balanced_accuracy", "Did it help?"))
    for target in re.findall(r'href="([^"#][^"]*)"', page):
        assert (folder / "out" / target).is_file(), target
    assert page.count("report.html") == 9
    assert words.count("Every site has the model that it would have had alone.") == 1  # beside local


def test_only_what_is_missing_runs(grid, study, folder):
    out = folder / "out"
    at = {run: (out / run / "run.json").stat().st_mtime_ns for run in ("fedct/seed-0", "informed/seed-2")}
    missing = out / "informed" / "seed-2"
    (missing / "run.json").unlink()  # as a run leaves it that is killed before its first snapshot
    more = study.model_copy(update={"seeds": [0, 1, 2, 3]})
    begun: list[str] = []
    again = run_grid(more, out, base=folder, say=begun.append)
    assert [text.partition(" (")[0] for text in begun] == [
        "fedct, seed 3", "informed, seed 2", "informed, seed 3", "local, seed 3",
    ]  # fmt: skip
    assert (out / "fedct" / "seed-0" / "run.json").stat().st_mtime_ns == at["fedct/seed-0"]
    assert (missing / "run.json").stat().st_mtime_ns > at["informed/seed-2"]
    assert again.runs["informed"][2].accuracy.equals(grid.runs["informed"][2].accuracy)


def test_a_run_with_other_settings_or_other_data_is_not_mixed_in(grid, study, folder, tmp_path):
    deeper = study.model_copy(update={"sites": [study.sites[0].model_copy(update={"learner": "knn"})]})
    with pytest.raises(ConfigError, match=r"fedct.seed-0 holds a run with other settings.*--force.*overwrite=True"):
        deeper.run_grid(folder / "out", base=folder)
    faster = study.model_copy(update={"engine": study.engine.model_copy(update={"workers": 2})})
    same = faster.run_grid(folder / "out", base=folder)
    assert same.runs["fedct"][0].about["run"] == grid.runs["fedct"][0].about["run"]
    (tmp_path / "rows.csv").write_text((folder / "rows.csv").read_text() + "0,0,0,yes\n")
    with pytest.raises(ConfigError, match=r"rows.csv has changed since the runs in"):
        study.run_grid(folder / "out", base=tmp_path)


def test_folders_of_other_things_are_left_alone(study, folder, tmp_path):
    (tmp_path / "text.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="is not empty"):
            study.run_grid(tmp_path, base=folder, overwrite=overwrite)
    assert (tmp_path / "text.txt").read_text() == "precious"


def test_overwrite_runs_all_again(study, folder, tmp_path):
    one = study.model_copy(update={"algorithms": ["local"], "seeds": [0, 1]})
    first = one.run_grid(tmp_path / "out", base=folder)
    second = one.run_grid(tmp_path / "out", base=folder, overwrite=True)
    assert first.runs["local"][0].about["run"] != second.runs["local"][0].about["run"]
    assert first.summary()["accuracy"].equals(second.summary()["accuracy"])


def test_without_a_folder_it_stays_in_memory(study, folder, tmp_path):
    one = study.model_copy(update={"algorithms": ["local", {"name": "local", "rounds": 2}], "seeds": None})
    grid = one.run_grid(base=folder)
    assert list(grid.runs) == ["local", "local-2"]
    assert np.isnan(grid.summary().loc["local", "accuracy_low"])
    assert "href=" not in re.sub(r'href="#\w+"', "", grid.report(tmp_path / "page.html").read_text())


def test_one_algorithm_and_one_seed_are_a_run_as_ever(folder):
    single = Study.from_toml(folder / "study.toml", ["seeds=[4]", 'algorithms=["local"]'])
    assert not single.is_grid
    assert single.run(base=folder).about["seed"] == 4


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("seeds=[]", ["seeds"]),
        ("seeds=[1, 1]", ["seeds", "twice"]),
        ("seeds=[-1]", ["seeds[0]"]),
        ("algorithms.0.ruonds=3", ["algorithms[0].ruonds", "'rounds'"]),
        ('algorithms.1.label="a/b"', ["'a/b'", "label"]),
        ("algorithm=fedkt", ["algorithm or algorithms"]),
    ],
)
def test_mistakes_are_named(folder, change, parts):
    with pytest.raises(ConfigError) as caught:
        Study.from_toml(folder / "study.toml", [change])
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_what_takes_one_run_says_so(study, folder):
    for call in (study.run, study.build_algorithm):
        with pytest.raises(ConfigError, match="several algorithms or seeds"):
            call()


def test_a_list_under_algorithm_means_the_same(study, folder):
    text = TOML.replace("[[algorithms]]", "[[algorithm]]")
    (folder / "same.toml").write_text(text)
    assert Study.from_toml(folder / "same.toml") == study
    (folder / "written.toml").write_text(study.to_toml())
    assert Study.from_toml(folder / "written.toml") == study


def test_an_error_names_its_run(study, folder, tmp_path):
    wrong = study.model_copy(update={"algorithms": ["local", "fedavg"], "seeds": [5]})
    with pytest.raises(ConfigError) as caught:
        wrong.run_grid(tmp_path / "out", base=folder)
    assert caught.value.__notes__ == ["That was fedavg with seed 5. Runs that are through are kept."]
    assert cg.load(tmp_path / "out" / "local" / "seed-5").finished


def test_an_interval_needs_two_values():
    assert mean_with_interval([0.5, float("nan")])[0] == 0.5
    assert np.isnan(mean_with_interval([0.5, float("nan")])[1])
    assert np.isnan(mean_with_interval([])[0])


def test_the_schema_takes_it():
    valid, schema = tomllib.loads(TOML), jsonschema.Draft202012Validator(json_schema())
    schema.validate(valid)
    for wrong in ({"seeds": [-1]}, {"algorithms": [{"name": "local", "lable": "x"}]}, {"algorithms": []}):
        assert not schema.is_valid(valid | wrong)
    assert not schema.is_valid({key: valid[key] for key in valid if key != "algorithms"})


@pytest.mark.slow
def test_runs_whose_sites_make_a_public_set_go_on_too(study, folder, tmp_path):
    columns = {name: [-5, 5] for name in "abc"}
    table = study.model_dump(exclude_none=True) | {"algorithms": ["fedkt"], "seeds": [0, 1]}
    table |= {"data": table["data"] | {"public": "together"}, "together": {"rows": 60, "columns": columns}}
    table["algorithm"] = "fedkt"
    making = Study.from_dict(table)
    first = making.run_grid(tmp_path / "out", base=folder)
    (tmp_path / "out" / "fedkt" / "seed-1" / "run.json").unlink()
    again = making.run_grid(tmp_path / "out", base=folder)
    assert again.runs["fedkt"][1].accuracy.equals(first.runs["fedkt"][1].accuracy)
    anew = making.run_grid(tmp_path / "out", base=folder, overwrite=True)
    assert anew.runs["fedkt"][0].about["run"] != first.runs["fedkt"][0].about["run"]
