"""Trails of runs that tests make up, and a process that writes one as a run does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collegium.runs.trail import FILE

WRITER = """
import json, sys
from pathlib import Path
from collegium.runs.trail import COMMAND, Trail
COMMAND.set(json.loads(sys.argv[2]))
trail = Trail(Path(sys.argv[1]))
for line in sys.stdin:
    trail._write(json.loads(line))
    print("written", flush=True)
"""
BEGUN = 1_700_000_000.0


def about(parties: list[str], **more: Any) -> dict[str, Any]:
    return {"algorithm": "FedCT(rounds=9)", "parties": parties, "public_size": 370, "study": "demo"} | more


def a_round(number: int, accuracies: list[float], of: int = 9, t: float = BEGUN) -> list[dict[str, Any]]:
    """The lines of a round."""
    spent = {"fit": 1.0, "predict": 0.5, "consensus": 0.1, "wire": 0.1}
    own = {
        "public.consensus_size": 1.0,
        "public.consensus_changed": 10.0 / (number + 1),
        "public.consensus_quality": 0.9,
    }
    ended = {"k": "done", "t": t + number + 1, "n": number, "of": of, "up": 1000, "down": 2000, "s": spent}
    return [{"k": "m", "t": t + number, "n": number, "v": {"test.accuracy": accuracies}, "c": own}, ended]


def beginning(parties: list[str], pid: int = 1, t: float = BEGUN, **more: Any) -> list[dict[str, Any]]:
    opened = {"k": "open", "t": t, "trail": 1, "pid": pid, "version": "0.1.0", "again": False, "command": None}
    return [opened | more, {"k": "start", "t": t, "about": about(parties)}]


def totals(parties: int, t: float = BEGUN) -> dict[str, Any]:
    each = {"up": 100, "down": 200, "out": 3, "safe": 1, "answers": 3}
    return {"k": "total", "t": t, "last": []} | {name: [value] * parties for name, value in each.items()}


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Append lines, as nobody who has the file would."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


class Writer:
    """A process that has a trail, and writes to it what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, *lines: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(lines) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "written\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def writing(folder: Path, command: list[str] | None = None) -> Iterator[Writer]:
    """For as long as the block lasts, or until it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", WRITER, str(folder), json.dumps(command)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=env, **pipes) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()
