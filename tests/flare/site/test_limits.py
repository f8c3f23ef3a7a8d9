"""An approval has a count and an end: what a coordinator gets out of one signature, and no more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flare.offices import open_office, write_data, write_site
from tests.flare.talk import RUN, code_of, frame, give, open_run, say

from collegium.algorithms import fedct
from collegium.core.scores import score
from collegium.errors import WireError
from collegium.flare.agreement import approvals as module
from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.site.office import Office
from collegium.site.ledger import verify_ledger
from collegium.study.study import Study

NOISE = {"name": "randomized_response", "epsilon": 0.05}
CLASSES = np.array(["benign", "malignant"])


@pytest.fixture(scope="module")
def plan(public: Any) -> Plan:
    algorithm = {"name": "fedct", "rounds": 1, "mechanism": NOISE}
    study = {"name": "t", "data": {"source": "public.csv"}, "algorithm": algorithm}
    return plan_of(Study.from_dict(study | {"federation": {"classes": CLASSES.tolist()}}), public, CLASSES, ["site-1"])


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    write_data(tmp_path, ["site-1"])
    write_site(tmp_path / "site-1", "site-1", approval="plan", policy='requires = "dp"\nunprotected = []')
    return tmp_path / "site-1"


def run_id(number: int) -> str:
    return f"{number:032x}"


def label(number: int, plan: Plan, run: str = RUN) -> bytes:
    return frame(number, fedct.label(), run=run, sha256=plan.public_sha256, mechanism=NOISE)


def train_and_label(number: int, plan: Plan, run: str = RUN) -> bytes:
    orders = fedct.train(None, None, None), fedct.label()
    return frame(number, *orders, run=run, sha256=plan.public_sha256, mechanism=NOISE)


def asked(office: Office, sent: bytes, run: str = RUN) -> str:
    return code_of(give(office, sent, run=run))


def test_one_signature_gives_no_more_than_was_signed(kit: Path, plan: Plan, public: Any) -> None:
    """A coordinator averages the noise away: many releases in a run, many runs, a restart in between."""
    office = open_office(kit)
    assert open_run(office, plan, public, run_id(1)) == "waiting"
    office._approvals.approve(plan.digest)
    codes: Counter[str] = Counter()
    for run in map(run_id, range(1, 4)):
        codes[open_run(office, plan, public, run)] += 1
        codes[asked(office, train_and_label(1, plan, run), run)] += 1
        for number in range(2, 20):
            codes[asked(office, label(number, plan, run), run)] += 1
        office = open_office(kit)
    assert codes["HardLabels"] == 1
    assert codes["open"] == 1
    assert codes["approval-spent"] == 2 + 18, codes
    assert verify_ledger(kit / "agent" / "ledger.db") == {"site-1": 1}


def test_what_is_sent_again_is_not_counted_again(kit: Path, plan: Plan, public: Any) -> None:
    office = open_office(kit)
    open_run(office, plan, public)
    office._approvals.approve(plan.digest)
    for _ in range(3):
        assert open_run(office, plan, public) == "open", "the same run, resumed"
        assert asked(office, train_and_label(1, plan)) == "HardLabels"
        say(office, do="close", run=RUN)
        office = open_office(kit)
    assert asked(office, label(2, plan)) == "not-open"


def test_every_step_has_a_limit_also_one_that_was_not_rehearsed(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="auto", policy='requires = "dp"\nunprotected = ["Scores"]')
    assert all(step.most for step in plan.steps)
    office = open_office(kit)
    assert open_run(office, plan, public) == "open"
    assert asked(office, train_and_label(1, plan)) == "HardLabels"
    assert asked(office, label(2, plan)) == "approval-spent", "the plan's counts hold where nobody signs, too"
    scores = [asked(office, frame(number, score(), sha256=plan.public_sha256)) for number in (3, 4)]
    assert scores == ["Scores", "approval-spent"]
    assert asked(office, frame(5, fedct.train(None, None, None), sha256=plan.public_sha256)) == "approval-spent"
    many = frame(6, *[fedct.train(None, None, None)] * 2, run=run_id(2), sha256=plan.public_sha256)
    open_run(office, plan, public, run_id(2))
    assert asked(office, many, run_id(2)) == "approval-spent", "orders of one frame count one by one"


def test_an_order_whose_admission_breaks_down_does_not_run(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="auto", policy='requires = "dp"\nunprotected = []')
    office = open_office(kit)
    open_run(office, plan, public)
    engagement = office._runs.get(RUN)
    assert engagement is not None

    def break_down(requests: Any) -> None:
        raise WireError("A part of the plan cannot be read.")

    with pytest.raises(WireError):
        engagement.serve("a", train_and_label(1, plan), 30.0, break_down)
    assert not verify_ledger(kit / "agent" / "ledger.db")


def test_an_approval_ends(kit: Path, plan: Plan, public: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    office = open_office(kit)
    open_run(office, plan, public)
    approval = office._approvals.approve(plan.digest, runs=5)
    assert open_run(office, plan, public) == "open"
    monkeypatch.setattr(module, "today", lambda: approval.until + timedelta(days=1))
    assert asked(office, train_and_label(1, plan)) == "approval-expired", "in a run that is open, too"
    assert open_run(office, plan, public) == "approval-expired"
    assert open_run(office, plan, public, run_id(2)) == "approval-expired"
    office._approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "open"
    assert asked(office, train_and_label(1, plan)) == "HardLabels"


def test_an_approval_that_is_taken_back_stops_a_run(kit: Path, plan: Plan, public: Any) -> None:
    office = open_office(kit)
    open_run(office, plan, public)
    office._approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "open"
    office._approvals.withdraw(plan.digest)
    assert asked(office, train_and_label(1, plan)) == "not-open", "the coordinator opens it again, and waits"
    assert open_run(office, plan, public) == "waiting"
    assert [each.digest for each in office._approvals.pending()] == [plan.digest]


def test_a_run_that_was_begun_keeps_its_plan(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="auto")
    office = open_office(kit)
    assert open_run(office, plan, public) == "open"
    say(office, do="close", run=RUN)
    generous = replace(plan, steps=tuple(replace(each, most=1000) for each in plan.steps))
    assert open_run(office, generous, public) == "other-plan"
