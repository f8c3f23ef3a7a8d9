"""NVFlare knows no revoked certificates: here its server asks the list in its kit, whenever somebody logs in or asks."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumError
from collegium.flare.kits.revoked import Revoked

_MOST_LOGINS: Final = 1000


def shut_out_revoked(kit: Path) -> None:
    """Let nobody on the list log in or register, and take no command of a lead who has done so before."""
    from nvflare.fuel.hci.server.login import LoginModule
    from nvflare.private.fed.authenticate import IdentityVerifier

    revoked = Revoked(kit)
    verify, log_in, before_command = (
        IdentityVerifier.verify_common_name,
        LoginModule.handle_cert_login,
        LoginModule.pre_command,
    )
    serials: OrderedDict[str, str] = OrderedDict()
    """Of the certificate that each open connection of a lead logged in with."""

    def verify_common_name(verifier: Any, asserted_cn: str, asserter_cert: Any, *rest: Any, **words: Any) -> Any:
        _require(revoked, asserted_cn, f"{asserter_cert.serial_number:x}")
        return verify(verifier, asserted_cn, asserter_cert, *rest, **words)

    def handle_cert_login(module: Any, conn: Any, args: Any) -> None:
        serials[_caller(conn)] = _serial(conn)
        while len(serials) > _MOST_LOGINS:
            serials.popitem(last=False)
        log_in(module, conn, args)

    def pre_command(module: Any, conn: Any, args: Any) -> bool:
        if not before_command(module, conn, args):
            return False
        try:
            _require(revoked, str(conn.get_prop("userName") or ""), serials.get(_caller(conn), ""))
        except CollegiumError as error:
            conn.append_error(str(error))
            return False
        return True

    IdentityVerifier.verify_common_name = verify_common_name
    LoginModule.handle_cert_login, LoginModule.pre_command = handle_cert_login, pre_command
