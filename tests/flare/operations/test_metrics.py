"""What Prometheus reads: in its own format by its own parser, and nothing that is about rows."""

from __future__ import annotations

import os
import socket
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.flare.operations.folders import folder, running

from collegium.errors import ConfigError
from collegium.flare.coordinator.progress import Progress
from collegium.flare.coordinator.register import registered
from collegium.flare.supervise.standing import AGENT_FILE, AgentStanding, Part, Spent, ToldFile
from collegium.site.ledger import Entry, Ledger

pytest.importorskip("prometheus_client")
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from collegium.flare.operations.endpoint import Endpoint
from collegium.flare.operations.metrics import KitMetrics, written

RUN = "ab" * 16
OPEN = "application/openmetrics-text; version=1.0.0"


def numbers(kit: Any, accept: str = "") -> dict[tuple[str, ...], float]:
    """By name and labels, in the order of their names, as the parser of that format finds them."""
    text, kind = written(KitMetrics(kit), accept)
    assert ("openmetrics" in kind) == bool(accept)
    read = read_open_metrics if accept else read_text
    found = {}
    for family in read(text.decode()):
        assert family.name.startswith("collegium_")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            found[(sample.name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return found


def release(ledger: Ledger, number: int, run: str = RUN) -> None:
    with ledger.transaction():
        ledger.append(Entry(run, number, number // 2, "fedct.label", "HardLabels", 10, 90, "", None))


@pytest.mark.parametrize("accept", ["", OPEN])
def test_a_site_in_numbers(tmp_path: Path, accept: str) -> None:
    kit = folder(tmp_path)
    ledger = Ledger("north", kit.folder / "agent" / "ledger.db")
    for number in range(4):
        release(ledger, number)
    release(ledger, 5, "cd" * 16)
    ledger.note_refusal(RUN, 3, "fedavg.update", "step-denied")
    ledger.note_refusal(RUN, 4, "fedct.label", "failed")
    told = AgentStanding(1, 0.0, 7, 2.5, spent=Spent(1.5, 1e-5, 4.0), waiting={"plan": 2, "order": 0})
    ToldFile(kit.folder / AGENT_FILE).tell(told)
    with running(kit) as standing:
        found = numbers(kit, accept)
    expected = {
        ("collegium_healthy",): 1, ("collegium_build_info", "1.2"): 1, ("collegium_site_connected",): 1,
        ("collegium_certificate_expiry_time_seconds",): standing.expires,
        ("collegium_process_up", "agent"): 1, ("collegium_process_restarts_total", "nvflare"): 2,
        ("collegium_site_runs_total",): 2, ("collegium_site_rounds_total",): 3, ("collegium_site_releases_total",): 5,
        ("collegium_site_released_bytes_total",): 50, ("collegium_site_refusals_total",): 2,
        ("collegium_site_recent_refusals", "failed"): 1, ("collegium_site_orders_total",): 7,
        ("collegium_site_work_seconds_total",): 2.5, ("collegium_site_waiting", "plan"): 2,
        ("collegium_site_epsilon_spent",): 1.5, ("collegium_site_epsilon_budget",): 4.0,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    release(ledger, 6)
    ledger.close()
    with running(kit):
        assert numbers(kit)["collegium_site_releases_total",] == 6


def test_a_refusal_more_than_are_kept_still_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.site.ledger.KEPT_REFUSALS", 3)
    kit = folder(tmp_path)
    ledger = Ledger("north", kit.folder / "agent" / "ledger.db")
    for number in range(5):
        ledger.note_refusal(RUN, number, "x", "failed")
    ledger.close()
    with running(kit):
        found = numbers(kit)
    assert (found["collegium_site_refusals_total",], found["collegium_site_recent_refusals", "failed"]) == (5, 3)


def test_a_site_whose_ledger_cannot_be_read_just_now_is_still_described(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit, connected=False):
        assert numbers(kit)["collegium_site_connected",] == 0
        (kit.folder / "agent" / "ledger.db").write_bytes(b"no ledger" * 100)
        with pytest.raises(sqlite3.Error), sqlite3.connect(kit.folder / "agent" / "ledger.db") as db:
            db.execute("SELECT * FROM head")
        assert numbers(kit)["collegium_site_releases_total",] == 0


def test_a_server_in_numbers_with_the_study_that_runs(tmp_path: Path) -> None:
    kit = folder(tmp_path, "server")
    name = 'sepsis "2"\n\\'
    with running(kit, parts={"server": Part(5)}, sites=("east", "north")):
        with registered(kit.folder, name, tmp_path) as tell:
            assert numbers(kit)["collegium_server_studies", "running"] == 1
            tell(Progress(RUN, 3, 20, 12.5, 1000, 2000, {"failed": 2, "waiting": 1}, 0.75, 1e-5))
            found = numbers(kit)
        assert numbers(kit)["collegium_server_studies", "running"] == 0
    whose = (RUN[:12], name)
    expected = {
        ("collegium_server_sites",): 2, ("collegium_server_site_connected", "east"): 1,
        ("collegium_study_round", *whose): 3, ("collegium_study_rounds", *whose): 20,
        ("collegium_study_seconds_total", *whose): 12.5, ("collegium_study_sent_bytes_total", *whose): 1000,
        ("collegium_study_received_bytes_total", *whose): 2000, ("collegium_study_epsilon", *whose): 0.75,
        ("collegium_study_failures_total", "failed", *whose): 2,
    }  # fmt: skip
    assert {each: found.get(each) for each in expected} == expected


@pytest.fixture
def endpoint(tmp_path: Path) -> Any:
    kit = folder(tmp_path)
    with running(kit):
        made = Endpoint(kit, "127.0.0.1:0")
        made.start()
        yield made
        made.close()


def ask(endpoint: Endpoint, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_endpoint_answers_what_it_knows(endpoint: Endpoint) -> None:
    code, text = ask(endpoint, "/metrics")
    assert (code, "collegium_healthy 1.0" in text) == (200, True)
    code, text = ask(endpoint, "/metrics", Accept=OPEN)
    assert (code, text.splitlines()[-1]) == (200, "# EOF")
    assert ask(endpoint, "/healthz")[0] == 200
    assert "connection" not in ask(endpoint, "/livez")[1]
    assert ask(endpoint, "/agent/identity.key")[0] == 404
    assert ask(endpoint, "/metrics/../../etc/passwd")[0] == 404


def test_a_site_that_is_not_well_is_a_503(tmp_path: Path) -> None:
    kit = folder(tmp_path)
    with running(kit, connected=False):
        made = Endpoint(kit, "127.0.0.1:0")
        made.start()
        try:
            assert ask(made, "/healthz")[0] == 503
            assert ask(made, "/livez")[0] == 200
        finally:
            made.close()


def test_a_website_that_points_its_name_to_this_machine_reads_nothing(endpoint: Endpoint) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        code, text = ask(endpoint, "/metrics", Host=host)
        assert (code, "collegium_" in text) == (421, False)
    assert ask(endpoint, "/metrics", Host=f"localhost:{endpoint.port}")[0] == 200


def test_whoever_says_nothing_is_not_waited_for_for_ever(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.flare.operations.endpoint.BaseHTTPRequestHandler.timeout", 0.2)
    with socket.create_connection(("127.0.0.1", endpoint.port)) as silent:
        assert silent.fileno() >= 0
        assert ask(endpoint, "/livez")[0] == 200


def test_a_port_in_use_and_a_strange_address_are_one_line(endpoint: Endpoint, tmp_path: Path) -> None:
    kit = folder(tmp_path / "other")
    with pytest.raises(ConfigError, match="choose another port"):
        Endpoint(kit, f"127.0.0.1:{endpoint.port}")
    with pytest.raises(ConfigError, match="not an address"):
        Endpoint(kit, "no.such.host.invalid:0")
    if os.getuid():
        with pytest.raises(ConfigError, match="above 1023"):
            Endpoint(kit, "127.0.0.1:1")
