from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from collegium.errors import CollegiumError, ConfigError, Refused
from collegium.flare.agreement import approvals as module
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.planning import Plan, PlannedStep
from collegium.protocols.keys import SiteKeys, new_secret

RUN, SHA, OTHER = "ab" * 16, "1" * 64, "2" * 64
KEYS = SiteKeys("north", new_secret())
STEP = PlannedStep("fedct.label", "0" * 16, "HardLabels", None, True, 3, 80)
PLAN = Plan("study", {"name": "fedct"}, 0, ("a", "b"), None, 0, ("north", "south"), (STEP,), True)


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path, KEYS)


def propose_order(approvals: Approvals, number: int = 7, sha256: str = SHA) -> None:
    approvals.propose_order(RUN, number, sha256, steps=["fedct.train", "fedct.label"], kinds=["Nothing", "HardLabels"])


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
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
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
        assert approvals.pending_orders() == []


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
    approvals._sign(tmp_path / "approvals" / f"{PLAN.digest}.json", {"plan": PLAN.digest})
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
    assert [order.number for order in approvals.pending_orders()] == [0, 1, 2]


@pytest.mark.parametrize(
    "name", ["", "../" * 10 + "x", "A" * 64, "0" * 63, "0" * 65, "/etc/passwd", 5, None, "0" * 64 + "\n"]
)
def test_names_that_could_be_paths_never_touch_the_disk(approvals, name):
    for call in (approvals.approved, approvals.approve, approvals.withdraw, approvals.plan):
        with pytest.raises(ConfigError):
            call(name)
    for call in (approvals.order_approved, approvals.approve_order):
        with pytest.raises(ConfigError):
            call(name if name != "0" * 63 else "x", 1, SHA)
        with pytest.raises(ConfigError):
            call(RUN, 1, name)


@pytest.mark.parametrize("number", [-1, True, 1.5, "1", 1 << 64])
def test_numbers_that_are_none(approvals, number):
    with pytest.raises(ConfigError):
        approvals.order_approved(RUN, number, SHA)


def test_an_order_waits_until_it_is_signed(approvals, tmp_path):
    assert not approvals.order_approved(RUN, 7, SHA)
    propose_order(approvals)
    propose_order(approvals)
    (waiting,) = approvals.pending_orders()
    assert (waiting.run, waiting.number, waiting.sha256) == (RUN, 7, SHA)
    assert waiting.kinds == ("Nothing", "HardLabels")
    approvals.approve_order(RUN, 7, SHA)
    assert approvals.order_approved(RUN, 7, SHA)
    assert approvals.pending_orders() == []
    assert Approvals(tmp_path, KEYS).order_approved(RUN, 7, SHA)


def test_another_order_under_the_same_number_is_not_what_was_signed(approvals):
    propose_order(approvals)
    with pytest.raises(Refused) as refusal:
        propose_order(approvals, sha256=OTHER)
    assert refusal.value.code == "other-order"
    with pytest.raises(ConfigError, match="has changed"):
        approvals.approve_order(RUN, 7, OTHER)
    approvals.approve_order(RUN, 7, SHA)
    assert not approvals.order_approved(RUN, 7, OTHER)
    assert not approvals.order_approved(RUN, 8, SHA)
    assert not approvals.order_approved("cd" * 16, 7, SHA)


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
