from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from collegium.errors import CollegiumError, ConfigError, Refused
from collegium.flare.agreement import approvals as module
from collegium.flare.agreement import orders
from collegium.flare.agreement.approvals import Approvals, Denial, PlanDenied
from collegium.flare.agreement.planning import Plan, PlannedStep
from collegium.flare.agreement.signed_words import APPROVAL, DENIAL, write_signed
from collegium.protocols.keys import SiteKeys, new_secret

RUN, SHA, OTHER = "ab" * 16, "1" * 64, "2" * 64
KEYS = SiteKeys("north", new_secret())
STEP = PlannedStep("fedct.label", "0" * 16, "HardLabels", None, True, 3, 80)
PLAN = Plan("study", {"name": "fedct"}, 0, ("a", "b"), None, 0, ("north", "south"), (STEP,), True)


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path, KEYS)


def propose_order(approvals: Approvals, number: int = 7, sha256: str = SHA) -> None:
    approvals.orders.propose(RUN, number, sha256, steps=["fedct.train", "fedct.label"], kinds=["Nothing", "HardLabels"])


def test_a_plan_waits_until_it_is_signed(approvals, tmp_path):
    assert not approvals.approved(PLAN.digest)
    approvals.propose(PLAN)
    approvals.propose(PLAN)
    assert approvals.pending() == [PLAN]
    assert not approvals.approved(PLAN.digest)
    approvals.approve(PLAN.digest)
    assert approvals.approved(PLAN.digest)
    assert approvals.pending() == []
    assert approvals.plan(PLAN.digest) == PLAN
    assert Approvals(tmp_path, KEYS).approved(PLAN.digest)


def test_an_approval_says_who_and_when(approvals, tmp_path):
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    said = json.loads((tmp_path / "approvals" / f"{PLAN.digest}.json").read_text())
    assert (said["plan"], said["site"]) == (PLAN.digest, "north")
    assert said["time"].endswith("+00:00")


def test_files_are_the_owners_alone(approvals, tmp_path):
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    propose_order(approvals)
    approvals.orders.deny(RUN, 7, SHA, reason="no")
    propose_order(approvals, 8)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5, "a plan, an order, an approval, a denial, the journal"
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o700}


def test_an_approval_can_be_withdrawn(approvals):
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    approvals.withdraw(PLAN.digest)
    approvals.withdraw(PLAN.digest)
    assert not approvals.approved(PLAN.digest)
    assert approvals.plans() == []
    approvals.propose(PLAN)
    assert approvals.pending() == [PLAN]


@pytest.mark.parametrize(
    "change",
    [
        lambda said, other: said | {"plan": other},
        lambda said, other: said | {"site": "south"},
        lambda said, other: said | {"runs": 1000},
        lambda said, other: said | {"until": "2999-12-31"},
        lambda said, other: said | {"name": "00" * 8},
        lambda said, other: said | {"time": "2000-01-01T00:00:00+00:00"},
        lambda said, other: said | {"signature": "00" * 64},
        lambda said, other: said | {"signature": "no hex"},
        lambda said, other: said | {"signature": None},
        lambda said, other: said | {"extra": 1},
        lambda said, other: {key: value for key, value in said.items() if key != "signature"},
        lambda said, other: [said],
        lambda said, other: "signed",
    ],
)
def test_a_tampered_approval_is_none(approvals, tmp_path, change):
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    file = tmp_path / "approvals" / f"{PLAN.digest}.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()), OTHER)))
    assert not approvals.approved(PLAN.digest)
    assert approvals.pending() == [PLAN]


def test_damaged_files_are_none(approvals, tmp_path):
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    for content in (b"", b"\xff", b"{", b"[" * 50_000, b" " * (1 << 20)):
        (tmp_path / "approvals" / f"{PLAN.digest}.json").write_bytes(content)
        (tmp_path / "orders" / f"{RUN}-1.json").write_bytes(content)
        (tmp_path / "plans" / f"{OTHER}.json").write_bytes(content)
        assert not approvals.approved(PLAN.digest)
        assert approvals.pending() == [PLAN]
        assert approvals.orders.pending() == []


def test_the_approval_of_one_plan_is_not_that_of_another(approvals, tmp_path):
    other = replace(PLAN, seed=1)
    approvals.propose(PLAN)
    approvals.approve(PLAN.digest)
    copy = (tmp_path / "approvals" / f"{PLAN.digest}.json").read_bytes()
    (tmp_path / "approvals" / f"{other.digest}.json").write_bytes(copy)
    assert not approvals.approved(other.digest)
    (tmp_path / "plans" / f"{other.digest}.json").write_text(PLAN.to_json())
    with pytest.raises(ConfigError, match=r"Plan .* not found"):
        approvals.approve(other.digest)


def test_the_approval_of_another_site_or_key_is_none(approvals, tmp_path):
    approvals.propose(PLAN)
    Approvals(tmp_path, SiteKeys("north", new_secret())).approve(PLAN.digest)
    assert not approvals.approved(PLAN.digest)
    Approvals(tmp_path, SiteKeys("south", KEYS.secret)).approve(PLAN.digest)
    assert not approvals.approved(PLAN.digest)


def test_an_approval_without_a_count_and_an_end_is_none(approvals, tmp_path):
    """As the first version signed them."""
    approvals.propose(PLAN)
    write_signed(tmp_path / "approvals" / f"{PLAN.digest}.json", KEYS, APPROVAL, {"plan": PLAN.digest})
    assert approvals.approval(PLAN.digest) is None
    assert approvals.pending() == [PLAN]


def test_runs_are_counted_for_each_signature(approvals, tmp_path):
    approvals.propose(PLAN)
    first = approvals.approve(PLAN.digest, runs=2)
    for run in ("1" * 32, "2" * 32, "2" * 32):
        assert approvals.require(PLAN, run) == first.name
        approvals.usage.begin(run, PLAN.digest, first.name)
    assert approvals.runs_left(first) == 0
    with pytest.raises(Refused) as refusal:
        Approvals(tmp_path, KEYS).require(PLAN, "3" * 32)
    assert refusal.value.code == "approval-spent"
    assert approvals.require(PLAN, "1" * 32) == first.name, "a run that has begun goes on"
    assert approvals.pending() == [], "it was decided on"
    second = approvals.approve(PLAN.digest)
    assert approvals.require(PLAN, "3" * 32) == second.name
    assert approvals.runs_left(second) == 1
    with pytest.raises(ConfigError, match="at least one run"):
        approvals.approve(PLAN.digest, runs=0)


def test_a_plan_that_was_never_proposed_cannot_be_signed(approvals):
    with pytest.raises(ConfigError, match=r"Plan .* not found"):
        approvals.approve(PLAN.digest)


def test_too_many_undecided_plans_and_orders_are_refused(approvals, monkeypatch):
    monkeypatch.setattr(module, "MOST_PENDING", 3)
    monkeypatch.setattr(orders, "MOST_PENDING", 3)
    plans = [replace(PLAN, seed=seed) for seed in range(4)]
    for plan in plans[:3]:
        approvals.propose(plan)
    with pytest.raises(Refused) as refusal:
        approvals.propose(plans[3])
    assert refusal.value.code == "approvals-full"
    approvals.propose(plans[0])
    approvals.approve(plans[0].digest)
    approvals.propose(plans[3])
    for number in range(3):
        propose_order(approvals, number)
    with pytest.raises(Refused):
        propose_order(approvals, 3)
    assert [order.number for order in approvals.orders.pending()] == [0, 1, 2]


@pytest.mark.parametrize(
    "name", ["", "../" * 10 + "x", "A" * 64, "0" * 63, "0" * 65, "/etc/passwd", 5, None, "0" * 64 + "\n"]
)
def test_names_that_could_be_paths_never_touch_the_disk(approvals, name):
    for call in (approvals.approved, approvals.approve, approvals.withdraw, approvals.plan):
        with pytest.raises(ConfigError):
            call(name)
    for call in (approvals.orders.approved, approvals.orders.approve):
        with pytest.raises(ConfigError):
            call(name if name != "0" * 63 else "x", 1, SHA)
        with pytest.raises(ConfigError):
            call(RUN, 1, name)


@pytest.mark.parametrize("number", [-1, True, 1.5, "1", 1 << 64])
def test_numbers_that_are_none(approvals, number):
    with pytest.raises(ConfigError):
        approvals.orders.approved(RUN, number, SHA)


def test_an_order_waits_until_it_is_signed(approvals, tmp_path):
    assert not approvals.orders.approved(RUN, 7, SHA)
    propose_order(approvals)
    propose_order(approvals)
    (waiting,) = approvals.orders.pending()
    assert (waiting.run, waiting.number, waiting.sha256) == (RUN, 7, SHA)
    assert waiting.kinds == ("Nothing", "HardLabels")
    approvals.orders.approve(RUN, 7, SHA)
    assert approvals.orders.approved(RUN, 7, SHA)
    assert approvals.orders.pending() == []
    assert Approvals(tmp_path, KEYS).orders.approved(RUN, 7, SHA)


def test_another_order_under_the_same_number_is_not_what_was_signed(approvals):
    propose_order(approvals)
    with pytest.raises(Refused) as refusal:
        propose_order(approvals, sha256=OTHER)
    assert refusal.value.code == "other-order"
    with pytest.raises(ConfigError, match="has changed"):
        approvals.orders.approve(RUN, 7, OTHER)
    approvals.orders.approve(RUN, 7, SHA)
    assert not approvals.orders.approved(RUN, 7, OTHER)
    assert not approvals.orders.approved(RUN, 8, SHA)
    assert not approvals.orders.approved("cd" * 16, 7, SHA)


def test_a_full_or_closed_folder_is_said_in_one_line(tmp_path):
    (tmp_path / "plans").write_text("in the way")
    with pytest.raises(CollegiumError, match="plans"):
        Approvals(tmp_path, KEYS)


def test_what_begins_to_wait_is_announced_once(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []

    class Announce:
        def plan_waits(self, digest: str) -> None:
            told.append((digest,))

        def order_waits(self, run: str, number: int) -> None:
            told.append((run, number))

    approvals = Approvals(tmp_path, KEYS, Announce())
    for _ in range(2):
        approvals.propose(PLAN)
        propose_order(approvals)
    assert told == [(PLAN.digest,), (RUN, 7)]


def test_a_denied_plan_waits_no_longer_and_is_refused(approvals, tmp_path):
    approvals.propose(PLAN)
    approvals.deny(PLAN.digest, reason="  no \n legal basis ", by="A. Officer")
    assert approvals.pending() == []
    assert not approvals.approved(PLAN.digest)
    assert approvals.denial(PLAN.digest) == Denial(PLAN.digest, "no legal basis", "A. Officer", False)
    with pytest.raises(PlanDenied) as refusal:
        Approvals(tmp_path, KEYS).require(PLAN, RUN)
    assert (refusal.value.code, refusal.value.reason) == ("plan-denied", ""), "the reason stays here"
    approvals.propose(PLAN)
    assert approvals.pending() == [], "proposed again, it is still denied"


def test_the_coordinator_is_told_why_only_if_the_owner_wants_that(approvals):
    approvals.propose(PLAN)
    approvals.deny(PLAN.digest, reason="ask the ward first", tell=True)
    with pytest.raises(PlanDenied) as refusal:
        approvals.require_not_denied(PLAN)
    assert refusal.value.reason == "ask the ward first"


def test_a_denial_ends_an_approval_and_an_approval_a_denial(approvals, tmp_path):
    approvals.propose(PLAN)
    signed = approvals.approve(PLAN.digest, runs=3, reason="board of 3 May", by="A. Officer")
    assert (signed.reason, signed.by) == ("board of 3 May", "A. Officer")
    assert approvals.approval(PLAN.digest) == signed
    kept = (tmp_path / "approvals" / f"{PLAN.digest}.json").read_bytes()
    approvals.deny(PLAN.digest, reason="second thoughts")
    assert approvals.approval(PLAN.digest) is None
    (tmp_path / "approvals" / f"{PLAN.digest}.json").write_bytes(kept)
    assert not approvals.approved(PLAN.digest), "an old approval that somebody puts back does not undo a denial"
    with pytest.raises(PlanDenied):
        approvals.require(PLAN, RUN)
    approvals.approve(PLAN.digest)
    assert approvals.require(PLAN, RUN)
    assert [each.act for each in approvals.journal.entries()] == ["approved", "denied", "approved"]


def test_a_denial_needs_a_reason_that_can_be_read(approvals):
    approvals.propose(PLAN)
    for reason in ("", "  \n", "x" * 501, "\x1b[2J", "\u202eevil"):
        with pytest.raises(ConfigError):
            approvals.deny(PLAN.digest, reason=reason)
    assert approvals.pending() == [PLAN]
    assert approvals.journal.entries() == []


def test_a_denial_that_somebody_else_wrote_counts_for_nothing(approvals, tmp_path):
    approvals.propose(PLAN)
    said = {"plan": PLAN.digest, "reason": "no", "by": "", "told": True}
    file = tmp_path / "denials" / f"{PLAN.digest}.json"
    write_signed(file, SiteKeys("north", new_secret()), DENIAL, said)
    assert approvals.denial(PLAN.digest) is None
    write_signed(file, KEYS, APPROVAL, said)
    assert approvals.denial(PLAN.digest) is None, "words count for what they were signed for"
    approvals.approve(PLAN.digest)
    (tmp_path / "denials" / f"{PLAN.digest}.json").write_bytes(
        (tmp_path / "approvals" / f"{PLAN.digest}.json").read_bytes()
    )
    assert approvals.approved(PLAN.digest)


def test_a_denied_order_is_not_asked_about_again(approvals, tmp_path):
    propose_order(approvals)
    with pytest.raises(ConfigError, match="needs a reason"):
        approvals.orders.deny(RUN, 7, SHA, reason=" ")
    with pytest.raises(ConfigError, match="has changed"):
        approvals.orders.deny(RUN, 7, OTHER, reason="no")
    approvals.orders.deny(RUN, 7, SHA, reason="no")
    assert approvals.orders.pending() == []
    assert approvals.orders.denied(RUN, 7, SHA)
    assert not approvals.orders.denied(RUN, 7, OTHER)
    assert not approvals.orders.approved(RUN, 7, SHA)
    denial = (tmp_path / "denials" / f"{RUN}-7.json").read_bytes()
    (tmp_path / "approvals" / f"{RUN}-7.json").write_bytes(denial)
    assert not approvals.orders.approved(RUN, 7, SHA), "a denial does not pass for an approval"
