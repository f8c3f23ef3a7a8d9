"""Sessions that break, sites that come and go: the run goes on, and comes to the same."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flare.conftest import NAMES
from tests.flare.offices import OfficeHost, open_office, write_data, write_site
from tests.waiting import seconds

import collegium as cg
from collegium import wire
from collegium.errors import QuorumLost
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.coordinator.link import SessionLost, reason_in
from collegium.flare.site.desk import open_desk
from collegium.flare.site.setup import load_site
from collegium.runs.callbacks import Callback
from collegium.runs.results import Run
from collegium.site.ledger import verify_ledger
from collegium.study.study import Study

# Whoever does not answer is warned of at the end of a run, and these tests see to it that somebody does not.
pytestmark = pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")


def study(**changes: Any) -> Study:
    table: dict[str, Any] = {
        "name": "test",
        "seed": 3,
        "data": {"source": "public.csv"},
        "algorithm": {"name": "fedct", "rounds": 3},
        "global_learner": "decision_tree",
        "federation": {"classes": ["benign", "malignant"], "patience": 0.3, "outage": 2.0, "wait": 0.2},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        table[section] = table.get(section, {}) | {key: value}
    return Study.from_dict(table)


def carry_out(host: OfficeHost, kits: Path, out: str = "out", **options: Any) -> Run:
    given = options.pop("study", None) or study()
    return coordinate(given, host, base=kits, out=kits / out, progress=False, **options)


@pytest.fixture
def undisturbed(tmp_path_factory: pytest.TempPathFactory, kits: Path) -> Run:
    copy = tmp_path_factory.mktemp("copy") / "kits"
    shutil.copytree(kits, copy, ignore=shutil.ignore_patterns("*.sock"))
    return carry_out(OfficeHost({name: copy / name for name in NAMES}), copy)


def assert_same(run: Run, other: Run) -> None:
    assert np.array_equal(run.labels.codes, other.labels.codes)
    assert run.metrics.equals(other.metrics)


def released(kits: Path) -> dict[str, int]:
    return {name: verify_ledger(kits / name / "agent" / "ledger.db")[name] for name in NAMES}


class At(Callback):
    """Do something when a round ends."""

    def __init__(self, number: int, do: Any) -> None:
        self._number, self._do = number, do

    def on_round(self, report: Any) -> None:
        if report.round == self._number:
            self._do()


def test_a_federation_comes_to_what_a_simulation_comes_to(host: OfficeHost, kits: Path) -> None:
    run = carry_out(host, kits)
    setups = [load_site(kits / name) for name in NAMES]
    public = host.offices["site-1"]._public.get(run.about["public_sha256"])
    assert public is not None
    simulated = cg.run(
        cg.FedCT(rounds=3), sites=[setup.with_public(public.X) for setup in setups], public=public.X, seed=3,
        classes=np.array(["benign", "malignant"]), progress=False,
    )  # fmt: skip
    assert np.array_equal(run.labels.codes, simulated.labels.codes)
    ours, theirs = run.releases.query("kind == 'HardLabels'"), simulated.releases
    assert sorted(ours["sha256"]) == sorted(theirs["sha256"])


def test_every_session_breaks_once_before_and_once_after_an_answer(
    host: OfficeHost, kits: Path, undisturbed: Run
) -> None:
    broken = set()

    def break_session(party: str, message: bytes) -> None:
        header, _ = wire.cut(message)
        key = (header["do"], header.get("order"), party)
        if key not in broken and len(broken) < 12 and host.requests % 2:
            broken.add(key)
            host.sessions[-1].ended = True

    host.before_request = host.after_reply = break_session  # type: ignore[method-assign]
    assert_same(carry_out(host, kits), undisturbed)
    assert len(host.sessions) > 5
    assert released(kits) == dict.fromkeys(NAMES, 6), "three rounds of labels and scores, each released once"


def test_an_agent_that_is_killed_goes_on_from_its_stored_state(host: OfficeHost, kits: Path, undisturbed: Run) -> None:
    run = carry_out(host, kits, callbacks=[At(1, lambda: host.restart("site-2"))])
    assert_same(run, undisturbed)
    assert run.refusals.empty


def test_an_agent_that_is_being_started_is_waited_for(host: OfficeHost, kits: Path, undisturbed: Run) -> None:
    def take_away() -> None:
        host.starting.add("site-2")
        threading.Timer(0.2, lambda: (host.restart("site-2"), host.starting.clear())).start()

    run = carry_out(host, kits, study=study(federation__patience=5.0), callbacks=[At(0, take_away)])
    assert run.refusals.empty
    assert_same(run, undisturbed)


def test_a_site_that_is_away_is_left_out_and_comes_back(host: OfficeHost, kits: Path) -> None:
    said: list[str] = []
    faults = [At(0, lambda: host.away.add("site-2")), At(2, lambda: host.away.clear())]
    run = carry_out(host, kits, study=study(algorithm__rounds=5), callbacks=faults, say=said.append)
    missing = run.refusals[(run.refusals["party"] == "site-2") & (run.refusals["code"] == "missing")]
    assert set(missing["round"]) <= {1, 2}
    assert 4 in set(run.releases.query("party == 'site-2' and kind == 'HardLabels'")["round"])
    assert "site-2 is away" in said
    assert "site-2 is back" in said


def test_a_site_that_stays_away(host: OfficeHost, kits: Path) -> None:
    host.away.add("site-3")
    start = time.monotonic()
    run = carry_out(host, kits, study=study(federation__parties=list(NAMES)))
    assert time.monotonic() - start < seconds(30)
    assert set(run.refusals["party"]) == {"site-3"}
    assert run.labels is not None


def test_too_few_sites(host: OfficeHost, kits: Path) -> None:
    host.away.update({"site-2", "site-3"})
    wanted = study(federation__parties=list(NAMES), engine__quorum=0.6)
    with pytest.raises(QuorumLost, match="1 of 3 sites answered"):
        carry_out(host, kits, study=wanted)


def test_nobody_is_there(host: OfficeHost, kits: Path) -> None:
    host.offices.clear()
    host.heard.clear()
    with pytest.raises(QuorumLost, match="collegium site join"):
        carry_out(host, kits)


def test_a_server_that_is_away_for_too_long(host: OfficeHost, kits: Path) -> None:
    def gone(parties: frozenset[str]) -> Any:
        raise SessionLost("the server does not answer")

    host.begin = gone  # type: ignore[method-assign]
    with pytest.raises(SessionLost, match="--resume"):
        carry_out(host, kits)


def test_a_killed_coordinator_is_resumed(host: OfficeHost, kits: Path, undisturbed: Run) -> None:
    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        carry_out(host, kits, callbacks=[At(1, kill)])
    before = released(kits)
    for name in NAMES:
        host.restart(name)
    resumed = carry_out(host, kits, resume=True)
    assert_same(resumed, undisturbed)
    assert released(kits) == dict.fromkeys(NAMES, 6)
    assert all(count < 6 for count in before.values())


def test_a_kit_in_use_twice(host: OfficeHost, kits: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    copy = tmp_path_factory.mktemp("thief") / "site-2"
    shutil.copytree(kits / "site-2", copy)
    said: list[str] = []

    def thief() -> None:
        host.offices["site-2"] = open_office(copy)
        host.sessions[-1].ended = True

    run = carry_out(host, kits, callbacks=[At(0, thief)], say=said.append)
    codes = run.refusals.query("party == 'site-2'")["code"]
    assert set(codes) == {"other-instance"}
    assert any("in use twice" in text for text in said)


def test_a_resumed_run_knows_which_installation_took_part(
    host: OfficeHost, kits: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("thief") / "site-2"
    shutil.copytree(kits / "site-2", copy)

    def kill() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(host, kits, callbacks=[At(0, kill)])
    host.offices["site-2"] = open_office(copy)
    run = carry_out(host, kits, resume=True)
    assert set(run.refusals.query("party == 'site-2'")["code"]) == {"other-instance"}


def test_a_newcomer_gets_the_current_consensus(host: OfficeHost, kits: Path) -> None:
    write_data(kits / "more", ["x", "y", "z", "site-4"])
    shutil.copytree(kits / "more" / "site-4", kits / "site-4")
    write_site(kits / "site-4", "site-4")

    def join() -> None:
        host.kits["site-4"] = kits / "site-4"
        host.restart("site-4")

    def kill() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(host, kits, callbacks=[At(0, join), At(1, kill)])
    run = carry_out(host, kits, resume=True)  # the record knows who joined when
    rounds = run.releases.query("party == 'site-4' and kind == 'HardLabels'")["round"].tolist()
    assert rounds == [1, 2]
    assert run.about["parties"] == [*NAMES, "site-4"]
    assert run.refusals.empty


def test_a_study_for_named_sites_takes_no_others(host: OfficeHost, kits: Path) -> None:
    run = carry_out(host, kits, study=study(federation__parties=["site-1", "site-3"]))
    assert run.about["parties"] == ["site-1", "site-3"]
    assert not (kits / "site-2" / "agent" / "runs").exists()


def test_an_approval_is_waited_for(host: OfficeHost, kits: Path) -> None:
    write_site(kits / "site-2", "site-2", approval="plan")
    host.restart("site-2")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "approve the plan" in text:
            approvals = host.offices["site-2"]._approvals
            approvals.approve(approvals.pending()[0].digest)

    run = carry_out(host, kits, say=say)
    assert "site-2 waits for its owner to approve the plan" in said
    assert run.refusals.empty


def test_a_second_run_needs_another_signature(host: OfficeHost, kits: Path) -> None:
    write_site(kits / "site-2", "site-2", approval="plan")
    host.restart("site-2")
    approvals, said = host.offices["site-2"]._approvals, []

    def say(text: str) -> None:
        said.append(text)
        if "approve the plan" in text:
            approvals.approve(approvals.pending()[0].digest)

    assert carry_out(host, kits, say=say).refusals.empty
    again = carry_out(host, kits, "again", say=said.append)
    assert set(again.refusals.query("party == 'site-2'")["code"]) == {"approval-spent"}
    assert any(f"collegium site approve KIT {again.about['plan'][:12]} --runs N" in text for text in said)


def test_a_site_whose_policy_refuses_the_study(host: OfficeHost, kits: Path) -> None:
    write_site(kits / "site-2", "site-2", policy='algorithms = ["fedavg"]')
    host.restart("site-2")
    run = carry_out(host, kits)
    assert set(run.refusals.query("party == 'site-2'")["code"]) == {"algorithm-denied"}
    assert set(run.releases["party"]) == {"site-1", "site-3"}


def test_a_deadline_ends_the_round(host: OfficeHost, kits: Path) -> None:
    slow, cancelled = threading.Event(), []

    def wait(party: str, message: bytes) -> None:
        words = wire.cut(message)[0]
        if party == "site-2" and words["do"] in ("order", "await"):
            slow.wait(60)
        if words["do"] == "cancel":
            cancelled.append(party)

    host.before_request = wait  # type: ignore[method-assign]
    start = time.monotonic()
    run = carry_out(
        host, kits, study=study(engine__deadline=seconds(2.0), algorithm__rounds=1, federation__metrics=False)
    )
    slow.set()
    assert time.monotonic() - start < seconds(20)
    assert set(run.refusals["party"]) == {"site-2"}
    assert set(cancelled) == {"site-2"}  # which need not do what nobody waits for


def test_private_labels_and_weights_do_not_reach_the_coordinator(host: OfficeHost, kits: Path) -> None:
    run = carry_out(host, kits)
    assert run.models == {}
    assert run.class_counts.empty
    assert run.about["samples"] == {}
    for file in (kits / "out").rglob("*"):
        if file.is_file() and file.suffix in (".json", ".html", ".toml"):
            assert "train.csv" not in file.read_text(errors="replace")


def test_a_paused_site_is_left_out_and_comes_back(host: OfficeHost, kits: Path) -> None:
    desk, said = open_desk(kits / "site-2"), list[str]()
    desk.pause_site(reason="audit")

    class Resume(Callback):
        def on_round(self, report: Any) -> None:
            if report.round == 0:
                desk.resume_site()

    run = carry_out(host, kits, say=said.append, callbacks=[Resume()])
    assert set(run.refusals.query("party == 'site-2'")["code"]) == {"paused"}
    assert set(run.releases.query("party == 'site-2' and step == 'fedct.label'")["round"]) == {1, 2}
    assert said[0].startswith("No rule was chosen"), "which rule to take is said before the run"
    assert any("site-2 is paused by its owner" in text for text in said)
    assert not any("audit" in text for text in said), "why it is paused stays there"


@pytest.mark.parametrize("tell", [False, True])
def test_a_denied_plan_is_said_once_with_the_reason_only_if_its_owner_wants_that(
    host: OfficeHost, kits: Path, tell: bool
) -> None:
    write_site(kits / "site-2", "site-2", approval="plan")
    host.restart("site-2")
    approvals, said = host.offices["site-2"]._approvals, list[str]()

    def say(text: str) -> None:
        said.append(text)
        if "approve the plan" in text:
            approvals.deny(approvals.pending()[0].digest, reason="ask the ward first", tell=tell)

    run = carry_out(host, kits, say=say)
    assert set(run.refusals.query("party == 'site-2'")["code"]) == {"plan-denied"}
    (line,) = (text for text in said if "plan-denied" in text)
    assert ("ask the ward first" in line) == tell
    assert set(run.releases["party"]) == {"site-1", "site-3"}


@pytest.mark.parametrize("reason", ["\x1b[2Jhello", "x" * 501, 7, None, ["a"]])
def test_a_reason_that_is_no_plain_text_is_not_shown(reason: object) -> None:
    assert reason_in({"reason": reason}) == ""
