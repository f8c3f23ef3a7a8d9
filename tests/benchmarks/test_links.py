"""Many small sites on every link."""

from __future__ import annotations

import pytest

from benchmarks import links

pytestmark = pytest.mark.xdist_group("ray")


@pytest.mark.usefixtures("ray_here")
def test_every_way_comes_to_the_same_labels() -> None:
    report = links.report(**links.SMALL)
    assert all(row["same"] for row in report.rows)
    assert len(report.rows) == 5
    assert report.rows[0]["ratio"] == 1
    assert "ray" in report.markdown()
