"""The program of a site's agent: ``python -m collegium.flare.site.agent KIT``.

A process of its own, behind a socket that only its user can open: a crash in a learner's native code takes neither the
site's connection down nor its ledger, and the process that is started next goes on from the stored state.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from collegium import registry
from collegium.errors import CollegiumError, ConfigError, LedgerError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.envelopes import LONGEST_WRAPPING
from collegium.flare.kits.identity import AGENT, instance, read_keys
from collegium.flare.kits.kit import read_kit
from collegium.flare.site.bulletin import Bulletin
from collegium.flare.site.door import Door
from collegium.flare.site.file import LEDGER
from collegium.flare.site.notices import Notices
from collegium.flare.site.office import Office
from collegium.flare.site.setup import load_public, load_site
from collegium.flare.supervise.peers import is_own_process
from collegium.flare.supervise.renewed import Expiry
from collegium.flare.supervise.sockets import LocalListener
from collegium.links.hosting import threads_per_site
from collegium.site.agent import SiteLog
from collegium.site.ledger import verify_ledger

SOCKET: Final = "agent.sock"
_TIDY_SECONDS: Final = 5.0
_CERTIFICATE_SECONDS: Final = 600.0


def main() -> None:
    """Serve until told to stop. Exit code 2: the owner must change or restore a file, and a restart would not help."""
    try:
        serve(Path(sys.argv[1]))
    except CollegiumError as error:
        print(f"collegium: {error}", file=sys.stderr)  # noqa: T201 - this is a program
        sys.exit(2 if isinstance(error, ConfigError | LedgerError) else 1)


def serve(kit: Path) -> None:
    """Answer what comes through the socket."""
    folder = kit / AGENT
    registry.install_steps()
    setup = load_site(kit)
    _verify(folder / LEDGER.name)
    notices = Notices(setup.file.name, kit.resolve(), setup.file.notify, SiteLog(folder / "site.log").write)
    keys, here = read_keys(folder, setup.file.name), instance(kit)
    approvals = Approvals(folder, keys, notices)
    office = Office(folder, setup, approvals, here, load_public(kit, setup.file), notices.agent_says)
    bulletin = Bulletin(kit, setup.file, approvals)
    door = Door(read_kit(kit, "site"), keys, here, office.answer, notices.door_says)
    listener = LocalListener(folder / SOCKET, admit=is_own_process)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: listener.close())
    try:
        with threads_per_site():
            threading.Thread(target=_tidy, args=(office, bulletin, _expiry(kit, notices)), daemon=True).start()
            listener.serve(door.answer, lambda: office.longest_message + LONGEST_WRAPPING)
    finally:
        listener.close()


def _verify(ledger: Path) -> None:
    """A site whose ledger was changed takes part in nothing: what it has released, and spent, is not known."""
    if not ledger.exists():
        return
    try:
        verify_ledger(ledger)
    except LedgerError as error:
        raise LedgerError(
            f"{str(error).removesuffix(' Restore it from a backup.')} This site does not take part until its ledger "
            f"is intact: find out what happened, restore {ledger} from a backup, and check it with `collegium ledger "
            f"verify {ledger}`."
        ) from None


def _expiry(kit: Path, notices: Notices) -> Callable[[], None]:
    """Tell the owner, a few times, that the certificate ends; one that was renewed is looked at anew."""
    expiry = Expiry(notices.certificate_ends)

    def look() -> None:
        with suppress(CollegiumError):  # being replaced
            certified = read_kit(kit, "site", valid=False)
            expiry.look(certified.name, certified.days_left)

    return look


def _tidy(office: Office, bulletin: Bulletin, look_at_certificate: Callable[[], None]) -> None:
    looked = -math.inf
    while True:
        if time.monotonic() - looked > _CERTIFICATE_SECONDS:
            looked = time.monotonic()
            look_at_certificate()
        bulletin.tell(office.work, office.problem)
        time.sleep(_TIDY_SECONDS)
        office.tidy()


if __name__ == "__main__":
    main()
