"""Lines that a long command says: with the time, for people or as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime


def speaker(name: str, *, as_json: bool = False, stderr: bool = False) -> Callable[[str], None]:
    """A function that prints a message of `name`."""

    def say(text: str) -> None:
        now = datetime.now().astimezone()
        if as_json:
            line = json.dumps({"time": now.isoformat(timespec="milliseconds"), "from": name, "message": text})
        else:
            # what a site is called, or says, moves no cursor
            shown = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
            line = f"{now:%Y-%m-%d %H:%M:%S} {name}: {shown}"
        print(line, file=sys.stderr if stderr else sys.stdout, flush=True)

    return say
