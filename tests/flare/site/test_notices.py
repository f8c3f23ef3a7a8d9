"""An owner is told that something waits: on the console, by a program, by mail."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path

import pytest

from collegium.flare.site.file import SiteNotify
from collegium.flare.site.notices import Notices

DIGEST = "ab" * 32


def until_passed_on() -> None:
    for thread in threading.enumerate():
        if thread.name.endswith("(_pass_on)"):
            thread.join()


def notices(kit: Path, log: list[str], **settings: object) -> Notices:
    return Notices("north", kit, SiteNotify.model_validate(settings), log.append)


def test_a_waiting_plan_is_a_line_on_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notices(tmp_path, []).plan_waits(DIGEST)
    said = capsys.readouterr().out
    assert said == f"notice: plan {DIGEST[:12]} waits for approval: collegium site approve {tmp_path} {DIGEST[:12]}\n"


def test_a_program_gets_the_facts_on_its_standard_input(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path('told.json').write_text(sys.stdin.read())"
    log: list[str] = []
    notices(tmp_path, log, command=[sys.executable, "-c", script]).order_waits("cd" * 16, 3)
    until_passed_on()
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["event"], told["site"], told["order"]) == ("order-waits", "north", f"{'cd' * 16}:3")
    assert not log


@pytest.mark.parametrize(
    "settings",
    [
        {"command": ["no-such-program-anywhere"]},
        {"command": [sys.executable, "-c", "import sys; sys.exit('out of paper')"]},
        {"mail": "officer@hospital.org", "smtp": "127.0.0.1:1"},
    ],
    ids=["missing", "failing", "no mail server"],
)
def test_what_cannot_be_passed_on_is_in_the_log(settings: dict[str, object], tmp_path: Path) -> None:
    log: list[str] = []
    notices(tmp_path, log, **settings).plan_waits(DIGEST)
    until_passed_on()
    assert "cannot notify the owner of plan-waits" in log[0]


def test_a_mail_is_sent(tmp_path: Path) -> None:
    received: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_take_a_mail, args=(listener, received))
        server.start()
        log: list[str] = []
        smtp = f"127.0.0.1:{listener.getsockname()[1]}"
        notices(tmp_path, log, mail="officer@hospital.org", smtp=smtp).plan_waits(DIGEST)
        server.join(30)
        until_passed_on()
    mail = "".join(received)
    assert not log
    assert "rcpt to:<officer@hospital.org>" in mail.lower()
    assert "Subject: north: plan-waits" in mail
    assert DIGEST[:12] in mail


def _take_a_mail(listener: socket.socket, received: list[str]) -> None:
    """As much of SMTP as one mail needs."""
    connected, _ = listener.accept()
    with connected, connected.makefile("rw", newline="\r\n") as stream:

        def say(words: str) -> None:
            stream.write(f"{words}\r\n")
            stream.flush()

        say("220 here")
        in_mail = False
        for line in stream:
            received.append(line)
            if in_mail:
                in_mail = line != ".\r\n"
                if not in_mail:
                    say("250 taken")
            elif line.upper().startswith("DATA"):
                in_mail = True
                say("354 go on")
            elif line.upper().startswith("QUIT"):
                say("221 bye")
                return
            else:
                say("250 fine")
