"""Lines that a long command says: with the time, for people or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console

LogJson = Annotated[bool, typer.Option("--log-json", help="Print messages as JSON, one object per line.")]


def speaker(name: str, *, as_json: bool = False, stderr: bool = False) -> Callable[[str], None]:
    """A function that prints a message of `name`."""
    console = Console(highlight=False, soft_wrap=True, stderr=stderr)

    def say(text: str) -> None:
        now = datetime.now().astimezone()
        if as_json:
            line = json.dumps({"time": now.isoformat(timespec="milliseconds"), "from": name, "message": text})
        else:
            line = f"{now:%Y-%m-%d %H:%M:%S} {name}: {text}"
        console.print(line, markup=False)

    return say
