"""The program that ``collegium server start`` and ``site join`` become: they run for months.

    python -m collegium.flare.supervise.program --read KIT
    python -m collegium.flare.supervise.program KIT-AS-JSON [--log-json] [--debug] [--metrics=HOST:PORT]

What reads the command line, prints tables, and checks a kit's certificate is left behind: 13 MB instead of 28.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final, Literal, NoReturn

from collegium.errors import ConfigError, in_one_line
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.supervise.children import import_paths
from collegium.flare.supervise.processes import run_server, run_site
from collegium.flare.supervise.renewed import kit_from_json
from collegium.flare.supervise.speaking import speaker

_SELF: Final = "collegium.flare.supervise.program"
_METRICS: Final = "--metrics="


def become(kind: Literal["server", "site"], folder: Path, *options: str, metrics: str | None = None) -> NoReturn:
    """Go on as this program: the same process, with the same console. `metrics` is an address, HOST:PORT."""
    options += () if metrics is None else (f"{_METRICS}{metrics}",)
    kit = read_kit(folder, kind)
    for warning in kit.warnings():
        _speaker(kit, options)(f"warning: {warning}")
    sys.stdout.flush()
    command = [sys.executable, "-m", _SELF, _as_json(kit), *options]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": import_paths()})  # noqa: S606


def _as_json(kit: Kit) -> str:
    return json.dumps(asdict(kit) | {"folder": str(kit.folder)})


def _speaker(kit: Kit, options: Sequence[str]) -> Callable[[str], None]:
    return speaker("server" if kit.kind == "server" else kit.folder.name, as_json="--log-json" in options)


@contextmanager
def _endpoint(kit: Kit, options: Sequence[str], say: Callable[[str], None]) -> Iterator[None]:
    """Where monitoring programs can read, if the owner wants that."""
    address = next((option.removeprefix(_METRICS) for option in options if option.startswith(_METRICS)), None)
    if address is None:
        yield
        return
    from collegium.flare.operations.endpoint import Endpoint, is_of_this_machine  # nobody else needs it

    endpoint = Endpoint(kit, address)
    say(f"metrics at http://{address}/metrics, health at /healthz")
    if not is_of_this_machine(address.rpartition(":")[0]):
        say(f"warning: whoever can reach {address} can read the metrics: let a firewall admit only your own programs")
    endpoint.start()
    try:
        yield
    finally:
        endpoint.close()


def main() -> None:
    """Run until a signal comes; an error ends with one line, as that of any command."""
    fields, *options = sys.argv[1:]
    try:
        if fields == "--read":
            print(_as_json(read_kit(options[0])))  # noqa: T201 - for the program that asks
            return
        kit = kit_from_json(fields)
        say = _speaker(kit, options)
        with _endpoint(kit, options, say):
            (run_server if kit.kind == "server" else run_site)(kit, say)
    except KeyboardInterrupt:  # before it listens to signals
        sys.exit(130)
    except Exception as error:
        if "--debug" in options:
            raise
        print(f"collegium: {in_one_line(error)}", file=sys.stderr)  # noqa: T201 - this is a program
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
