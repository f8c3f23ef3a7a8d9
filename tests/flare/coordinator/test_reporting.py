"""How far a study has come is told while it runs: in numbers, and without what sites sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flare.conftest import NAMES
from tests.flare.offices import OfficeHost
from tests.flare.test_federation import write_study

from collegium.core.observations import Observations
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.coordinator.progress import Progress
from collegium.flare.coordinator.reporting import reporting
from collegium.privacy.budget import write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.study.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")


def test_a_run_tells_where_it_stands(kits: Path, host: OfficeHost) -> None:
    told: list[Progress] = []
    study = Study.from_toml(write_study(kits, rounds=2))
    run = coordinate(study, host, base=kits, out=kits / "out", progress=False, tell=told.append)
    first, last = told[0], told[-1]
    assert (first.round, first.received) == (0, 0)
    assert (last.run, last.round, last.rounds) == (run.about["run"], 2, 2)
    assert last.sent == run.orders["bytes"].sum()
    assert last.received == run.releases["wire_bytes"].sum()
    assert (last.failures, last.epsilon) == ({}, None)
    assert len(run.orders["party"].unique()) == len(NAMES)


def test_failures_and_what_the_most_generous_site_has_spent_are_added_up() -> None:
    observed, told = Observations(), list[Progress]()
    one = write_charges([RandomizedResponse(1.0).charge(1, 2)])
    with reporting(observed, "ab" * 16, told.append):
        for party in ("north", "east", "east"):
            observed.releases.append({"party": party, "wire_bytes": 5, "privacy": one})
        observed.releases.append({"party": "south", "wire_bytes": 5, "privacy": None})
        observed.refusal(0, "south", "fedct.label", "failed")
        observed.refusal(0, "south", "fedct.label", "failed")
    assert (told[-1].received, told[-1].failures) == (20, {"failed": 2})
    assert told[-1].epsilon == pytest.approx(2.0, rel=1e-3)


def test_who_cannot_be_told_does_not_end_the_run() -> None:
    def full(progress: Progress) -> None:
        raise OSError(28, "No space left on device")

    with reporting(Observations(), "ab" * 16, full):
        pass
