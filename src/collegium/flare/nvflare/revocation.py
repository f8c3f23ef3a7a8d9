"""NVFlare knows no revoked certificates: here its server asks the list in its kit whenever somebody logs in or asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumError, Refused
from collegium.flare.kits.revoked import Revoked, is_serial

_MOST_LOGINS: Final = 1000


def shut_out_revoked(kit: Path) -> None:
    """Let nobody on the list log in or register, and take no command of a lead who logged in before."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.hci.server.constants import ConnProps
    from nvflare.fuel.hci.server.login import LoginModule
    from nvflare.lighter.utils import load_crt_chain_bytes
    from nvflare.private.fed.utils.identity_utils import IdentityVerifier

    revoked = Revoked(kit)
    verify, log_in, check_session = (
        IdentityVerifier.verify_common_name,
        LoginModule.handle_cert_login,
        LoginModule.pre_command,
    )
    serials: OrderedDict[str, str] = OrderedDict()  # of the certificate with which each session was begun

    logging_in = threading.Lock()

    def verify_common_name(
        verifier: Any, asserted_cn: str, nonce: str, asserter_cert: Any, *rest: Any, **more: Any
    ) -> Any:
        revoked.require(asserted_cn, _serial(asserter_cert))
        return verify(verifier, asserted_cn, nonce, asserter_cert, *rest, **more)

    def handle_cert_login(module: Any, conn: Any, args: Any) -> None:
        certificate = load_crt_chain_bytes(conn.get_prop(ConnProps.CMD_HEADERS).get("cert"))[0]
        origin = conn.get_prop(ConnProps.REQUEST).get_header(MessageHeaderKey.ORIGIN)
        with logging_in:
            before = {session.sess_id for session in module.session_mgr.get_sessions()}
            log_in(module, conn, args)  # a session is begun only if the certificate's key has signed
            for session in module.session_mgr.get_sessions():
                if session.sess_id not in before and session.origin_fqcn == origin:
                    serials[session.sess_id] = _serial(certificate)
        while len(serials) > _MOST_LOGINS:
            serials.popitem(last=False)

    def pre_command(module: Any, conn: Any, args: Any) -> bool:
        if not check_session(module, conn, args):
            return False
        session = conn.get_prop(ConnProps.SESSION)  # none before the login
        try:
            if session is not None:
                revoked.require(session.user_name, serials.get(session.sess_id, session.user_name))
                if session.sess_id not in serials and any(map(is_serial, revoked.words())):
                    raise Refused("revoked", "It is not known with which certificate this session began: log in again.")
        except CollegiumError as error:
            conn.append_error(str(error))
            return False
        return True

    IdentityVerifier.verify_common_name = verify_common_name
    LoginModule.handle_cert_login, LoginModule.pre_command = handle_cert_login, pre_command


def _serial(certificate: Any) -> str:
    return f"{certificate.serial_number:x}"
