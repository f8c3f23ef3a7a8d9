"""The program of a site's agent: ``python -m collegium.flare.site.agent KIT``.

A process of its own, behind a socket that only its user can open: a crash in a learner's native code takes neither the
site's connection down nor its ledger, and the process that is started next goes on from the stored state.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

from collegium import registry
from collegium.errors import CollegiumError, ConfigError
from collegium.flare import NOTICE
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT, instance, read_keys
from collegium.flare.kits.kit import read_kit
from collegium.flare.site.door import Door
from collegium.flare.site.file import load_public, load_site
from collegium.flare.site.office import Office
from collegium.flare.supervise.peers import is_own_process
from collegium.flare.supervise.sockets import LocalListener
from collegium.links.hosting import threads_per_site

SOCKET: Final = "agent.sock"


def main() -> None:
    """Serve until told to stop. Exit code 2: the owner's file or data need a change, and a restart would not help."""
    try:
        serve(Path(sys.argv[1]))
    except CollegiumError as error:
        print(f"collegium: {error}", file=sys.stderr)  # noqa: T201 - this is a program
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def serve(kit: Path) -> None:
    """Answer what comes through the socket."""
    folder = kit / AGENT
    registry.install_steps()
    setup = load_site(kit)
    keys, here = read_keys(folder, setup.file.name), instance(kit)
    office = Office(folder, setup, Approvals(folder, keys), here, load_public(kit, setup.file))
    door = Door(read_kit(kit, "site"), keys, here, office.answer, _tell)
    listener = LocalListener(folder / SOCKET, admit=is_own_process)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: listener.close())
    try:
        with threads_per_site():
            listener.serve(door.answer)
    finally:
        listener.close()


def _tell(text: str) -> None:
    """Said by the supervisor, on the console."""
    print(f"{NOTICE}{text}", flush=True)  # noqa: T201 - this is a program


if __name__ == "__main__":
    main()
