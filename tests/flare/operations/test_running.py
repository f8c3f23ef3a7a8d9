"""Status, health and metrics of a federation that runs: a server and sites as real processes."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import jsonschema
import pytest
from tests.cli.commands import collegium
from tests.flare.faults import FaultyFederation
from tests.flare.test_federation import Coordinator, Rounds, write_study
from tests.waiting import seconds, until

from collegium.flare.operations import server_status, site_status

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("many processes"),
]


def numbers(port: int) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=seconds(30)) as reply:
        families = list(text_string_to_metric_families(reply.read().decode()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_operators_see_a_federation_at_work(federation: FaultyFederation, tmp_path: Path) -> None:
    ports, site = federation.metrics, federation.site_kit("site-1")
    before = numbers(ports["site-1"])
    stops = Rounds(1)
    coordinator = Coordinator(federation, write_study(federation.kits, rounds=2), tmp_path / "out", stops)

    def look() -> None:
        assert collegium("site", "health", str(site)).returncode == 0
        told = json.loads(collegium("site", "status", str(site), "--json").stdout)
        jsonschema.validate(told, site_status.schema())
        assert (told["joined"], told["connected"], told["well"]) == (True, True, True)
        assert [run["state"] for run in told["open"]].count("open") >= 1

    stops.at(1, look)
    assert coordinator.result().refusals.empty
    now = numbers(ports["site-1"])
    assert now["collegium_site_releases_total",] - before["collegium_site_releases_total",] == 4
    assert now["collegium_site_rounds_total",] - before["collegium_site_rounds_total",] == 2
    assert now["collegium_site_connected",] == 1
    until(
        lambda: (
            numbers(ports["site-1"])["collegium_site_orders_total",] > before.get(("collegium_site_orders_total",), 0)
        )
    )
    assert collegium("server", "health", str(federation.server_kit)).returncode == 0
    told = json.loads(collegium("server", "status", str(federation.server_kit), "--json").stdout)
    jsonschema.validate(told, server_status.schema())
    assert (told["running"], set(told["connected"])) == (True, set(federation.sites))
    assert numbers(ports["server"])["collegium_server_sites",] == len(federation.sites)


def test_an_agent_that_was_killed_is_counted_and_the_site_is_well_again(federation: FaultyFederation) -> None:
    port, kit = federation.metrics["site-1"], str(federation.site_kit("site-1"))
    before = numbers(port)["collegium_process_restarts_total", "agent"]
    assert federation.kill("site-1", "agent")
    until(lambda: numbers(port)["collegium_process_restarts_total", "agent"] == before + 1)
    until(lambda: collegium("site", "health", kit).returncode == 0)
