"""A lead whose certificate is revoked goes on with a session that began before: not by any other name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.flare.doors import LEADS, make_kits

from collegium.flare.kits.kit import read_certificate, read_kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.nvflare.revocation import shut_out_revoked

pytest.importorskip("nvflare")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.hci.conn import Connection
from nvflare.fuel.hci.proto import ProtoKey
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.fuel.hci.server.login import LoginModule
from nvflare.fuel.hci.server.sess import SessionManager
from nvflare.private.fed.utils.identity_utils import IdentityAsserter, IdentityVerifier

pytestmark = pytest.mark.xdist_group("doors")
HERE, ELSEWHERE = "admin-1", "admin-2"


class Server:
    """NVFlare's own login, with the keys of a federation."""

    def __init__(self, kits: Path) -> None:
        server = read_kit(kits / "server")
        self.kits, self.sessions = kits, SessionManager(None)
        self.module = LoginModule(self.sessions)
        verifier = IdentityVerifier(str(server.root))
        asserter = IdentityAsserter(str(server.key), str(server.certificate))
        self._hci = SimpleNamespace(get_id_verifier=lambda: verifier, get_id_asserter=lambda: asserter)
        self._asserter = asserter

    def log_in(self, lead: str, *, certificate_of: str = "", origin: str = HERE) -> str | None:
        """The token, if the login succeeds."""
        kit, shown = (read_kit(self.kits / name) for name in (lead, certificate_of or lead))
        signature = IdentityAsserter(str(kit.key), str(kit.certificate)).sign_common_name("")
        headers = {"cert": shown.certificate.read_bytes(), "signature": signature}
        before = {each.sess_id for each in self.sessions.get_sessions()}
        self.module.handle_cert_login(self._connection(origin, headers), ["login", certificate_of or lead])
        begun = [each for each in self.sessions.get_sessions() if each.sess_id not in before]
        return str(begun[0].make_token(self._asserter)) if begun else None

    def takes_command(self, token: str | None, origin: str = HERE) -> bool:
        conn = self._connection(origin, {})
        conn.request = {ProtoKey.DATA: [{ProtoKey.TYPE: ProtoKey.TOKEN, ProtoKey.DATA: token}]}
        return bool(self.module.pre_command(conn, ["list_jobs"]))

    def _connection(self, origin: str, headers: dict[str, Any]) -> Connection:
        request = Message(headers={MessageHeaderKey.ORIGIN: origin})
        props = {ConnProps.CMD_HEADERS: headers, ConnProps.REQUEST: request, ConnProps.HCI_SERVER: self._hci}
        return Connection(props=props)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for cls, name in (
        (IdentityVerifier, "verify_common_name"),
        (LoginModule, "handle_cert_login"),
        (LoginModule, "pre_command"),
    ):
        monkeypatch.setattr(cls, name, getattr(cls, name))  # undone at the end
    kits = make_kits(tmp_path / "kits", ("site-1",))
    shut_out_revoked(kits / "server")
    found = Server(kits)
    yield found
    found.sessions.shutdown()


def test_a_lead_with_a_revoked_certificate_passes_for_another_connection(server: Server) -> None:
    stolen, other = server.log_in(LEADS[0]), server.log_in(LEADS[1], origin=ELSEWHERE)
    assert server.takes_command(stolen)
    serial = read_certificate(read_kit(server.kits / LEADS[0]).certificate).serial_number
    Revoked(server.kits / "server").add(f"{serial:x}")
    assert not server.takes_command(stolen)
    assert server.log_in(LEADS[0], certificate_of=LEADS[1]) is None, "it has not the key of that certificate"
    assert not server.takes_command(stolen), "nor does its session pass for one of that certificate"
    server.sessions.sessions.clear()  # as after a restart of the server: sessions are made again from their tokens
    assert not server.takes_command(stolen, origin="admin-3")
    assert server.log_in(LEADS[0]) is None
    assert server.takes_command(other, origin=ELSEWHERE)
    assert server.takes_command(server.log_in(LEADS[1], origin=ELSEWHERE), origin=ELSEWHERE)
