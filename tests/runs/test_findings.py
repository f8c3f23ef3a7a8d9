"""`cg.check`: what is wrong with the data, found before the run and told without a single row."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import collegium as cg
from collegium.cli.main import app
from collegium.errors import ConfigError
from collegium.runs.findings import CODES

RNG = np.random.default_rng(0)
FEATURES = ["age", "pressure", "pulse"]


def frame(n: int = 40) -> pd.DataFrame:
    return pd.DataFrame(RNG.normal(size=(n, 3)), columns=FEATURES)


def labels(n: int = 40) -> list[str]:
    return ["ill", "well"] * (n // 2)


def site(name: str = "north", X: Any = None, y: Any = None, learner: Any = None) -> cg.Site:
    X = frame() if X is None else X
    return cg.Site(name, X, labels(len(X)) if y is None else y, learner=learner or DecisionTreeClassifier())


def found(sites: list[cg.Site], public: Any = None, test: Any = None) -> set[tuple[str, str]]:
    return {(finding.code, finding.site) for finding in cg.check(sites, public=public, test=test)}


def test_nothing_is_found_in_good_data() -> None:
    assert cg.check([site("north"), site("south")], public=frame(), test=(frame(), labels())) == []


def test_columns_that_differ() -> None:
    renamed = frame().rename(columns={"pulse": "heart rate"})
    assert found([site(), site("south", renamed)]) == {("columns", "south")}
    assert found([site()], public=frame()[FEATURES[::-1]]) == {("column-order", "public")}
    words = frame().assign(age=lambda table: np.where(table["age"] > 0, "old", "young"))
    assert found([site(), site("south", words)]) == {("column-type", "south")}
    assert found([site()], public=frame().to_numpy()) == {("shape", "public")}
    arrays = [site(X=RNG.normal(size=(40, 3))), site("south", RNG.normal(size=(40, 4)))]
    assert found(arrays) == {("shape", "south")}


def test_labels_that_differ() -> None:
    assert found([site(), site("south", y=["Ill ", "well"] * 20)]) >= {
        ("label-spelling", "south"),
        ("label-spelling", "north"),
    }
    assert ("label-type", "south") in found([site(), site("south", y=[0, 1] * 20)])
    assert ("unknown-label", "test") in found([site()], test=(frame(), ["ill", "dead"] * 20))
    measured = RNG.normal(size=40)
    assert ("float-target", "north") in found([site(y=measured)])
    assert ("float-target", "north") not in found([site(y=[0.0, 1.0] * 20)])
    # Which measurements the test set has is nothing to be said: each is of a row.
    assert found([site(y=measured)], test=(frame(), measured + 1)) == {
        ("float-target", "north"),
        ("float-target", "test"),
    }


def test_whole_numbers_that_are_hardly_classes() -> None:
    ages = RNG.permutation(np.arange(30, 70))
    assert ("integer-target", "north") in found([site(y=ages)])
    codes = np.arange(40) % 39
    gaps = [site(y=np.where(codes == 7, 8, codes)), site("south", y=np.where(codes == 9, 7, codes))]
    assert not {code for code, _ in found(gaps)} & {"integer-target"}  # together they are 0 .. 38
    assert not {code for code, _ in found([site(y=codes + 1)])} & {"integer-target"}
    assert ("integer-target", "north") not in found([site(y=[18, 81] * 20)])
    sites = [site(X=RNG.normal(size=(40, 2)), y=ages, learner=DecisionTreeClassifier())]
    run = partial(cg.run, cg.Local(), sites=[*sites, *(replace(sites[0], name=name) for name in ("south", "west"))])
    with pytest.warns(cg.Advice, match="40 different whole numbers"):
        run()
    with warnings.catch_warnings(action="error", category=cg.Advice):
        run(classes=ages)


def test_balance() -> None:
    sites = [site(), site("south", y=["ill"] * 40), site("west", y=["ill"] * 39 + ["well"])]
    assert found(sites) == {("one-class", "south"), ("imbalance", "west"), ("few-rows", "west")}
    three = [site(y=["a", "b", "c", "a"] * 10), site("south", y=["a", "b"] * 20)]
    assert found(three) == {("missing-class", "south")}


def test_blank_cells_and_constant_columns() -> None:
    blank = frame()
    blank.iloc[3, 1] = np.nan
    assert found([site(X=blank, learner=LogisticRegression())]) == {("missing-values", "north")}
    assert found([site(X=blank, learner=HistGradientBoostingClassifier())]) == set()
    scaled = [StandardScaler(), LogisticRegression()]
    assert found([site(X=blank, learner=make_pipeline(*scaled))]) == {("missing-values", "north")}
    assert found([site(X=blank, learner=make_pipeline(RobustScaler(), PCA(1), *scaled))]) == {
        ("missing-values", "north")
    }
    assert found([site(X=blank, learner=make_pipeline(SimpleImputer(), *scaled))]) == set()
    assert found([site(X=blank, learner=make_pipeline(StandardScaler(), SimpleImputer(), *scaled))]) == set()
    assert found([site(learner=LogisticRegression())], public=blank) == {("missing-values", "public")}
    assert found([site(X=frame().assign(pulse=1.0))]) == {("constant-column", "north")}


def test_rows_that_stand_in_several_sets() -> None:
    X = frame(60)
    sites = [site(X=X[:40]), site("south", X[38:58])]
    findings = cg.check(sites, public=pd.concat([X[:3], frame()]), test=(X[39:42], ["ill", "well", "ill"]))
    assert [(each.code, each.site) for each in findings if each.code == "same-rows"] == [
        ("same-rows", "south"), ("same-rows", "public"), ("same-rows", "test"), ("same-rows", "test"),
    ]  # fmt: skip
    assert "3 of its different rows are also in site 'north'" in next(f.message for f in findings if f.site == "public")
    assert "too high" in findings[-1].message


def test_no_finding_shows_a_row() -> None:
    secret = frame().assign(age=123456.789)
    secret.iloc[0, 1] = np.inf
    findings = cg.check([site(X=secret, learner=LogisticRegression()), site("south", secret)], public=secret)
    assert {finding.code for finding in findings} == {"missing-values", "constant-column", "same-rows"}
    assert not any("123456" in str(finding) for finding in findings)
    assert all(finding.code in CODES for finding in findings)


def test_it_takes_sites_only() -> None:
    with pytest.raises(ConfigError, match="check takes sites"):
        cg.check([])
    with pytest.raises(ConfigError, match="same name"):
        cg.check([site(), replace(site())])
    assert cg.check(site()) == []


def test_the_command(tmp_path: Any) -> None:
    table = frame(200).assign(label=["ill", "Ill"] * 100)
    table.to_csv(tmp_path / "table.csv", index=False)
    study = tmp_path / "study.toml"
    study.write_text(
        'algorithm = "fedct"\n[data]\nsource = "table.csv"\ntarget = "label"\n[partition]\nsites = 2\n',
        encoding="utf-8",
    )
    answer = CliRunner().invoke(app, ["check", str(study), "--json"])
    assert answer.exit_code == 5
    assert {each["code"] for each in json.loads(answer.output)} == {"label-spelling"}
    assert "label-spelling" in CliRunner().invoke(app, ["check", str(study)]).output
    table.assign(label=["ill", "well"] * 100).to_csv(tmp_path / "table.csv", index=False)
    clean = CliRunner().invoke(app, ["check", str(study)])
    assert clean.exit_code == 0
    assert "Nothing was found" in clean.output


def test_another_spelling_is_no_missing_class() -> None:
    sites = [site(), site("south", y=["ILL", "well "] * 20)]
    assert {code for code, _ in found(sites)} == {"label-spelling"}


def test_a_run_says_that_labels_are_spelled_in_several_ways() -> None:
    sites = [site(), site("south", y=["ILL", "well"] * 20)]
    with pytest.warns(cg.Advice, match="'ILL' and 'ill'"):
        cg.run(cg.Local(), sites=sites)


def test_columns_in_another_order_are_put_into_the_first_sites() -> None:
    one, other = frame(), frame()
    sites = [site(X=one), site("south", other)]
    turned = [sites[0], site("south", other[FEATURES[::-1]])]
    public, test = frame(), (frame(), labels())
    usual = cg.run(cg.FedCT(2), sites=sites, public=public, test=test)
    with pytest.warns(cg.Advice, match="order of 'north': those of south, the public set, the test set"):
        run = cg.run(cg.FedCT(2), sites=turned, public=public[FEATURES[::-1]], test=(test[0][FEATURES[::-1]], test[1]))
    assert run.labels == usual.labels
    pd.testing.assert_frame_equal(run.accuracy, usual.accuracy)


def test_whole_numbers_with_few_rows_each_are_refused_unless_they_are_named_as_classes() -> None:
    ages = RNG.permutation(np.arange(30, 70))
    sites = [site(X=RNG.normal(size=(40, 2)), y=ages), site("south", X=RNG.normal(size=(40, 2)), y=ages)]
    with pytest.raises(ConfigError, match="80 labels are 40 different numbers: they look like measurements"):
        cg.run(cg.Local(), sites=sites)
    assert cg.run(cg.Local(), sites=sites, classes=ages).finished


def test_a_study_says_before_the_run_what_to_look_at_in_its_data(tmp_path: Any) -> None:
    for name, y in {"north": labels(), "south": ["Ill", "well"] * 20}.items():
        frame().assign(died=y).to_csv(tmp_path / f"{name}.csv", index=False)
    pd.read_csv(tmp_path / "north.csv").to_csv(tmp_path / "test.csv", index=False)
    frame().to_csv(tmp_path / "public.csv", index=False)
    study = cg.Study.from_dict(
        {
            "data": {"target": "died", "public": "public.csv", "test": "test.csv"},
            "algorithm": {"name": "fedct", "rounds": 1},
            "sites": {name: {"data": f"{name}.csv", "learner": "decision_tree"} for name in ("north", "south")},
        }
    )
    with pytest.warns(
        cg.Advice, match=r"Look at the data .*case or blanks \(north, south, test\).*same rows .* \(test\)"
    ):
        study.run(base=tmp_path)
