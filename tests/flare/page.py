"""A page of the docs as a script: files to write, commands to run, each on its machine, in the page's order.

    python -m tests.flare.page PAGE FOLDER MACHINE=PREFIX ...

A comment before a block says what to do with it:

    <!-- on=MACHINE -->                 run these lines in the machine's folder
    <!-- on=MACHINE file=PATH -->       write this file there
    <!-- on=MACHINE keep=WORDS -->      start it, and wait until it has said the words
    <!-- on=MACHINE retry -->           run it until it succeeds
    <!-- on=MACHINE after="NAME:WORDS" --> wait first until a program that was kept has said the words
    <!-- on=MACHINE ends=NAME -->       wait first until a program that was kept has ended well
    <!-- carry MACHINE/PATH MACHINE --> a file travels
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import seconds, until

_PARTS = re.compile(r"<!-- carry (\S+) (\S+) -->|<!-- (on=.*?) -->\n```(\w+)\n(.*?)```", re.DOTALL)


@dataclass
class Kept:
    """A program that stays in the foreground of a terminal."""

    process: subprocess.Popen[bytes]
    console: Path

    def said(self, words: str) -> bool:
        """Whether it has said so; an error if it can say no more."""
        ended = self.process.poll() is not None
        text = self.console.read_text(errors="replace")
        assert words in text or not ended, f"it ended: {text[-2000:]}"
        return words in text


@dataclass
class Machines:
    """Folders, and how commands are started on each."""

    folder: Path
    prefixes: dict[str, list[str]]
    kept: dict[str, Kept] = field(default_factory=dict)
    ran: int = 0

    def place(self, machine: str) -> Path:
        place = self.folder / machine
        place.mkdir(exist_ok=True)
        return place

    def follow(self, page: str) -> None:
        """Do all that the page says."""
        try:
            for file, to, words, _, block in _PARTS.findall(page):
                if file:
                    shutil.copy(self.folder / file, self.place(to))
                else:
                    self.do(dict(_settings(words)), block)
        finally:
            for kept in reversed(self.kept.values()):
                kept.process.terminate()
            for kept in self.kept.values():
                kept.process.wait(seconds(60))

    def do(self, how: dict[str, str], block: str) -> None:
        machine, place = how["on"], self.place(how["on"])
        print(f"--- {machine}: {' '.join(block.split())[:100]}", flush=True)
        if "file" in how:
            (place / how["file"]).write_text(block)
            return
        if "after" in how:
            name, _, words = how["after"].partition(":")
            until(lambda: self.kept[name].said(words), 180)
        if "ends" in how:
            program = self.kept.pop(how["ends"])
            code = program.process.wait(seconds(300))
            assert code == 0, program.console.read_text()
        self.ran += 1
        command = [*self.prefixes.get(machine, []), "sh", "-ec", block]
        if "keep" in how:
            console = self.folder / f"{how.get('name', machine)}.txt"
            with console.open("wb") as output:
                process = subprocess.Popen(
                    [*command[:-1], f"exec {block.strip()}"], cwd=place, stdout=output, stderr=subprocess.STDOUT
                )
            kept = self.kept[how.get("name", machine)] = Kept(process, console)
            until(lambda: kept.said(how["keep"]), 180)
        elif "retry" in how:
            until(lambda: subprocess.run(command, cwd=place, check=False).returncode == 0, 120, every=1.0)
        else:
            subprocess.run(command, cwd=place, check=True, stdin=subprocess.DEVNULL)


def _settings(words: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in shlex.split(words))]


def main(page: Path, folder: Path, machines: list[str]) -> None:
    prefixes = {name: shlex.split(prefix) for name, _, prefix in (each.partition("=") for each in machines)}
    made = Machines(folder, prefixes)
    made.follow(page.read_text())
    print(f"ran {made.ran} blocks")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
