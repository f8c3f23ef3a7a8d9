"""The benchmark of rules: a cell, and that what was measured is not measured again."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import consensus


def test_a_cell_is_measured_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consensus, "RULES", {name: consensus.RULES[name] for name in ("majority", "informed")})
    monkeypatch.setattr(consensus, "cells", lambda seeds, sets: [(0, "breast_cancer", "iid", "30% flip")])
    keep = str(tmp_path / "kept" / "consensus.jsonl")
    first = consensus.report(rows=40, public=100, keep=keep)
    assert [(row["partition"], row["situation"]) for row in first.rows] == [("all", "all"), ("iid", "30% flip")]
    for row in first.rows:
        for rule in ("majority", "informed"):
            accuracy, worse = row[rule].split(" / ")
            assert 0.3 < float(accuracy) <= 1
            assert 0 <= float(worse.rstrip("%")) <= 100
    assert "informed 0.000" in first.notes or "majority 0.000" in first.notes
    monkeypatch.setattr(consensus, "outcomes", lambda *_: pytest.fail("measured again"))
    assert consensus.report(rows=40, public=100, keep=keep).rows == first.rows


@pytest.mark.parametrize("situation", consensus.SITUATIONS)
def test_situations_are_what_they_are_called(situation: str) -> None:
    split = consensus.rows_of("breast_cancer", 0, 40, 100, "iid")
    sites, honest = consensus.sites_of(split, situation)
    hostile = {"20% flip": 2, "30% flip": 3, "30% one class": 3}.get(situation, 0)
    assert len(honest) == 10 - hostile
    changed = sum((site.y != y).any() for site, (_, y) in zip(sites, split.sites, strict=True) if len(site.y) == len(y))
    assert changed == (hostile if situation.endswith("flip") else 3 if situation == "30% copy" else 0)
