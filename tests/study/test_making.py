"""Studies whose sites make their public set together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.together.tables import rows
from typer.testing import CliRunner

import collegium as cg
from collegium.cli.main import app
from collegium.data.files import read_rows
from collegium.errors import Advice, ConfigError
from collegium.site.ledger import read_ledger
from collegium.study.preparing import coordinators_part
from collegium.study.rehearsal import rehearse
from collegium.together.opinions import is_about

TABLE: dict[str, Any] = {
    "name": "together",
    "data": {"source": "patients.csv", "target": "state", "public": "together", "test": 200},
    "together": {
        "epsilon": 1.0,
        "rows": 300,
        "columns": {"age": [18, 90], "sex": ["F", "M"], "dose": {"low": 0.0, "high": 50.0}},
    },
    "partition": {"sites": 4},
    "algorithm": {"name": "fedct", "rounds": 2},
    "sites": [{"learner": {"name": "decision_tree", "max_depth": 3}}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Patients in a file, and a study of them."""
    path = tmp_path_factory.mktemp("study")
    frame, state = rows(1400, 5)
    frame.drop(columns="ward").assign(state=state).to_csv(path / "patients.csv", index=False)
    (path / "study.toml").write_text(cg.Study.from_dict(TABLE).to_toml())
    return path


def changed(**sections: Any) -> cg.Study:
    return cg.Study.from_dict(TABLE | sections)


def test_the_sites_of_a_study_make_their_public_set_and_label_it(folder: Path, tmp_path: Path) -> None:
    run = cg.Study.from_dict(TABLE).run(tmp_path / "run", base=folder)
    assert isinstance(run.labels, cg.Labels)
    assert len(run.labels) == 300
    assert run.about["public_made"]["claim"]["epsilon"] == pytest.approx(1.0)
    made = cg.load(tmp_path / "run-public")
    assert made.made is not None
    assert len(made.made) == 300
    report = (tmp_path / "run" / "report.html").read_text()
    assert "The public set is made up: 300 rows" in report
    assert "masked counts" in report


def test_a_budget_for_one_run_covers_both(folder: Path, tmp_path: Path) -> None:
    private = {"name": "private_voting", "epsilon": 3.0, "queries": 50, "teachers": 10}
    site = {"learner": private, "budget": {"epsilon": 5.0}}
    run = changed(sites=[site]).run(tmp_path / "run", base=folder)
    assert run.refusals.empty
    kept = read_ledger(tmp_path / "run-public-budgets" / "site0.db")
    assert {"together.histograms", "together.edges"} < {row["step"] for row in kept}
    assert any(row["step"].startswith("fedct.") for row in kept)
    with pytest.raises(cg.SiteError, match="its budget is smaller than one round costs"):
        changed(sites=[site | {"budget": {"epsilon": 3.1}}]).run(tmp_path / "other", base=folder)


def test_a_rehearsal_takes_any_rows_and_spends_nothing(folder: Path) -> None:
    prepared = cg.Study.from_dict(TABLE).prepare(folder)
    assert list(prepared.public.columns) == ["age", "sex", "dose"]
    assert len(prepared.public) == 300
    assert prepared.public["age"].between(18, 90).all()


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"data": TABLE["data"] | {"public": 100}}, 'together: these settings are for data.public = "together"'),
        ({"together": {"epsilonn": 1}}, "Did you mean 'epsilon'"),
        ({"together": {"epsilon": 0}}, "together.epsilon"),
    ],
)
def test_settings_that_do_not_fit_are_errors(sections: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        changed(**sections)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"together": {"columns": {"age": [90, 18]}}}, "'age': its range must begin below its end"),
        ({"data": TABLE["data"] | {"public_source": "iris"}}, "make the public set themselves"),
        ({"algorithm": "fedmd"}, "made-up rows have none"),
    ],
)
def test_studies_that_cannot_make_one_say_why(sections: Any, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        changed(**sections).run(base=folder)


INFORMED = {"name": "fedct", "rounds": 1, "consensus": "informed"}


def using(public: str, opinion: str, **algorithm: Any) -> cg.Study:
    """A study of rows that were made before."""
    table = {key: value for key, value in TABLE.items() if key != "together"}
    data = TABLE["data"] | {"public": public, "opinion": opinion}
    return cg.Study.from_dict(table | {"data": data, "algorithm": INFORMED | algorithm})


def test_what_the_model_of_made_up_rows_says_goes_with_them(folder: Path, tmp_path: Path) -> None:
    first = changed(algorithm=INFORMED).run(tmp_path / "run", base=folder)
    public, opinion = (str(tmp_path / "run-public" / name) for name in ("public.parquet", "opinion.parquet"))
    with pytest.warns(Advice, match='changes nothing: only the rule "informed" uses it'):
        using(public, opinion, consensus="majority").prepare(folder)
    again = using(public, opinion).run(base=folder)
    np.testing.assert_array_equal(first.labels.codes, again.labels.codes)
    told = pd.read_parquet(opinion)
    told.assign(ill=1.0, well=0.0).to_parquet(tmp_path / "nonsense.parquet")
    nonsense = using(public, str(tmp_path / "nonsense.parquet")).run(base=folder)
    assert set(first.labels.codes) == {0, 1}
    assert np.mean(nonsense.labels.codes == 0) > np.mean(first.labels.codes == 0)


@pytest.mark.parametrize("way", ["run", "rehearse", "audit"])
def test_what_the_model_says_is_used_in_every_way_a_study_is_run(
    way: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, _ = rows(300, 9)
    public.drop(columns="ward").to_parquet(folder / "others.parquet")
    pd.DataFrame({"well": [0.25] * 300, "ill": [0.75] * 300}).to_parquet(folder / "said.parquet")
    (folder / "using.toml").write_text(using("others.parquet", "said.parquet").to_toml())
    told, estimate = [], cg.Informed.estimate

    def seen(self: cg.Informed, votes: Any, counts: Any, alike: Any = None, opinion: Any = None) -> Any:
        told.append(opinion)
        return estimate(self, votes, counts, alike, opinion)

    monkeypatch.setattr(cg.Informed, "estimate", seen)
    canaries = ["--canaries", "60"] if way == "audit" else []
    more = [] if way == "rehearse" else [*canaries, "--out", str(tmp_path / way)]
    done = CliRunner().invoke(app, [way, str(folder / "using.toml"), *more])
    assert done.exit_code == 0, done.output
    assert told
    for each in told:
        np.testing.assert_array_equal(each, [[0.75, 0.25]] * 300)


def test_what_is_said_of_other_rows_is_refused(folder: Path, tmp_path: Path) -> None:
    X, _ = rows(300, 9)
    X.drop(columns="ward").to_csv(tmp_path / "public.csv", index=False)
    public = str(tmp_path / "public.csv")

    def refused(ill: Any, words: str, n: int = 300) -> None:
        pd.DataFrame({"ill": [ill] * n, "well": [0.5] * n}).to_csv(tmp_path / "opinion.csv", index=False)
        with pytest.raises(ConfigError, match=words):
            using(public, str(tmp_path / "opinion.csv")).run(base=folder)

    refused(0.5, "opinion.csv has 299 rows, and the public set 300", 299)
    refused(0.7, "probabilities that add up to 1")
    refused("?", "probabilities that add up to 1")
    pd.DataFrame({"sick": [0.5] * 300, "well": [0.5] * 300}).to_csv(tmp_path / "sick.csv", index=False)
    with pytest.raises(ConfigError, match=r"about the classes 'sick', 'well', and this study has 'ill', 'well'"):
        using(public, str(tmp_path / "sick.csv")).prepare(folder)
    refused(-0.5, "probabilities that add up to 1")
    with pytest.raises(ConfigError, match="is about a file of public rows"):
        using("together", str(tmp_path / "opinion.csv")).run(base=folder)
    making = {"algorithm": {"name": "together", "columns": TABLE["together"]["columns"]}}
    federated = {"data": {"source": "none", "opinion": "any.csv"}, "federation": {"classes": ["ill", "well"]}}
    with pytest.raises(ConfigError, match="is about a file of public rows"):
        coordinators_part(cg.Study.from_dict(making | federated))
    with pytest.raises(ConfigError, match=r"missing\.parquet"):
        using(public, str(tmp_path / "missing.parquet")).run(base=folder)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_opinion_goes_with_its_own_rows_alone(suffix: str, folder: Path, tmp_path: Path) -> None:
    making = ["public", "make", str(folder / "study.toml"), "--set", "together.rows=60"]
    for seed in (1, 2):
        out = [
            *making,
            "--out",
            str(tmp_path / f"{seed}.{suffix}"),
            "--opinion",
            str(tmp_path / f"opinion{seed}.parquet"),
        ]
        assert CliRunner().invoke(app, [*out, "--set", f"seed={seed}"]).exit_code == 0
    using(str(tmp_path / f"1.{suffix}"), str(tmp_path / "opinion1.parquet")).prepare(folder)
    with pytest.raises(ConfigError, match=rf"opinion2.parquet is about other rows than .*1.{suffix}"):
        using(str(tmp_path / f"1.{suffix}"), str(tmp_path / "opinion2.parquet")).prepare(folder)
    turned = read_rows(tmp_path / f"1.{suffix}").iloc[::-1]
    turned.to_parquet(tmp_path / "turned.parquet")
    with pytest.raises(ConfigError, match="is about other rows"):
        using(str(tmp_path / "turned.parquet"), str(tmp_path / "opinion1.parquet")).prepare(folder)


def test_a_file_of_small_floats_and_odd_categories_goes_with_its_opinion(folder: Path, tmp_path: Path) -> None:
    X, y = rows(600, 3)
    own = X.drop(columns="ward").assign(dose=X["dose"].astype(np.float32), sex=np.where(X["sex"] == "F", "F", "NA"))
    own.assign(state=y).to_parquet(tmp_path / "patients.parquet")
    table = TABLE | {"data": TABLE["data"] | {"source": str(tmp_path / "patients.parquet")}}
    table["together"] = TABLE["together"] | {"columns": TABLE["together"]["columns"] | {"sex": ["F", "NA"]}}
    (tmp_path / "study.toml").write_text(cg.Study.from_dict(table).to_toml())
    out, opinion = tmp_path / "public.csv", tmp_path / "opinion.parquet"
    files = ["--out", str(out), "--opinion", str(opinion)]
    with pytest.warns(cg.DoubtfulResult, match="some categories read as missing in a CSV file"):
        done = CliRunner().invoke(app, ["public", "make", str(tmp_path / "study.toml"), *files])
    assert done.exit_code == 0, done.output
    assert is_about(pd.read_parquet(opinion), read_rows(out))


def test_an_opinion_reaches_rehearsals_between_organisations(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = rows(300, 9)
    X.drop(columns="ward").to_parquet(tmp_path / "others.parquet")
    pd.DataFrame({"well": [0.25] * 300, "ill": [0.75] * 300}).to_parquet(tmp_path / "said.parquet")
    data = {"source": "others.parquet", "opinion": "said.parquet"}
    study = cg.Study.from_dict({"data": data, "algorithm": INFORMED, "federation": {"classes": ["ill", "well"]}})
    told, estimate = [], cg.Informed.estimate

    def seen(self: cg.Informed, votes: Any, counts: Any, alike: Any = None, opinion: Any = None) -> Any:
        told.append(opinion)
        return estimate(self, votes, counts, alike, opinion)

    monkeypatch.setattr(cg.Informed, "estimate", seen)
    rehearse(study, rounds=1, base=tmp_path)
    (tmp_path / "study.toml").write_text(study.to_toml())
    done = CliRunner().invoke(
        app, ["report", "--ethics", str(tmp_path / "study.toml"), "--out", str(tmp_path / "page.html")]
    )
    assert done.exit_code == 0, done.output
    assert len(told) > 1
    assert all(np.array_equal(each, [[0.75, 0.25]] * 300) for each in told)


def test_between_organisations_the_coordinator_needs_no_rows_to_make_one() -> None:
    table = {
        "data": {"source": "none"},
        "algorithm": {"name": "together", "columns": TABLE["together"]["columns"]},
        "federation": {"classes": ["ill", "well"]},
    }
    part = coordinators_part(cg.Study.from_dict(table))
    assert part.public is None
    assert isinstance(part.algorithm, cg.Together)
    with pytest.raises(ConfigError, match=r"first coordinate a study with the algorithm together"):
        coordinators_part(changed(federation={"classes": ["ill", "well"]}))


def test_the_command_writes_rows_and_what_they_cost(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "public.csv"
    done = CliRunner().invoke(app, ["public", "make", str(folder / "study.toml"), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.output.splitlines()[-1])
    assert said["claim"]["epsilon"] == pytest.approx(1.0)
    assert len(pd.read_csv(out)) == said["rows"] == 300
    refused = CliRunner().invoke(app, ["public", "make", str(folder / "study.toml"), "--out", "rows.docx"])
    assert isinstance(refused.exception, ConfigError)


def test_the_command_writes_what_the_model_says_of_them_too(folder: Path, tmp_path: Path) -> None:
    out, opinion = tmp_path / "public.csv", tmp_path / "new" / "opinion.parquet"
    arguments = ["public", "make", str(folder / "study.toml"), "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, "--opinion", str(opinion)])
    assert done.exit_code == 0, done.output
    told = pd.read_parquet(opinion)
    assert list(told.columns) == ["ill", "well"]
    assert len(told) == 300
    assert str(opinion) in done.output
    again = CliRunner().invoke(app, [*arguments, "--set", 'data.opinion="old.parquet"', "--json"])
    assert json.loads(again.output.splitlines()[-1])["opinion"] is None
    same = CliRunner().invoke(app, [*arguments[:-1], str(opinion), "--opinion", str(opinion)])
    assert "this file will hold the rows" in str(same.exception)
    (tmp_path / "file").touch()
    under = tmp_path / "file" / "opinion.parquet"
    unwritable = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "no.csv"), "--opinion", str(under)])
    assert str(under) in str(unwritable.exception)
    assert not (tmp_path / "no.csv").exists()
    for wrong in ([str(tmp_path / "opinion.csv")], [str(opinion), "--set", 'together.model="fitted"']):
        refused = CliRunner().invoke(app, [*arguments, "--opinion", *wrong])
        assert isinstance(refused.exception, ConfigError), refused.output
        assert "only the default's model says it" in str(refused.exception)


def test_runs_of_a_grid_are_not_mixed_with_those_of_another_opinion(folder: Path, tmp_path: Path) -> None:
    making = ["public", "make", str(folder / "study.toml"), "--out", str(tmp_path / "public.parquet")]
    assert CliRunner().invoke(app, [*making, "--opinion", str(tmp_path / "opinion.parquet")]).exit_code == 0
    study = using(str(tmp_path / "public.parquet"), str(tmp_path / "opinion.parquet"))
    study = study.model_copy(update={"seeds": [0, 1]})
    study.run_grid(tmp_path / "out", base=folder)
    pd.read_parquet(tmp_path / "opinion.parquet").assign(ill=1.0, well=0.0).to_parquet(tmp_path / "opinion.parquet")
    with pytest.raises(ConfigError, match=r"opinion.parquet has changed since the runs in"):
        study.run_grid(tmp_path / "out", base=folder)


def test_the_owner_of_rows_can_compare_them_with_made_up_ones(folder: Path, tmp_path: Path) -> None:
    made = pd.read_csv(folder / "patients.csv").drop(columns="state").sample(200, random_state=0)
    made.to_parquet(tmp_path / "public.parquet")
    page = tmp_path / "page.html"
    arguments = [
        str(tmp_path / "public.parquet"),
        str(folder / "patients.csv"),
        "--target",
        "state",
        "--out",
        str(page),
    ]
    done = CliRunner().invoke(app, ["public", "compare", *arguments])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "For the owner of these rows only" in text
    assert "Distances to the nearest row" in text
    assert page.stat().st_mode & 0o077 == 0


def test_copies_of_own_rows_would_be_seen() -> None:
    from collegium.together import fidelity

    own, _ = rows(500, 1)
    other, _ = rows(500, 2)
    copies, fresh = fidelity.nearest(own, own), fidelity.nearest(other, own)
    assert (copies["to a made-up row"] == 0).all()
    assert fresh["to a made-up row"].iloc[-1] > 0
    assert fidelity.distances(fidelity.distributions(own, own)).max() == 0
    shifted = own.assign(age=np.minimum(own["age"] + 30, 90))
    assert fidelity.distances(fidelity.distributions(shifted, own))["age"] > 0.2
    with pytest.raises(ConfigError, match="different columns"):
        fidelity.nearest(own, own[["age"]])
