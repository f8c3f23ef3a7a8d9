"""A real federation with somebody on its machines who does not belong there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flare.conftest import started
from tests.flare.faults import FaultyFederation
from tests.flare.offices import write_data, write_site
from tests.flare.test_federation import Coordinator, Rounds, ledger_rows, write_study

pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("many processes"),
]
NOBODY = 65534
SITES = ("site-1", "site-2")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFederation]:
    loopback = FaultyFederation(tmp_path_factory.mktemp("federation"), SITES)
    write_data(loopback.kits, SITES)
    for name in SITES:
        write_site(loopback.site_kit(name), name)
    with started(loopback):
        yield loopback


def two_sites(federation: FaultyFederation, rounds: int) -> Path:
    study = write_study(federation.kits, rounds=rounds)
    study.write_text(study.read_text().replace("at_least = 3", "at_least = 2"))
    return study


def attack(kit: Path, user: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("local_user.py")), str(kit), str(user)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs root, to become another user")
def test_a_local_user_joins_the_sites_cells_and_gives_orders(federation: FaultyFederation, tmp_path: Path) -> None:
    stops = Rounds(0)
    coordinator = Coordinator(federation, two_sites(federation, 3), tmp_path / "out", stops)
    said: dict[str, dict[str, Any]] = {}

    def intrude() -> None:
        said["nobody"] = attack(federation.site_kit("site-1"), NOBODY)
        said["root"] = attack(federation.site_kit("site-1"), 0)

    stops.at(0, intrude)
    run = coordinator.result()
    assert said["nobody"] == {"joined": False, "hello": None, "open": None}
    # a program of the site's own user gets as far as the agent, which listens to leads alone
    refused = {"state": "refused", "code": "other-version"}
    assert said["root"] == {"joined": True, "hello": refused, "open": refused}
    assert run.refusals.empty
    assert "the session ended; starting another" not in coordinator.said
    assert {row["run"] for row in ledger_rows(federation, "site-1")} == {run.about["run"]}
