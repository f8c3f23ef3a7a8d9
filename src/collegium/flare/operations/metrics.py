"""A server or a site in numbers, for Prometheus. No number and no label is about rows.

Labels are codes, programs, names of sites at the server and of studies. All of it is read from files in the kit when it
is asked for. It runs in the supervisor, so nothing large is loaded here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from collegium.errors import MissingExtra
from collegium.flare.coordinator.register import Coordinator, coordinators
from collegium.flare.kits.kit import Kit
from collegium.flare.operations.health import health, is_well
from collegium.flare.supervise.standing import AgentStanding, Standing, read_agent_standing, read_standing

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("metrics", "An endpoint for Prometheus") from None

_LEDGER: Final = """SELECT COUNT(*), COALESCE(SUM(bytes), 0), COUNT(DISTINCT run || ':' || round), COUNT(DISTINCT run)
FROM ledger"""
_REFUSALS: Final = "SELECT code, COUNT(*) FROM refusal GROUP BY code ORDER BY code"


class KitMetrics(Collector):
    """The metrics of the server or the site of one kit."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._ledger = _Ledger(kit.folder / "agent" / "ledger.db")

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        told = read_standing(self._kit.folder)
        checks = health(self._kit.folder)
        yield _gauge("healthy", "Whether all checks of /healthz are good.", is_well(checks))
        if told is None:  # not yet: the supervisor has just been started
            return
        yield from _common(told)
        yield from self._site(told) if self._kit.kind == "site" else self._server(told)

    def _site(self, told: Standing) -> Iterator[Metric]:
        yield _gauge("site_connected", "Whether the site is connected to the server.", told.connected)
        yield from self._ledger.metrics()
        agent = read_agent_standing(self._kit.folder)
        if agent is not None:
            yield from _agent(agent)

    def _server(self, told: Standing) -> Iterator[Metric]:
        yield _gauge("server_sites", "How many sites are connected.", len(told.sites))
        here = GaugeMetricFamily("collegium_server_site_connected", "The sites that are connected.", labels=["site"])
        for site in told.sites:
            here.add_metric([site], 1)
        yield here
        yield from _studies(coordinators(self._kit.folder))


def _common(told: Standing) -> Iterator[Metric]:
    yield InfoMetricFamily("collegium_build", "The version of Collegium.", {"version": told.version})
    yield _gauge("start_time_seconds", "When the supervisor was started, in seconds since 1970.", told.started)
    yield _gauge("certificate_expiry_time_seconds", "When the certificate expires, since 1970.", told.expires)
    up = GaugeMetricFamily("collegium_process_up", "Whether a process is running.", labels=["process"])
    again = CounterMetricFamily("collegium_process_restarts", "How often it was started again.", labels=["process"])
    for name, part in told.parts.items():
        up.add_metric([name], part.process is not None)
        again.add_metric([name], part.restarts)
    yield up
    yield again


def _agent(agent: AgentStanding) -> Iterator[Metric]:
    yield _counter("site_orders", "Orders that the agent has carried out since it was started.", agent.orders)
    yield _counter("site_work_seconds", "Seconds that these took.", agent.seconds)
    if agent.waiting is not None:
        waiting = GaugeMetricFamily("collegium_site_waiting", "What waits for the owner.", labels=["what"])
        for what, count in agent.waiting.items():
            waiting.add_metric([what], count)
        yield waiting
    if agent.spent is not None:
        yield _gauge("site_epsilon_spent", "Differential privacy that was spent, in all runs.", agent.spent.epsilon)
        yield _gauge("site_delta", "The delta at which epsilon is computed.", agent.spent.delta)
        if agent.spent.budget is not None:
            yield _gauge("site_epsilon_budget", "All that the site may ever spend.", agent.spent.budget)


class _Ledger:
    """What a ledger says in numbers; read anew when it has grown."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._length = -1
        self._counts: tuple[int, ...] = (0, 0, 0, 0)

    def metrics(self) -> Iterator[Metric]:
        refused, codes = 0, list[tuple[str, int]]()
        # a ledger that is made, or moved, in this moment is read next time
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=5)) as db:
            length = int(db.execute("SELECT COALESCE(SUM(seq), 0) FROM head").fetchone()[0])
            if length != self._length:
                self._counts, self._length = tuple(db.execute(_LEDGER).fetchone()), length
            # only the latest are kept, and numbered on
            refused = int(db.execute("SELECT COALESCE(MAX(id), 0) FROM refusal").fetchone()[0])
            codes = db.execute(_REFUSALS).fetchall()
        releases, size, rounds, runs = self._counts
        yield _counter("site_runs", "Runs in which something has left the site.", runs)
        yield _counter("site_rounds", "Rounds of runs in which something has left.", rounds)
        yield _counter("site_releases", "What has left the site, by its ledger.", releases)
        yield _counter("site_released_bytes", "How many bytes that were.", size)
        yield _counter("site_refusals", "What the site has refused, or failed to do.", refused)
        recent = GaugeMetricFamily("collegium_site_recent_refusals", "The latest 10,000 by code.", labels=["code"])
        for code, count in codes:
            recent.add_metric([code], count)
        yield recent


def _studies(found: Iterable[Coordinator]) -> Iterator[Metric]:
    states = {"running": 0, "ended early": 0}
    names = ["study", "run"]
    of: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
        "round": GaugeMetricFamily("collegium_study_round", "The round that has begun, from 1.", labels=names),
        "rounds": GaugeMetricFamily("collegium_study_rounds", "How many rounds there will be.", labels=names),
        "seconds": CounterMetricFamily("collegium_study_seconds", "For how long it has run.", labels=names),
        "received": CounterMetricFamily("collegium_study_received_bytes", "What sites have sent.", labels=names),
        "sent": CounterMetricFamily("collegium_study_sent_bytes", "What was sent to sites.", labels=names),
        "epsilon": GaugeMetricFamily(
            "collegium_study_epsilon", "The most that a site has spent in this run, by its own word.", labels=names
        ),
        "delta": GaugeMetricFamily("collegium_study_delta", "The delta at which that is computed.", labels=names),
    }
    failures = CounterMetricFamily(
        "collegium_study_failures", "Orders that sites refused, failed at or did not answer.", labels=[*names, "code"]
    )
    for each in found:
        states["running" if each.alive else "ended early"] += 1
        if each.progress is None or not each.alive:
            continue
        whose = [each.study, each.progress.run[:12]]
        for name, family in of.items():
            value = getattr(each.progress, name)
            if value is not None:
                family.add_metric(whose, value)
        for code, count in each.progress.failures.items():
            failures.add_metric([*whose, code], count)
    studies = GaugeMetricFamily("collegium_server_studies", "Studies that are run here.", labels=["state"])
    for state, count in states.items():
        studies.add_metric([state], count)
    yield studies
    yield from of.values()
    yield failures


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"collegium_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"collegium_{name}", text, value)


def written(metrics: Any, accept: str) -> tuple[bytes, str]:
    """All metrics in the format that a program asks for, and what that format is called."""
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(metrics)
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
