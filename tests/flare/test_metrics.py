"""Metrics in a federation: what sites measure on their held-out rows, as far as they agreed to tell it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flare.offices import OfficeHost, write_data, write_site

import collegium as cg
from collegium.core.public_set import PublicSet
from collegium.core.scores import measure
from collegium.data.sources import load_source
from collegium.errors import Refused
from collegium.flare.agreement.consent import consent
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.planning import plan_of
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.site.engagement import Engagement
from collegium.flare.site.file import SiteFile
from collegium.flare.site.setup import load_site
from collegium.study.study import Study
from collegium.wire.orders import Request

NAMES = ("north", "south", "east")
METRICS = ["balanced_accuracy", "roc_auc", "confusion_matrix"]
STUDY = {
    "name": "wards",
    "data": {"source": "public.csv"},
    "algorithm": {"name": "fedct", "rounds": 2},
    "sites": [{"learner": "decision_tree"}],
    "metrics": METRICS,
    "federation": {"classes": ["benign", "malignant"], "wait": 0.2},
}


@pytest.fixture
def public(tmp_path: Path) -> PublicSet:
    shared = write_data(tmp_path, NAMES)
    for name in NAMES:
        # The last one tells its accuracy, and no more than that.
        policy = 'unprotected = ["HardLabels", "Scores"]\nrequires = "dp"' if name == "east" else ""
        write_site(tmp_path / name, name, policy=policy)
    return PublicSet(shared)


def plan(public: PublicSet, **changes: object) -> Plan:
    return plan_of(Study.from_dict(STUDY | changes), public.X, ["benign", "malignant"], NAMES)


def test_sites_tell_what_the_study_asks_for_and_their_policies_allow(tmp_path: Path, public: PublicSet) -> None:
    host = OfficeHost({name: tmp_path / name for name in NAMES})
    with pytest.warns(cg.CollegiumWarning, match=r"'east' did not answer 1 time.s. .first: scores.measure"):
        run = coordinate(Study.from_dict(STUDY), host, base=tmp_path, out=tmp_path / "out", progress=False)
    told = run.metrics[run.metrics["metric"].isin(["accuracy", "balanced_accuracy", "roc_auc"])]
    for party in ("north", "south"):
        own = told[told["party"] == party].pivot(index="round", columns="metric", values="value")
        assert list(own.index) == [0, 1]
        assert own.notna().all(axis=None)
        assert own.to_numpy().min() > 0.5
    assert set(told[told["party"] == "east"]["metric"]) == {"accuracy"}
    refused = run.refusals[run.refusals["step"] == measure.name]
    assert refused[["party", "code"]].to_numpy().tolist() == [["east", "unprotected"]]  # and is not asked again
    counts = run.metrics[run.metrics["metric"].str.startswith("confusion_matrix[")]
    assert (counts.groupby(["round", "party"])["value"].agg(["sum", "size"]).to_numpy() == [10, 4]).all()
    assert cg.load(tmp_path / "out").metrics.equals(run.metrics)


def test_a_plan_names_the_metrics_and_an_owner_reads_them(public: PublicSet) -> None:
    proposed = plan(public)
    assert proposed.metrics == tuple(METRICS)
    assert measure.name in {step.step for step in proposed.steps}
    file = SiteFile.model_validate({"name": "north", "data": {"source": "train.csv"}, "learner": "decision_tree"})
    read = consent(Plan.from_json(proposed.to_json().encode()), file, public, "1 run")
    assert not read.warnings
    assert ", ".join(METRICS) in [line.words for line in read.lines if line.what == "metrics on held-out rows"]
    for silent in (plan(public, metrics=[]), plan(public, federation=STUDY["federation"] | {"metrics": False})):
        assert "metrics" not in silent.to_plain()
        assert measure.name not in {step.step for step in silent.steps}


def test_a_site_measures_nothing_but_what_is_in_the_plan(tmp_path: Path, public: PublicSet) -> None:
    proposed = plan(public, metrics=["balanced_accuracy"])
    setup = load_site(tmp_path / "north")
    run = Engagement(tmp_path / "north" / "agent", "ab" * 16, proposed, setup, public, records=30)
    asked = {"metrics": ["balanced_accuracy"]}
    run.require_planned([Request("ab" * 16, None, 1, 0, measure.name, measure.digest, asked)])
    with pytest.raises(Refused, match="settings that differ"):
        run.require_planned(
            [Request("ab" * 16, None, 1, 0, measure.name, measure.digest, {"metrics": ["confusion_matrix"]})]
        )


def test_the_coordinators_own_test_set_is_measured_too(tmp_path: Path, public: PublicSet) -> None:
    data = load_source("breast_cancer")
    data.X.assign(diagnosis=data.y).to_csv(tmp_path / "all.csv", index=False)
    table = STUDY | {"data": {"source": "all.csv", "target": "diagnosis", "public": 150, "test": 100}}
    table |= {"federation": {"wait": 0.2}, "partition": {"sites": 3}}
    host = OfficeHost({name: tmp_path / name for name in ("north", "south")})
    run = coordinate(Study.from_dict(table), host, base=tmp_path, out=tmp_path / "out", progress=False)
    last = run.metrics.set_index(["party", "metric"])["value"]
    assert 0.5 < last["coordinator", "global_balanced_accuracy"] <= 1
    assert 0.5 < last["coordinator", "global_roc_auc"] <= 1
