"""The program that ``collegium server start`` and ``site join`` become: they run for months.

    python -m collegium.flare.supervise.program KIT-AS-JSON [--log-json] [--debug]

What reads the command line, prints tables, and checks a kit's certificate is left behind: 13 MB instead of 28.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NoReturn

from collegium.errors import ConfigError, in_one_line
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.supervise.children import import_paths
from collegium.flare.supervise.processes import run_server, run_site
from collegium.flare.supervise.speaking import speaker

_SELF = "collegium.flare.supervise.program"


def become(kind: Literal["server", "site"], folder: Path, *options: str) -> NoReturn:
    """Go on as this program: the same process, with the same console."""
    kit = read_kit(folder, kind)
    for warning in kit.warnings():
        _speaker(kit, options)(f"warning: {warning}")
    sys.stdout.flush()
    command = [sys.executable, "-m", _SELF, json.dumps(asdict(kit) | {"folder": str(kit.folder)}), *options]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": import_paths()})  # noqa: S606


def _speaker(kit: Kit, options: Sequence[str]) -> Callable[[str], None]:
    return speaker("server" if kit.kind == "server" else kit.folder.name, as_json="--log-json" in options)


def main() -> None:
    """Run until a signal comes; an error ends with one line, as that of any command."""
    fields, *options = sys.argv[1:]
    read = json.loads(fields)
    kit = Kit(**read | {"folder": Path(read["folder"])})
    try:
        run = run_server if kit.kind == "server" else run_site
        run(kit, _speaker(kit, options))
    except KeyboardInterrupt:  # before it listens to signals
        sys.exit(130)
    except Exception as error:
        if "--debug" in options:
            raise
        print(f"collegium: {in_one_line(error)}", file=sys.stderr)  # noqa: T201 - this is a program
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
