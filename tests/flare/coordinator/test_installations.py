"""A copy of a site's kit answers in its place: nobody is asked anything until a lead has said which one is the site."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.flare.conftest import NAMES
from tests.flare.coordinator.test_link import At, carry_out, released, study
from tests.flare.doors import LEADS, SignedHost, make_kits, ready_kits
from tests.flare.offices import write_site
from typer.testing import CliRunner

from collegium import wire
from collegium.cli.main import app
from collegium.errors import ConfigError, QuorumLost, Refused, StorageError
from collegium.flare.coordinator.installations import Installations
from collegium.flare.kits.identity import Installation, read_turn, write_turn
from collegium.flare.kits.revoked import Revoked
from collegium.runs.results import Run

pytest.importorskip("nvflare")
pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("doors"),
]
SITE = "site-2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kits(tmp_path_factory.mktemp("federation") / "kits", NAMES)


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    return ready_kits(made, tmp_path / "kits", NAMES)


@pytest.fixture
def host(kits: Path) -> SignedHost:
    return SignedHost({name: kits / name for name in NAMES}, kits / "server", kits / LEADS[0])


def run_of(host: SignedHost, kits: Path, out: str = "out", **options: Any) -> Run:
    """Two rounds: what is tried here happens between sessions."""
    return carry_out(host, kits, out, study=study(algorithm__rounds=2, federation__metrics=False), **options)


def codes(run: Run) -> set[str]:
    """What was said in the site's name instead of an answer."""
    return set(run.refusals.query("party == @SITE")["code"]) if len(run.refusals) else set()


def copied(kits: Path, *, agent: bool = True) -> Path:
    """A thief's copy of the kit, on another machine; one without the agent's folder makes a new one."""
    copy = kits.parent / "thief" / SITE
    left_out = shutil.ignore_patterns() if agent else shutil.ignore_patterns("agent")
    shutil.copytree(kits / SITE, copy, ignore=left_out)
    write_site(copy, SITE)
    return copy


def confirm(kits: Path, name: str) -> str:
    words = ["server", "confirm", str(kits / "server"), SITE, name, "--lead", str(kits / LEADS[0])]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(True, id="the whole kit"),
        pytest.param(False, id="without the agent's folder", marks=pytest.mark.slow),
    ],
)
def test_a_copy_answers_a_new_run(host: SignedHost, kits: Path, agent: bool) -> None:
    assert codes(run_of(host, kits, "first")) == set()
    before, thief, said = released(kits), copied(kits, agent=agent), list[str]()
    host.move(SITE, thief)
    run = run_of(host, kits, "second", say=said.append)
    assert codes(run) == {"other-installation"}
    assert not (thief / "agent" / "runs").exists() or agent
    assert any("collegium server confirm" in line for line in said)
    (told,) = host.doors[SITE].told
    assert host.doors[SITE].door.installation.name in told
    host.restart(SITE)  # the owner, who has answered all the time
    assert codes(run_of(host, kits, "third")) == {"other-installation"}, "both are shut out"
    (told,) = host.doors[SITE].told
    true = host.doors[SITE].door.installation.name
    assert true in told
    assert released(kits)[SITE] == before[SITE]
    confirm(kits, true)
    assert codes(run_of(host, kits, "fourth")) == set()
    host.move(SITE, thief)
    assert codes(run_of(host, kits, "fifth")) == {"other-installation"}
    audit = (kits / "server" / "coordinator" / "installations.log").read_text()
    assert f"{LEADS[0]} confirmed installation {true} of {SITE}" in audit


def test_a_copy_that_differs_in_nothing_answers_first(host: SignedHost, kits: Path) -> None:
    """A clone of the whole machine: the same key, the same place, the same last turn."""
    run_of(host, kits, "first")
    shutil.copytree(kits / SITE / "agent", kits / "clone")
    assert codes(run_of(host, kits, "second")) == set(), "it may be the clone; nothing tells them apart yet"
    shutil.rmtree(kits / SITE / "agent")
    shutil.copytree(kits / "clone", kits / SITE / "agent")  # the same folder, as it was before: now the other's turn
    host.restart(SITE)
    assert codes(run_of(host, kits, "third")) == {"other-installation"}
    assert codes(run_of(host, kits, "fourth")) == {"other-installation"}
    confirm(kits, host.doors[SITE].door.installation.name)
    assert codes(run_of(host, kits, "fifth")) == set()


def test_a_copy_turns_up_in_the_middle_of_a_run(host: SignedHost, kits: Path) -> None:
    thief = copied(kits)

    def steal() -> None:
        host.move(SITE, thief)
        host.sessions[-1].ended = True

    run = run_of(host, kits, callbacks=[At(0, steal)])
    assert codes(run) == {"other-installation"}
    assert set(run.releases.query("party == @SITE")["round"]) == {0}


def test_sessions_that_break_while_a_turn_is_given(host: SignedHost, kits: Path) -> None:
    """Whether the site has kept the turn or not, it is the same installation."""
    broken: list[str] = []

    def break_session(party: str, message: bytes) -> None:
        if b'"turn"' in message[:2000] and len(broken) < 8:
            broken.append(party)
            host.sessions[-1].ended = True

    host.before_request = break_session  # type: ignore[method-assign]
    assert codes(run_of(host, kits, "first")) == set()
    broken.clear()
    del host.before_request
    host.after_reply = break_session  # type: ignore[method-assign]
    assert codes(run_of(host, kits, "second")) == set()
    assert len(broken) == 8
    assert host.signature.installations.waiting() == {}


def test_turns_that_never_arrive_shut_nobody_out(tmp_path: Path) -> None:
    book = Installations(tmp_path)
    known = Installation("a", "b", "")
    for _ in range(50):
        book.meet(SITE, known)
    turn = book.meet(SITE, known)
    assert book.meet(SITE, Installation("a", "b", turn)) != turn


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_power_cut_after_a_turn_was_kept_does_not_bring_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renamed file is on disk once its folder is; the site would pass for a copy of itself."""
    synced: list[Path] = []
    sync = os.fsync

    def note(number: int) -> None:
        sync(number)
        synced.append(Path(f"/proc/self/fd/{number}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    write_turn(tmp_path, "0" * 32)
    assert synced[-1] == tmp_path
    assert read_turn(tmp_path) == "0" * 32


def test_a_name_that_was_never_seen_is_not_confirmed(host: SignedHost, kits: Path) -> None:
    run_of(host, kits)
    with pytest.raises(ConfigError, match="has not answered from installation"):
        Installations(kits / "server" / "coordinator").confirm(SITE, "0" * 12, LEADS[0])


def test_a_revoked_lead_confirms_nothing(kits: Path) -> None:
    Revoked(kits / "server").add(LEADS[0])
    words = ["server", "confirm", str(kits / "server"), SITE, "--lead", str(kits / LEADS[0])]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, Refused)
    assert "was revoked" in str(refused.exception)


def test_a_damaged_book_does_not_let_everybody_in(host: SignedHost, kits: Path) -> None:
    run_of(host, kits)
    (kits / "server" / "coordinator" / "installations.json").write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        run_of(host, kits, "again")


def test_a_certificate_of_a_site_is_revoked_at_the_server(host: SignedHost, kits: Path) -> None:
    words = ["server", "revoke", str(kits / "server"), SITE]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, ConfigError), "nobody of that name has been here: it may be misspelt"
    assert CliRunner().invoke(app, [*words, "--absent"]).exit_code == 0
    assert codes(run_of(host, kits)) == {"revoked"}
    assert CliRunner().invoke(app, ["server", "reinstate", str(kits / "server"), SITE]).exit_code == 0
    assert codes(run_of(host, kits, "again")) == set()


def test_a_lead_is_revoked_in_the_middle_of_a_run(host: SignedHost, kits: Path) -> None:
    with pytest.raises(QuorumLost, match=r"0 of 3 sites answered in round 1.*revoked"):
        run_of(host, kits, callbacks=[At(0, lambda: Revoked(kits / "server").add(LEADS[0]))])


def test_a_run_belongs_to_the_lead_that_opened_it(host: SignedHost, kits: Path) -> None:
    """Another lead of the same federation knows the run's id, and joins in."""
    other = SignedHost({name: kits / name for name in NAMES}, kits / "server", kits / LEADS[1])

    def take_over() -> None:
        host.signature = other.signature
        host.sessions[-1].ended = True

    with pytest.raises(QuorumLost, match=r"0 of 3 sites answered in round 1.*other-lead"):
        run_of(host, kits, callbacks=[At(0, take_over)])


def test_two_coordinators_give_turns_at_the_same_time(host: SignedHost, kits: Path) -> None:
    """Neither takes the other's turn for a copy's, whichever the site hears first."""
    other = SignedHost({}, kits / "server", kits / LEADS[1])
    other.kits, other.offices = host.kits, host.offices
    close = wire.join({"do": "close", "run": "0" * 32}, b"")
    inside: list[str] = []

    def interrupt(party: str, message: bytes) -> None:
        if b'"turn"' in message[:2000] and len(inside) < 3:
            inside.append(party)
            other.begin(frozenset(NAMES)).request(SITE, close, 5.0)

    host.before_request = interrupt  # type: ignore[method-assign]
    for _ in range(3):
        reply = host.begin(frozenset(NAMES)).request(SITE, close, 5.0)
        assert wire.cut(reply)[0]["code"] == "not-open"
    assert len(inside) == 3
    assert host.signature.installations.waiting() == {}
