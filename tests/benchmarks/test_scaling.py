"""The table of costs over sites and rounds."""

from __future__ import annotations

import pytest

from benchmarks import scaling


@pytest.mark.slow
def test_a_method_is_measured_over_sites_and_over_rounds() -> None:
    report = scaling.report(**scaling.SMALL)
    assert [(row["sites"], row["rounds"]) for row in report.rows] == [(2, 2), (4, 2), (2, 4)]
    for row in report.rows:
        assert row["seconds"] == pytest.approx(row["each"] * row["sites"] * row["rounds"])
        assert row["memory"] >= 0
    assert report.rows[0]["ratio"] == 1


@pytest.mark.parametrize("method", scaling.METHODS)
def test_every_method_runs(method: str) -> None:
    found = scaling._run(scaling.Case(method, sites=2, rounds=2), rows=20, repeats=1)
    assert found["seconds"] > 0
