"""Whoever is not a lead of the federation, or says again what a lead said, does not get past a site's door."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flare.doors import LEADS, OpenDoor, SignedHost, make_kits, ready_kits
from tests.waiting import seconds, until

from collegium import wire
from collegium.errors import WireError
from collegium.flare.agreement.envelopes import REPLY, REQUEST, Envelope, enclose
from collegium.flare.coordinator.link import PartyBarred, PartyLost
from collegium.flare.kits.kit import read_kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.kits.vouching import Voucher
from collegium.flare.site import door as doors
from collegium.flare.supervise.peers import is_own_process, is_own_user
from collegium.flare.supervise.sockets import LocalListener, request
from collegium.protocols.keys import new_secret
from collegium.protocols.primitives import ed25519_public

pytest.importorskip("nvflare")
pytestmark = pytest.mark.xdist_group("doors")  # the kits are made once
SITES = ("site-1", "site-2")
RUN = "0123456789abcdef" * 2
CLOSE = wire.join({"do": "close", "run": RUN}, b"")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kits(tmp_path_factory.mktemp("federation") / "kits", SITES)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another federation with the same names."""
    return make_kits(tmp_path_factory.mktemp("foreign") / "kits", SITES)


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    return ready_kits(made, tmp_path / "kits", SITES)


@pytest.fixture
def host(kits: Path) -> SignedHost:
    return SignedHost({name: kits / name for name in SITES}, kits / "server", kits / LEADS[0])


def ask(host: SignedHost, message: bytes = CLOSE, party: str = "site-1") -> dict[str, Any]:
    return dict(wire.cut(host.begin(frozenset(SITES)).request(party, message, 5.0))[0])


def code(door: OpenDoor, message: bytes) -> str:
    """What the door answers to raw bytes: the code of its refusal, or the state."""
    header = wire.cut(Envelope.read(REPLY, door.answer(message)).message)[0]
    return str(header.get("code", header["state"]))


def greeting(kit: Path, **changes: Any) -> tuple[bytes, bytes]:
    """A hello as the holder of a kit says it, and the secret key."""
    secret = new_secret()
    voucher = Voucher.of(read_kit(kit), ed25519_public(secret))
    head = {"to": "site-1", "key": ed25519_public(secret).hex(), "voucher": voucher.to_plain(), **changes}
    return enclose(REQUEST, secret, head, b"")[0], secret


def test_a_lead_gets_through(host: SignedHost) -> None:
    assert ask(host) == {"state": "refused", "code": "not-open"}, "by the office: the run was never opened"


def test_a_message_without_a_signature(host: SignedHost) -> None:
    assert wire.cut(host.plain().request("site-1", CLOSE, 5.0))[0]["code"] == "other-version"


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("site-2", "not-a-lead"),
        ("server", "untrusted-certificate"),
        ("another federation's lead", "untrusted-certificate"),
    ],
)
def test_somebody_else_says_hello(host: SignedHost, kits: Path, foreign: Path, who: str, expected: str) -> None:
    kit = kits / who if (kits / who).is_dir() else foreign / LEADS[0]
    assert code(host.doors["site-1"], greeting(kit)[0]) == expected


def test_a_key_that_nobody_vouches_for(host: SignedHost, kits: Path) -> None:
    voucher = Voucher.of(read_kit(kits / LEADS[0]), ed25519_public(new_secret())).to_plain()
    assert code(host.doors["site-1"], greeting(kits / LEADS[0], voucher=voucher)[0]) == "untrusted-certificate"
    secret = new_secret()
    head = {"to": "site-1", "key": ed25519_public(secret).hex(), "challenge": "", "number": 1}
    assert code(host.doors["site-1"], enclose(REQUEST, secret, head, CLOSE)[0]) == "not-greeted"


def test_a_site_is_no_lead_even_if_it_says_so(host: SignedHost, kits: Path) -> None:
    """The kind is in what the certificate's key signed, and in the certificate."""
    secret = new_secret()
    kit = read_kit(kits / "site-2")
    forged = Voucher.of(kit, ed25519_public(secret)).to_plain()
    forged["certificate"] = (read_kit(kits / LEADS[0]).certificate).read_text()
    head = {"to": "site-1", "key": ed25519_public(secret).hex(), "voucher": forged}
    assert code(host.doors["site-1"], enclose(REQUEST, secret, head, b"")[0]) == "untrusted-certificate"


def recorded(host: SignedHost, do: Callable[[], object]) -> list[bytes]:
    """What passed on its way to the sites meanwhile."""
    letters: list[bytes] = []
    host.before_request = lambda party, message: letters.append(message)  # type: ignore[method-assign]
    do()
    del host.before_request
    return letters


def test_messages_are_replayed(host: SignedHost) -> None:
    hello, turn, close = recorded(host, lambda: ask(host))
    door = host.doors["site-1"]
    assert code(door, hello) == "hello", "it does nothing but introduce the site again"
    assert code(door, turn) == code(door, close) == "replayed"
    assert code(host.doors["site-2"], hello) == code(host.doors["site-2"], close) == "bad-signature"
    host.restart("site-1")
    door = host.doors["site-1"]
    assert code(door, close) == "not-greeted"
    assert code(door, hello) == "hello"
    assert code(door, close) == "not-greeted", "this process asks for another challenge"


def test_messages_are_replayed_after_so_many_hellos_that_their_sender_is_forgotten(
    host: SignedHost, kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the server's key has heard many coordinators say hello, and may say all of that again."""
    monkeypatch.setattr(doors, "_MOST_CALLERS", 4)
    hello, _, close = recorded(host, lambda: ask(host))
    door = host.doors["site-1"]
    assert {code(door, greeting(kits / LEADS[0])[0]) for _ in range(5)} == {"hello"}
    assert code(door, hello) == "hello"
    assert code(door, close) == "not-greeted"
    assert ask(host)["code"] == "not-open", "the coordinator itself greets again"


@pytest.mark.parametrize("place", [0, 30, 400, -1])
def test_a_message_is_changed_on_its_way(host: SignedHost, place: int) -> None:
    ask(host)
    session = host.begin(frozenset(SITES))
    session.request("site-1", CLOSE, 5.0)
    raw, _ = host.signature.enclose("site-1", host.doors["site-1"].door._challenge, {}, CLOSE)
    changed = bytearray(raw)
    changed[min(place, len(raw) - 1)] ^= 1
    header = wire.cut(answered(host.doors["site-1"].answer(bytes(changed))))[0]
    assert header["code"] in ("bad-signature", "other-version", "bad-message", "not-greeted")
    assert code(host.doors["site-1"], raw) == "not-open", "unchanged, it gets through"


def answered(raw: bytes) -> bytes:
    """A reply's message, in an envelope or not."""
    return raw if raw.startswith(b"CLG") else Envelope.read(REPLY, raw).message


def test_numbers_may_overtake_each_other_but_count_once(host: SignedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_MOST_OUT_OF_ORDER", 100)
    ask(host)
    door = host.doors["site-1"]
    letters = [host.signature.enclose("site-1", door.door._challenge, {}, CLOSE)[0] for _ in range(300)]
    assert [code(door, letters[number]) for number in (5, 3, 4, 3)] == ["not-open"] * 3 + ["replayed"]
    assert [code(door, letter) for letter in letters[6:]] == ["not-open"] * 294
    assert code(door, letters[1]) == "replayed"


def test_somebody_answers_for_a_site(host: SignedHost) -> None:
    """A program that poses as the session's process has no key of the site."""
    session = host.begin(frozenset(SITES))
    session.request("site-1", CLOSE, 5.0)
    true = host.doors["site-1"]

    def forge(message: bytes) -> bytes:
        letter = Envelope.read(REQUEST, message)
        head = {"from": "site-1", "to": letter.signature.hex(), "challenge": ""}
        return enclose(REPLY, new_secret(), head, wire.join({"state": "done"}, b"labels"))[0]

    def repeat(message: bytes) -> bytes:
        return old

    def from_the_other(message: bytes) -> bytes:
        return host.doors["site-2"].answer(message)

    old = true.answer(host.signature.enclose("site-1", true.door._challenge, {}, CLOSE)[0])
    for answer in (forge, repeat, from_the_other, lambda message: wire.join({"state": "done"}, b"labels")):
        true.answer = answer  # type: ignore[method-assign]
        with pytest.raises(PartyLost, match="by somebody else"):
            session.request("site-1", CLOSE, 5.0)
    true.answer = true.door.answer
    assert wire.cut(session.request("site-1", CLOSE, 5.0))[0]["code"] == "not-open"


def test_another_site_says_hello_in_a_sites_place(host: SignedHost) -> None:
    host.offices["site-1"] = host.doors["site-2"]  # type: ignore[assignment]
    with pytest.raises((PartyLost, PartyBarred)):
        ask(host)
    assert "site-1" not in host.signature.installations.waiting()


def test_an_agent_that_was_started_again_is_greeted_again(host: SignedHost) -> None:
    session = host.begin(frozenset(SITES))
    session.request("site-1", CLOSE, 5.0)
    host.restart("site-1")
    assert wire.cut(session.request("site-1", CLOSE, 5.0))[0]["code"] == "not-open"


def test_an_agent_that_is_killed_between_two_words_of_a_greeting_is_greeted_again(host: SignedHost) -> None:
    killed: list[str] = []

    def kill(party: str, message: bytes) -> None:
        if b'"turn"' in message[:2000] and not killed:
            killed.append(party)
            host.restart(party)

    host.before_request = kill  # type: ignore[method-assign]
    assert ask(host)["code"] == "not-open"
    assert killed


def test_a_site_is_revoked_in_the_middle_of_a_session(host: SignedHost, kits: Path) -> None:
    session = host.begin(frozenset(SITES))
    session.request("site-1", CLOSE, 5.0)
    Revoked(kits / "server").add("site-1")
    with pytest.raises(PartyBarred, match="revoked"):
        session.request("site-1", CLOSE, 5.0)
    assert wire.cut(session.request("site-2", CLOSE, 5.0))[0]["code"] == "not-open"


@pytest.mark.parametrize("words", [{"place": "\ud800"}, {"place": "\x1b[2J"}, {"turn": "\ud800"}])
def test_a_site_says_that_it_is_somewhere_that_cannot_be_written(host: SignedHost, words: dict[str, str]) -> None:
    """The others' study must not end with that."""
    true = host.doors["site-1"].door

    def lie(message: bytes) -> bytes:
        letter = Envelope.read(REPLY, true.answer(message))
        return enclose(REPLY, true._keys.secret, {**letter.head, **words}, letter.message)[0]

    host.doors["site-1"].answer = lie  # type: ignore[method-assign]
    with pytest.raises(WireError):
        ask(host)


@pytest.mark.parametrize("word", ["\x1b[2J", "\ud800", "[/x]"])
def test_a_refusal_that_is_no_word_is_not_shown(host: SignedHost, word: str) -> None:
    refusal = wire.join({"state": "refused", "code": word}, b"")
    host.doors["site-1"].answer = lambda message: enclose(REPLY, new_secret(), {}, refusal)[0]  # type: ignore[method-assign]
    with pytest.raises(PartyBarred, match="another version") as barred:
        ask(host)
    assert word not in f"{barred.value} {barred.value.code}"


def test_a_site_distrusts_a_lead_in_the_middle_of_a_session(host: SignedHost, kits: Path) -> None:
    session = host.begin(frozenset(SITES))
    session.request("site-1", CLOSE, 5.0)
    distrusted = Revoked(kits / "site-1")
    distrusted.add(LEADS[0])
    assert wire.cut(session.request("site-1", CLOSE, 5.0))[0]["code"] == "revoked"
    with pytest.raises(PartyBarred, match="did not accept this lead: revoked"):
        ask(host)
    distrusted.remove(LEADS[0])
    serial = f"{int(host.signature.signer.member.serial, 16):X}"
    distrusted.add(":".join(serial[i : i + 2] for i in range(0, len(serial), 2)))
    assert wire.cut(session.request("site-1", CLOSE, 5.0))[0]["code"] == "revoked"
    distrusted.file.write_text("garbage")
    assert wire.cut(session.request("site-1", CLOSE, 5.0))[0]["code"] == "storage-failed"


def test_a_signed_message_costs_less_than_a_millisecond(host: SignedHost) -> None:
    """Measured without the office, for 64 kB each way, over both ends."""
    door, message = host.doors["site-1"].door, bytes(65536)
    ask(host)
    door._for_run = lambda lead, message: message  # type: ignore[method-assign]
    spent = []
    for _ in range(50):
        start = time.thread_time()
        raw, _ = host.signature.enclose("site-1", door._challenge, {}, message)
        letter = Envelope.read(REPLY, door.answer(raw))
        assert letter.is_from(bytes.fromhex(door.installation.identity))
        spent.append(time.thread_time() - start)
    assert min(spent) < 2e-3, "two messages: a request and a reply"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells who dials")
def test_a_program_that_the_supervisor_did_not_start_dials_the_agent(tmp_path: Path) -> None:
    listener = LocalListener(tmp_path / "agent.sock", admit=is_own_process)
    threading.Thread(target=listener.serve, args=(lambda message: message,), daemon=True).start()
    dial = "import sys; from pathlib import Path; from collegium.flare.supervise.sockets import request\n"
    dial += f"sys.stdout.write(request(Path({str(listener.path)!r}), b'hello').decode())"
    try:
        assert request(listener.path, b"hello") == b"hello", "a sister of this process, as a session's is"
        orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {dial!r}], start_new_session=True)"
        log = tmp_path / "log"
        with log.open("w") as output:
            subprocess.run(
                [sys.executable, "-c", orphan], stdout=output, stderr=output, timeout=seconds(60), check=True
            )
        until(lambda: "ConnectionLost" in log.read_text())
    finally:
        listener.close()


SUPERVISOR = """
import os, subprocess, sys
assert os.getpid() == 1
listen, dial, path = sys.argv[1:]
agent = subprocess.Popen([sys.executable, "-c", listen, path], stdout=subprocess.PIPE)
agent.stdout.readline()
try:
    subprocess.run([sys.executable, "-c", dial, path], check=True)
finally:
    agent.kill()
"""
LISTEN = """
import sys
from pathlib import Path
from collegium.flare.supervise.peers import is_own_process
from collegium.flare.supervise.sockets import LocalListener
listener = LocalListener(Path(sys.argv[1]), admit=is_own_process)
print("ready", flush=True)
listener.serve(lambda message: message)
"""
DIAL = """
import sys
from pathlib import Path
from collegium.flare.supervise.sockets import request
sys.stdout.write(request(Path(sys.argv[1]), b"hello").decode())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.getuid() != 0, reason="needs root on Linux")
def test_a_site_whose_supervisor_is_process_1_of_a_container_lets_its_own_sessions_in(tmp_path: Path) -> None:
    container = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SUPERVISOR]
    arguments = [LISTEN, DIAL, str(tmp_path / "agent.sock")]
    done = subprocess.run([*container, *arguments], capture_output=True, text=True, timeout=seconds(60), check=False)
    assert done.stdout == "hello", done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.getuid() != 0, reason="needs root on Linux")
def test_another_user_dials_a_port_of_this_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(seconds(30))
        dial = "import os, socket, sys; os.setuid(int(sys.argv[1])); s = socket.socket()\n"
        dial += "s.connect(('127.0.0.1', int(sys.argv[2]))); s.recv(1)"
        for user, expected in ((0, True), (65534, False)):
            port = str(server.getsockname()[1])
            program = subprocess.Popen([sys.executable, "-c", dial, str(user), port])
            connected, _ = server.accept()
            assert is_own_user(connected) is expected
            connected.close()
            assert program.wait(seconds(60)) == 0
        # whoever has hung up already is nobody's
        socket.create_connection(server.getsockname()).close()
        connected, _ = server.accept()
        assert not is_own_user(connected)
        connected.close()
