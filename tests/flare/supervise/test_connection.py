"""What NVFlare 2.9 prints, and what it means for the site's connection."""

from __future__ import annotations

import pytest

from collegium.flare.supervise import connection
from collegium.flare.supervise.connection import Connection

OPENED = "INFO conn_manager: Connection [CN00002 N/A => localhost:46389] is created: PID: 23924"
REGISTERED = "INFO FederatedClient: Successfully registered client:site-1 for project loopback."
CLOSED = "INFO conn_manager: Connection [CN00002 Not Connected] is closed PID: 23924"
OPENED_AGAIN = "INFO conn_manager: Connection [CN00007 N/A => localhost:46389] is created: PID: 23924"
CLOSED_AGAIN = "INFO conn_manager: Connection [CN00007 Not Connected] is closed PID: 23924"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A connected site."""
    monkeypatch.setattr(connection, "_CONNECTED_SECONDS", 0.0)
    made = Connection()
    for line in (OPENED, REGISTERED):
        made.hear(line)
    assert made.up
    return made


def test_a_lost_server_is_noticed_and_comes_back(heard: Connection) -> None:
    heard.hear(CLOSED)
    assert not heard.up
    heard.hear(OPENED_AGAIN)
    assert heard.up
    heard.hear(CLOSED)  # the old one, late
    assert heard.up
    heard.hear(CLOSED_AGAIN)
    assert not heard.up


def test_a_new_process_starts_afresh(heard: Connection) -> None:
    heard.forget()
    assert not heard.up
    heard.hear(OPENED.replace("23924", "99"))
    heard.hear(REGISTERED)
    heard.hear(CLOSED)
    assert heard.up
    heard.hear(CLOSED.replace("23924", "99"))
    assert not heard.up


LATE = "WARNING CoreCell: [ME=site-1 D=server] timeout on Request 4fae91c5-2480 for ['heart_beat'] after 30.0 secs"


def test_a_server_that_has_another_key_does_not_answer_and_the_site_registers_again() -> None:
    connection = Connection()
    connection.hear("Successfully registered client")
    connection.hear(LATE)
    assert not connection.disowned, "one that is busy is given more time"
    connection.hear("Connection [CN00010 N/A => localhost:8002] is created: PID: 5")
    assert not connection.disowned
    connection.hear(LATE)
    assert connection.disowned
    connection.forget()
    assert not connection.disowned
