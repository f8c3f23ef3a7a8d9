"""A coordinator that nobody agreed with, or a program that poses as one, wants a site's memory, disk and places."""

from __future__ import annotations

import secrets
import struct
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.flare.offices import open_office, write_site
from tests.flare.site.test_office import STUDY, label, refusals
from tests.flare.talk import RUN, code_of, frame, give, open_run, say
from typer.testing import CliRunner

from collegium import wire
from collegium.cli.main import app
from collegium.core.steps import Order
from collegium.errors import ConfigError, StorageError
from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.site import open_runs as module
from collegium.flare.site.office import Office
from collegium.flare.site.open_runs import MOST_RUNS, end_run, open_runs
from collegium.flare.site.public_store import PIECE
from collegium.site.ledger import verify_ledger
from collegium.study.study import Study

MIB = 1 << 20


@pytest.fixture(scope="module")
def plan(public: pd.DataFrame) -> Plan:
    return plan_of(Study.from_dict(STUDY), public, np.array(["benign", "malignant"]), ["site-1", "site-2"])


@pytest.fixture
def kit(kits: Path) -> Path:
    return kits / "site-1"


@pytest.fixture
def office(kit: Path) -> Office:
    return open_office(kit)


def raw(head: bytes, body: bytes = b"") -> bytes:
    return b"CLG2" + struct.pack(">II", len(head), len(body)) + head + body


def words(inner: bytes, do: bytes = b"hello") -> bytes:
    return b'{"do":"' + do + b'","run":"' + RUN.encode() + b'","x":' + inner + b"}"


LABELS = b'{"$labels":[1,0,[67108863,1]]}'
BOMBS = {
    "labels of one class, 2,528 bytes": raw(words(b"[" + b",".join([LABELS] * 80) + b"]")),
    "60 MB of empty lists": raw(words(b"[" + b"[]," * 20_000_000 + b"[]]")),
    "an array of rows without columns": raw(words(b'{"$array":["|u1",[2147483647,0]]}')),
    "an array of a giant shape": raw(words(b'{"$array":["|u1",[2147483647,2147483647]]}')),
    "an array of texts without width": raw(words(b'{"$array":["<U0",[2147483647]]}')),
    "an array of objects": raw(words(b'{"$array":["|O",[1]]}'), b"cos\nsystem\n(S'id'\ntR."),
    "a number of ten million digits": raw(words(b"9" * 10_000_000)),
    "nested 700 deep": raw(words(b"[" * 700 + b"]" * 700)),
    "nested 100,000 deep": raw(words(b"[" * 100_000 + b"]" * 100_000)),
    "a word of 20 MB": raw(words(b'"' + b"A" * 20_000_000 + b'"')),
    "a hello with 60 MB behind it": raw(b'{"do":"hello"}') + bytes(60 * MIB),
    "a hello with 1 MB behind it": raw(b'{"do":"hello"}') + bytes(MIB),
    "a pickle": b"\x80\x04cos\nsystem\n(S'id'\ntR.",
    "a plan of labels": raw(words(b"1", b"open")) + raw(LABELS),
    "a plan of empty lists": raw(words(b"1", b"open")) + raw(b"[" + b"[]," * 500_000 + b"[]]"),
    "a plan with arrays": raw(words(b"1", b"open")) + wire.pack({"study": np.zeros(1000)}).data,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_message_before_any_plan_takes_little_more_memory_than_a_plan(office: Office, kit: Path, bomb: str) -> None:
    tracemalloc.start()
    try:
        header, _ = wire.cut(office.answer(BOMBS[bomb]))
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert header["code"] in ("bad-message", "too-large")
    assert refusals(kit) == [header["code"]]
    assert (kit / "agent" / "site.log").stat().st_size < 12_000


def test_the_socket_takes_no_more_than_a_piece_of_a_public_set_before_a_run_is_open(
    office: Office, plan: Plan, public: Any
) -> None:
    assert office.longest_message < PIECE + 30_000
    assert open_run(office, plan, public) == "open"
    assert office.longest_message == 1 << 30
    say(office, do="close", run=RUN)
    assert office.longest_message < PIECE + 30_000


def on_disk(kit: Path) -> int:
    return sum(file.stat().st_size for file in (kit / "agent" / "public").iterdir())


def test_public_sets_that_no_plan_names_fill_no_disk(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    piece = bytes(PIECE)
    for run in (RUN, secrets.token_hex(16)):
        sent = {"do": "public", "run": run, "sha256": secrets.token_hex(32), "total": 1 << 29, "offset": 0}
        assert say(office, piece, **sent)[0]["code"] == "not-open"
        assert say(office, piece, **sent | {"run": "../../x"})[0]["code"] == "bad-message"
    assert say(office, wire.pack(plan.to_plain()).data, do="open", run=RUN)[0]["state"] == "needs-public"
    other = {"do": "public", "run": RUN, "sha256": secrets.token_hex(32), "total": 1 << 29, "offset": 0}
    assert say(office, piece, **other)[0]["code"] == "not-open"
    for odd in (-1, 1.5, "1", None, True):
        named = other | {"sha256": plan.public_sha256}
        assert say(office, piece, **named | {"offset": odd})[0]["code"] == "bad-message"
        assert say(office, piece, **named | {"total": odd})[0]["code"] == "bad-message"
    assert on_disk(kit) == 0
    assert open_run(office, plan, public) == "open"


def test_half_a_public_set_goes_with_its_run(office: Office, kit: Path, plan: Plan) -> None:
    def send_half() -> None:
        sent = {"do": "public", "run": RUN, "sha256": plan.public_sha256, "total": 3 * PIECE, "offset": 0}
        assert say(office, wire.pack(plan.to_plain()).data, do="open", run=RUN)[0]["state"] == "needs-public"
        assert say(office, bytes(PIECE), **sent)[0]["have"] == PIECE
        assert on_disk(kit) == PIECE

    send_half()
    office._runs._idle = 0.0
    office.tidy()
    assert on_disk(kit) == 0
    office._runs._idle = 3600.0
    send_half()
    open_office(kit)  # a new process
    assert on_disk(kit) == 0


def test_long_names_stay_out_of_log_and_ledger(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    log, mine = kit / "agent" / "site.log", kit / "agent" / "runs" / RUN / "site.log"
    before = log.stat().st_size
    long = "A" * 15_000_000
    for size in (len(long), 3_000_000, 300):
        asked = frame(1, Order("A" * size, "0" * 16, {}), sha256=plan.public_sha256)
        assert code_of(give(office, asked)) == "bad-message"
    assert say(office, do="await", run=long, order="x", wait=0)[0]["code"] == "bad-message"
    assert say(office, do=long)[0]["code"] == "bad-message"
    odd = Order("\x1b[2J\nforged line" + "B" * 200, "0" * 16, {})
    assert code_of(give(office, frame(2, odd, sha256=plan.public_sha256), name="b")) == "not-planned"
    assert log.stat().st_size - before < 10_000
    assert mine.stat().st_size < 10_000
    assert "\x1b" not in log.read_text()
    assert (kit / "agent" / "ledger.db").stat().st_size < MIB


def test_hundreds_of_bad_messages_are_a_few_lines(office: Office, kit: Path) -> None:
    for _ in range(300):
        office.answer(raw(b""))
    lines = (kit / "agent" / "site.log").read_text().splitlines()
    assert len(lines) == 9
    assert lines[-1].endswith("(256 times so far)")


def test_a_log_of_ever_new_lines_has_an_end(office: Office, kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.site.agent._LARGEST_LOG", 5000)
    for number in range(2000):
        office._log.write_again(f"refused {number}")
    size = sum(file.stat().st_size for file in (kit / "agent").glob("site.log*"))
    assert size < 11_000
    assert len(office._log.lines) == len(office._log._repeated) == 1000


def run_id(number: int) -> str:
    return f"{number:032x}"


def test_runs_without_end_block_nobody(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    assert open_run(office, plan, public) == "open"
    first = give(office, label(1, plan))
    states = [open_run(office, plan, public, run=run_id(number)) for number in range(MOST_RUNS + 3)]
    assert set(states) == {"open"}
    assert len(office._runs) == MOST_RUNS
    assert give(office, label(2, plan))["code"] == "not-open", "it sleeps, and the link opens it again"
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan)) == first
    assert give(office, label(2, plan), name="b")["kind"] == "HardLabels"
    assert verify_ledger(kit / "agent" / "ledger.db") == {"site-1": 2}
    listed = {each.run: each.state for each in open_runs(kit)}
    assert list(listed.values()).count("open") == MOST_RUNS
    assert list(listed.values()).count("asleep") == 4
    assert listed[RUN] == "open"


def test_runs_that_wait_for_their_owner_block_nobody(kit: Path, plan: Plan, public: Any) -> None:
    write_site(kit, "site-1", approval="plan")
    office = open_office(kit)
    for number in range(2 * MOST_RUNS):
        assert open_run(office, plan, public, run=run_id(number)) == "waiting"
    assert len(office._public._wanted) == MOST_RUNS
    office._approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "open"


def test_a_run_at_work_is_not_put_to_sleep(
    office: Office, plan: Plan, public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.flare.site.test_office import keep_busy

    monkeypatch.setattr(module, "MOST_RUNS", 1)
    open_run(office, plan, public)
    go_on = keep_busy(office)
    assert give(office, label(1, plan), wait=0.0)["code"] == "busy"
    office._runs._idle = 0.0
    office.tidy()
    assert open_run(office, plan, public, run_id(1)) == "too-many-runs"
    go_on.set()
    header, _ = say(office, do="await", run=RUN, order="a", wait=30.0)
    assert header["state"] == "done"
    assert open_run(office, plan, public, run_id(1)) == "open"


def test_an_idle_run_sleeps_and_wakes_where_it_was(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    first = give(office, label(1, plan))
    office._runs._idle = 0.0
    office.tidy()
    (run,) = open_runs(kit)
    assert (run.run, run.study, run.plan, run.state) == (RUN, plan.study, plan.digest, "asleep")
    assert run.since <= run.heard
    assert office._public._loaded == {}, "nor does it keep the public set in memory"
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan)) == first
    assert open_runs(kit)[0].since == run.since


def test_an_agent_that_was_killed_says_that_its_runs_sleep(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    assert [run.state for run in open_runs(kit)] == ["open"]
    open_office(kit)
    assert [run.state for run in open_runs(kit)] == ["asleep"]


def test_a_full_disk_neither_keeps_a_run_awake_nor_loses_it(
    office: Office, kit: Path, plan: Plan, public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, content: bytes) -> None:
        raise StorageError("No space left on disk.")

    open_run(office, plan, public)
    first = give(office, label(1, plan))
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_private", full)
        office._runs._idle = 0.0
        office.tidy()
        assert len(office._runs) == 0
        assert open_run(office, plan, public) == "storage-failed"
        assert len(office._runs) == 0
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan)) == first


def test_runs_are_counted_while_others_are_heard(office: Office, plan: Plan, public: Any) -> None:
    """Each connection asks how long a message may be, in a thread of its own."""
    for number in range(8):
        open_run(office, plan, public, run_id(number))
    done = threading.Event()

    def hear() -> None:
        while not done.is_set():
            for number in range(8):
                office._runs.get(run_id(number))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other = threading.Thread(target=hear)
    other.start()
    try:
        assert {len(office._runs) for _ in range(3000)} == {8}
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(before)


def test_a_run_that_is_over_is_not_listed(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    say(office, do="close", run=RUN)
    assert open_runs(kit) == []
    with pytest.raises(ConfigError, match="lists those that are"):
        end_run(kit, RUN)


@pytest.mark.parametrize("asleep", [False, True])
def test_a_run_that_its_owner_ends_stays_ended(
    office: Office, kit: Path, plan: Plan, public: Any, asleep: bool
) -> None:
    open_run(office, plan, public)
    give(office, label(1, plan))
    folder = kit / "agent" / "runs" / RUN
    assert list(folder.glob("state-*.pkl"))
    if asleep:
        office = open_office(kit)
    end_run(kit, RUN)
    assert [run.state for run in open_runs(kit)] == ["ending"]
    assert give(office, label(2, plan), name="b")["code"] == "run-ended", "before the agent has looked"
    office.tidy()
    assert open_runs(kit) == []
    assert len(office._runs) == 0
    assert not list(folder.glob("state-*.pkl")), "its keys are gone"
    assert open_run(office, plan, public) == "run-ended"
    assert open_run(open_office(kit), plan, public) == "run-ended", "nor after a restart"
    assert verify_ledger(kit / "agent" / "ledger.db") == {"site-1": 1}
    assert open_run(office, plan, public, run_id(1)) == "open"


def clean(kit: Path) -> str:
    done = CliRunner().invoke(app, ["site", "clean", str(kit), "--days", "0", "--yes"])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_that_was_ended_stays_ended_when_its_leftovers_are_deleted(
    office: Office, kit: Path, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    give(office, label(1, plan))
    end_run(kit, RUN)
    office.tidy()
    clean(kit)
    assert [path.name for path in (kit / "agent" / "runs" / RUN).iterdir()] == ["ended"]
    assert open_run(open_office(kit), plan, public) == "run-ended"
    assert RUN not in clean(kit), "there is nothing more to delete of it"


def test_a_run_that_sleeps_is_not_deleted(office: Office, kit: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    first = give(office, label(1, plan))
    office._runs._idle = 0.0
    office.tidy()
    clean(kit)
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan)) == first
    assert list((kit / "agent" / "runs" / RUN).glob("state-*.pkl"))


@pytest.mark.parametrize("run", ["", "..", "../../x", "0" * 31, "0" * 32])
def test_only_a_run_that_is_open_can_be_ended(kit: Path, run: str) -> None:
    with pytest.raises(ConfigError):
        end_run(kit, run)


def test_orders_that_were_given_up_make_room(office: Office, plan: Plan, public: Any) -> None:
    from tests.flare.site.test_office import keep_busy

    open_run(office, plan, public)
    go_on = keep_busy(office)
    for number in range(1, 30):
        assert give(office, label(number, plan), name=str(number), wait=0.0)["code"] == "busy"
        assert say(office, do="cancel", run=RUN, order=str(number))[0]["done"] is True
    assert len(office._runs.get(RUN)._given) <= 8  # type: ignore[union-attr]
    go_on.set()
    assert give(office, label(1, plan), name="last")["kind"] == "HardLabels"


def test_an_order_under_a_used_name_does_not_get_the_answer_to_another(office: Office, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    first = give(office, label(1, plan))
    other = frame(1, Order("no.step", "0" * 16, {}), sha256=plan.public_sha256)
    assert give(office, other, name="x", wait=0.0)["code"] in ("busy", "not-planned")  # whose answer nobody fetches
    office._runs.get(RUN)._thread.submit(int).result()  # type: ignore[union-attr]
    assert give(office, label(1, plan), name="x") == first


def test_a_public_set_is_sent_again_after_it_made_room(kit: Path, plan: Plan, public: Any) -> None:
    office = open_office(kit)
    assert open_run(office, plan, public) == "open"
    office._runs._idle = 0.0
    office.tidy()
    next((kit / "agent" / "public").glob("*.table")).unlink()
    assert open_run(office, plan, public) == "open"
