"""Many small sites: the loop by hand and the links come to the same. That workers and Ray do, too, is a contract."""

from __future__ import annotations

import pytest

from benchmarks import links


def test_every_way_comes_to_the_same_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    here = links._ways()[:3]
    monkeypatch.setattr(links, "_ways", lambda: here)
    report = links.report(**links.SMALL)
    assert all(row["same"] for row in report.rows)
    assert [row["way"] for row in report.rows] == ["bare loop", "local, one thread", "local"]
    assert report.rows[0]["ratio"] == 1
