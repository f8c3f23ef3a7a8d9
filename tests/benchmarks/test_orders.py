from __future__ import annotations

from benchmarks import orders


def test_every_case_runs_and_is_timed(monkeypatch) -> None:
    monkeypatch.setattr(orders, "CASES", [orders.Case("FedCT", 3, 3, folder=True), orders.Case("FedAvg", 4, 2, False)])
    rows = orders.report(**orders.SMALL).rows
    assert [row["method"] for row in rows] == ["FedCT", "FedAvg"]
    assert all(0 < row["clock10"] <= row["clock"] for row in rows)
