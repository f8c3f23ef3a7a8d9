"""Status for programs: as its schema says, stable, and without a row."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from tests.cli.commands import collegium
from tests.flare.offices import write_data, write_site

from collegium.flare.agreement.approvals import Approvals
from collegium.flare.coordinator.progress import Progress
from collegium.flare.coordinator.register import registered
from collegium.flare.kits.identity import read_keys
from collegium.flare.operations import server_status, site_status
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.site.ledger import Entry, Ledger

RUN = "ab" * 16
SITE_NAMES = {
    "format", "name", "version", "joined", "connected", "server", "agent", "installation", "certificate", "privacy",
    "open", "runs", "refusals", "plans", "orders", "signed", "denied", "paused", "checks", "well",
}  # fmt: skip
SERVER_NAMES = {
    "format", "federation", "version", "address", "running", "certificate", "connected", "shut_out", "revoked",
    "studies", "checks", "well", "sites",
}  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A site's folder without a certificate, out of which something has left."""
    write_data(tmp_path, ["north"])
    write_site(tmp_path / "north", "north", policy="[budget]\nepsilon = 500.0")
    ledger = Ledger("north", tmp_path / "north" / "agent" / "ledger.db")
    charge = write_charges([RandomizedResponse(1.0).charge(40, 2)], Budget(500.0))
    with ledger.transaction():
        ledger.append(Entry(RUN, 1, 0, "fedct.label", "HardLabels", 10, 90, "", charge))
    ledger.note_refusal(RUN, 3, "fedavg.update", "step-denied")
    ledger.close()
    approvals = Approvals(tmp_path / "north" / "agent", read_keys(tmp_path / "north" / "agent", "north"))
    approvals.orders.propose(RUN, 3, "1" * 64, steps=["fedct.label"], kinds=["HardLabels"])
    return tmp_path / "north"


def test_a_sites_status_is_what_its_schema_says(kit: Path) -> None:
    told = json.loads(collegium("site", "status", str(kit), "--json").stdout)
    schema = json.loads(collegium("schema", "--site-status").stdout)
    jsonschema.validate(told, schema)
    assert (told["format"], set(told)) == (1, SITE_NAMES), "a name that goes, or means something else: another format"
    assert set(schema["required"]) == SITE_NAMES
    assert told["privacy"]["left"] == pytest.approx(500 - told["privacy"]["epsilon"])
    assert told["privacy"]["epsilon"] > 0
    assert (told["connected"], told["well"], told["certificate"]) == (False, False, None)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(told | {"format": 2}, schema)
    said = collegium("site", "status", str(kit)).stdout
    assert "Privacy: epsilon" in said


def test_a_servers_status_is_what_its_schema_says(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from collegium.flare.supervise.loopback import LoopbackFederation

    federation = LoopbackFederation(tmp_path, sites=("north",))
    server = federation.server_kit
    with registered(server, "sepsis", tmp_path) as tell:
        tell(Progress(RUN, 3, 20, 12.5, 1000, 2000, {"failed": 2}))
        told = json.loads(collegium("server", "status", str(server), "--json").stdout)
        said = collegium("server", "status", str(server)).stdout
    jsonschema.validate(told, json.loads(collegium("schema", "--server-status").stdout))
    assert (told["format"], set(told)) == (1, SERVER_NAMES)
    assert (told["running"], told["certificate"]["days"], told["studies"][0]["progress"]["round"]) == (False, 359, 3)
    assert "3 of 20" in said
    north = federation.site_kit("north")
    federation.write_site("north", 'name = "north"\n[data]\nsource = "rows.csv"\n')
    told = json.loads(collegium("site", "status", str(north), "--json").stdout)
    assert told["certificate"]["days"] == 359
    assert told["certificate"]["soon"] is False
    assert told["server"] == f"localhost:{federation.port}"


def test_only_one_schema_at_a_time() -> None:
    assert collegium("schema", "--site-status", "--server-status").returncode == 2
    assert site_status.schema()["properties"]["format"] == server_status.schema()["properties"]["format"]
