"""The program of a site's agent: ``python -m collegium.flare.site.agent KIT``.

A process of its own, behind a socket that only its user can open: a crash in a learner's native code takes neither the
site's connection down nor its ledger, and the process that is started next goes on from the stored state.
"""

from __future__ import annotations

import hashlib
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from collegium import registry
from collegium.errors import CollegiumError, ConfigError, LedgerError, StorageError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT, read_keys, write_private
from collegium.flare.site.file import LEDGER, load_public, load_site
from collegium.flare.site.notices import Notices
from collegium.flare.site.office import Office
from collegium.flare.supervise.sockets import LocalListener
from collegium.links.hosting import threads_per_site
from collegium.site.agent import SiteLog
from collegium.site.ledger import storage_errors, verify_ledger

SOCKET: Final = "agent.sock"
_TIDY_SECONDS: Final = 5.0


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
    approvals = Approvals(folder, read_keys(folder, setup.file.name), notices)
    office = Office(folder, setup, approvals, instance(kit), load_public(kit, setup.file), notices.agent_says)
    listener = LocalListener(folder / SOCKET)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: listener.close())
    try:
        with threads_per_site():
            threading.Thread(target=_tidy, args=(office,), daemon=True).start()
            listener.serve(office.answer, lambda: office.longest_message)
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


def _tidy(office: Office) -> None:
    while True:
        time.sleep(_TIDY_SECONDS)
        office.tidy()


def instance(kit: Path) -> str:
    """Tells this installation from any other that has a copy of its kit, be it the whole folder."""
    folder = (kit / AGENT).resolve()
    file = folder / "instance"
    if not file.is_file():
        write_private(file, secrets.token_hex(16).encode())
    with storage_errors(file, StorageError):
        own = file.read_text(encoding="ascii").strip()
    machine = next((path.read_text().strip() for path in map(Path, _MACHINE_IDS) if path.is_file()), "")
    return hashlib.sha256(f"{own}\0{machine}\0{folder}".encode()).hexdigest()


_MACHINE_IDS: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")

if __name__ == "__main__":
    main()
