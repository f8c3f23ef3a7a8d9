"""The benchmark of rules: a cell, and that what was measured is not measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import collegium as cg
from benchmarks import consensus, consensus_cells
from collegium.consensus.advice import SKEWED

RESULTS = Path(consensus.__file__).parent / "consensus_results.csv"


def test_a_cell_is_measured_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consensus, "cells", lambda seeds, sets: [(0, "breast_cancer", "iid", "30% flip")])
    options: dict[str, Any] = {"rows": 40, "public": 100, "out": str(tmp_path / "kept" / "consensus.jsonl")}
    options |= {"rules": "majority;informed;FedKT majority", "csv": str(tmp_path / "kept.csv")}
    first = consensus.report(**options)
    assert [(row["partition"], row["situation"]) for row in first.rows][-1] == ("iid", "30% flip")
    for rule in ("majority", "informed"):
        accuracy, worse = first.rows[-1][rule].split(" / ")
        assert 0.3 < float(accuracy) <= 1
        assert 0 <= float(worse.rstrip("%")) <= 100
    assert 0.3 < float(first.rows[-1]["FedKT majority"]) <= 1
    behind = next(row for row in first.rows if row["situation"] == "behind the best")
    assert "0.000" in (behind["majority"], behind["informed"])
    assert behind["FedKT majority"] == "0.000"  # it is compared with rules of FedKT, of which there is one
    written = pd.read_csv(tmp_path / "kept.csv")
    assert set(written.columns) == set(pd.read_csv(RESULTS, nrows=1).columns)
    assert list(written["rule"]) == ["majority", "informed", "FedKT majority"]
    monkeypatch.setattr(consensus, "outcomes", lambda *_: pytest.fail("measured again"))
    assert consensus.report(**options).rows == first.rows


def test_cells_that_lack_a_rule_are_measured_for_it_only_and_left_out_of_the_table() -> None:
    row = {"seed": 0, "data": "mnist", "partition": "iid", "situation": "alike", "machine": "one"}
    row |= {"alone": 0.5, "alone_balanced": 0.5, "accuracy": 0.6, "balanced": 0.5, "worse": 1, "sites": 10}
    row |= {"student": 0.5, "student_balanced": 0.5}
    found = [row | {"rule": "majority"}, row | {"rule": "informed"}, row | {"rule": "majority", "seed": 1}]
    todo = consensus.missing(found, 2, ["mnist"], ["majority", "informed"])
    assert ((1, "mnist", "iid", "alike"), ["informed"]) in todo
    assert (0, "mnist", "iid", "alike") not in dict(todo)
    assert dict(todo)[0, "mnist", "iid", "mixed"] == ["majority", "informed"]
    told = consensus.table(found)
    assert told.rows[0]["majority"] == "0.600 / 10%"
    assert "1 of mnist" in told.notes


@pytest.mark.parametrize("situation", consensus_cells.SITUATIONS)
def test_situations_are_what_they_are_called(situation: str) -> None:
    split = consensus_cells.rows_of("breast_cancer", 0, 40, 100, "iid")
    sites, honest = consensus_cells.sites_of(split, situation)
    hostile = {"20% flip": 2, "30% flip": 3, "30% one class": 3}.get(situation, 0)
    assert len(honest) == 10 - hostile
    changed = sum((site.y != y).any() for site, (_, y) in zip(sites, split.sites, strict=True) if len(site.y) == len(y))
    assert changed == (hostile if situation.endswith("flip") else 3 if situation == "30% copy" else 0)


RULES = ["majority", "by agreement", "Dawid-Skene", "familiar", "informed"]
ADVISED = "familiar, informed"


@pytest.fixture(scope="module")
def behind() -> pd.DataFrame:
    """By seed and cell in which the advised rule was measured: how far each rule was behind the best, and who lost."""
    rows = pd.read_csv(RESULTS)
    rows = rows[rows["rule"].isin([*RULES, ADVISED])]
    cell = ["seed", "data", "partition", "situation"]
    rows = rows[rows.groupby(cell)["rule"].transform("nunique") == len(RULES) + 1]
    return rows.assign(behind=rows.groupby(cell)["accuracy"].transform("max") - rows["accuracy"])


def test_the_rule_that_is_advised_is_close_to_the_best(behind: pd.DataFrame) -> None:
    by_rule = behind.groupby("rule")
    close = by_rule["behind"].apply(lambda gaps: (gaps <= consensus_cells.MARGIN).mean())
    lost = by_rule["worse"].sum() / by_rule["sites"].sum()
    assert len(behind[behind["rule"] == ADVISED]) == 512
    assert close.idxmax() == by_rule["accuracy"].mean().idxmax() == lost.idxmin() == ADVISED
    assert close[ADVISED] > 0.65
    assert by_rule["behind"].mean()[ADVISED] < 0.0065
    assert lost[ADVISED] <= 0.05


def test_averaged_over_sets_it_is_close_to_the_best_in_every_kind_of_cell(behind: pd.DataFrame) -> None:
    kinds = behind.groupby(["partition", "situation", "rule"])["accuracy"].mean().unstack()
    assert (kinds.max(axis=1) - kinds[ADVISED]).max() < 0.01


def test_with_the_guard_hardly_any_site_is_worse_than_alone() -> None:
    rows = pd.read_csv(RESULTS)
    rows = rows[~rows["situation"].isin(consensus_cells.HOSTILE)]
    by_rule = rows.dropna(subset="worse").groupby("rule")[["worse", "sites"]].sum()
    lost = by_rule["worse"] / by_rule["sites"]
    assert lost.idxmin() == f"{ADVISED}, guarded"
    assert lost.min() < 0.02
    assert lost["familiar, guarded"] < 0.03 < lost["familiar"]  # what is advised where votes are secret


def test_what_fedkt_is_advised_is_the_best_of_its_rules_on_either_side_of_the_threshold() -> None:
    rows = pd.read_csv(RESULTS)
    rows = rows[rows["rule"].str.startswith("FedKT") & ~rows["situation"].isin(consensus_cells.HOSTILE)]
    by_skew = rows.groupby([rows["skew"] > SKEWED, "rule"])["student"].mean().unstack()
    assert by_skew.idxmax(axis=1).to_dict() == {False: "FedKT informed", True: "FedKT Dawid-Skene"}
    for partition, rule in (("iid", '"informed"'), ("Dir(0.1)", '"dawid_skene"')):
        split = consensus_cells.rows_of("breast_cancer", 1, 100, 600, partition)
        said = cg.FedKT().advice(consensus_cells.sites_of(split, "alike")[0])
        assert said is not None
        assert f"consensus = {rule}" in said


def test_advice_is_given_in_every_cell(behind: pd.DataFrame) -> None:
    for situation in behind["situation"].unique():
        for partition in behind["partition"].unique():
            split = consensus_cells.rows_of("breast_cancer", 1, 100, 600, partition)
            sites, _ = consensus_cells.sites_of(split, situation)
            said = cg.FedCT(2).advice(sites)
            assert said is not None
            assert 'consensus = "informed", voters = "familiar"' in said
