"""The program that ``collegium server start`` and ``site join`` become: they run for months.

    python -m collegium.flare.supervise.program server|site KIT [--log-json] [--debug]

What reads the command line, and what prints tables, is left behind: 17 MB instead of 28.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, NoReturn

from collegium.errors import ConfigError, in_one_line
from collegium.flare.supervise.children import import_paths
from collegium.flare.supervise.processes import run_server, run_site
from collegium.flare.supervise.speaking import speaker

_SELF = "collegium.flare.supervise.program"


def become(kind: Literal["server", "site"], kit: Path, *options: str) -> NoReturn:
    """Go on as this program: the same process, with the same console."""
    sys.stdout.flush()
    command = [sys.executable, "-m", _SELF, kind, str(kit), *options]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": import_paths()})  # noqa: S606


def main() -> None:
    """Run until a signal comes; an error ends with one line, as that of any command."""
    kind, kit, *options = sys.argv[1:]
    try:
        if kind == "server":
            run_server(kit, speaker("server", as_json="--log-json" in options))
        else:
            run_site(kit, speaker(Path(kit).resolve().name, as_json="--log-json" in options))
    except KeyboardInterrupt:  # before it listens to signals
        sys.exit(130)
    except Exception as error:
        if "--debug" in options:
            raise
        print(f"collegium: {in_one_line(error)}", file=sys.stderr)  # noqa: T201 - this is a program
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
