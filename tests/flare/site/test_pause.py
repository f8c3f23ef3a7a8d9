"""A paused site begins nothing and lets nothing leave, whatever is restarted; and goes on where it was."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flare.offices import open_office, write_site
from tests.flare.talk import RUN, frame, give, open_run, say

from collegium.algorithms import fedct
from collegium.errors import ConfigError
from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.site.desk import open_desk
from collegium.flare.site.office import Office
from collegium.flare.site.pause import Pause, paused
from collegium.site.ledger import Ledger, read_ledger
from collegium.study.study import Study

STUDY = {
    "name": "test",
    "data": {"source": "public.csv"},
    "algorithm": {"name": "fedct", "rounds": 2},
    "federation": {"classes": ["benign", "malignant"]},
}


@pytest.fixture(scope="module")
def plan(public: Any) -> Plan:
    return plan_of(Study.from_dict(STUDY), public, np.array(["benign", "malignant"]), ["site-1", "site-2"])


@pytest.fixture
def kit(kits: Path) -> Path:
    return kits / "site-1"


@pytest.fixture
def office(kit: Path) -> Office:
    return open_office(kit)


def label(number: int, plan: Plan) -> bytes:
    return frame(number, fedct.train(None, None, None), fedct.label(), sha256=plan.public_sha256)


def test_a_paused_site_answers_nothing_but_who_it_is(kit: Path, office: Office, plan: Plan, public: Any) -> None:
    assert open_run(office, plan, public) == "open"
    open_desk(kit).pause_site(reason="audit", by="A. Officer")
    assert open_run(office, plan, public) == "paused"
    assert give(office, label(1, plan))["code"] == "paused"
    assert say(office, b"", do="await", run=RUN, order="x", wait=0)[0]["code"] == "paused"
    assert say(office, b"", do="public", run=RUN, sha256="0" * 64, offset=0, total=1)[0]["code"] == "paused"
    assert say(office, b"", do="hello")[0]["party"] == "site-1"
    assert read_ledger(kit / "agent" / "ledger.db") == []
    refusals = Ledger("site-1", kit / "agent" / "ledger.db").refusals()
    assert refusals == [], "the coordinator asks again and again, and would fill the list"


def test_a_pause_outlives_the_agent_and_a_run_goes_on_after_it(
    kit: Path, office: Office, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    before = give(office, label(1, plan))["kind"]
    open_desk(kit).pause_site()
    again = open_office(kit)
    assert open_run(again, plan, public) == "paused"
    open_desk(kit).resume_site()
    assert open_run(again, plan, public) == "open"
    assert give(again, label(2, plan))["kind"] == before


def test_an_order_that_waits_when_the_site_is_paused_does_not_begin(
    kit: Path, office: Office, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    go_on = threading.Event()
    office._runs.get(RUN)._thread.submit(go_on.wait, 30)
    assert give(office, label(1, plan), wait=0)["code"] == "busy"
    open_desk(kit).pause_site()
    go_on.set()
    office._runs.get(RUN)._thread.submit(lambda: None).result()
    open_desk(kit).resume_site()
    assert read_ledger(kit / "agent" / "ledger.db") == []
    assert give(office, label(1, plan))["code"] == "paused", "what became of the order; the coordinator asks again"
    assert give(office, label(1, plan))["kind"] == "HardLabels"


def test_what_a_step_makes_while_the_site_is_paused_stays_until_it_is_resumed(
    kit: Path, office: Office, plan: Plan, public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(office, plan, public)
    agent = office._runs.get(RUN)._agent
    serve, desk = agent.serve, open_desk(kit)

    def paused_meanwhile(given: bytes) -> bytes:
        desk.pause_site()
        return serve(given)

    monkeypatch.setattr(agent, "serve", paused_meanwhile)
    assert give(office, label(1, plan)) == {"state": "refused", "code": "paused"}
    monkeypatch.undo()
    desk.resume_site()
    assert give(office, label(1, plan))["kind"] == "HardLabels"
    assert len(read_ledger(kit / "agent" / "ledger.db")) == 1, "made once, and charged once"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"since": 1, "x": 2}'])
def test_a_pause_that_cannot_be_read_is_one(kit: Path, content: bytes) -> None:
    (kit / "agent" / "paused.json").write_bytes(content)
    assert paused(kit / "agent") == Pause("", "", "")


def test_pausing_twice_keeps_since_when(kit: Path) -> None:
    desk = open_desk(kit)
    first = desk.pause_site(reason="one")
    assert desk.pause_site(reason="two") == Pause(first.since, "two", "")
    desk.resume_site(reason="done")
    with pytest.raises(ConfigError, match="is not paused"):
        desk.resume_site()
    acts = [(each.act, each.reason) for each in desk.approvals.journal.entries()]
    assert acts == [("paused", "one"), ("paused", "two"), ("resumed", "done")]


def test_a_denied_plan_stops_a_run_and_says_why_only_if_told_to(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="plan")
    office, desk = open_office(kit), open_desk(kit)
    assert open_run(office, plan, public) == "waiting"
    desk.approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "open"
    desk.approvals.deny(plan.digest, reason="no legal basis")
    assert give(office, label(1, plan)) == {"state": "refused", "code": "plan-denied"}
    desk.approvals.deny(plan.digest, reason="no legal basis", tell=True)
    told = {"state": "refused", "code": "plan-denied", "reason": "no legal basis"}
    assert give(office, label(1, plan)) == told
    assert open_run(office, plan, public) == "plan-denied"
    write_site(kit, "site-1", approval="auto")
    assert open_run(open_office(kit), plan, public) == "plan-denied", "whatever the policy says since"
    assert read_ledger(kit / "agent" / "ledger.db") == []


def test_a_denied_order_is_refused_and_the_run_goes_on(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="each")
    office, desk = open_office(kit), open_desk(kit)
    open_run(office, plan, public)
    desk.approvals.approve(plan.digest)
    open_run(office, plan, public)
    assert give(office, label(1, plan))["code"] == "waiting"
    (order,) = desk.approvals.orders.pending()
    desk.approvals.orders.deny(order.run, order.number, order.sha256, reason="too soon")
    assert give(office, label(1, plan))["code"] == "order-denied"
    assert give(office, label(2, plan))["code"] == "waiting"
