"""Faults put into the code one at a time: how many of them do the tests find?

python -m benchmarks faults [--tree FOLDER] [--before COMMIT] [--only word,word] [--check 1]

A fault is one text in place of another, in a copy of the tree. The tests that answer for it run until one fails. The
same faults can be put into another tree: a file is found by the text, and a test file that has moved since by git
(`before`: the commit that moved them). Where the text is nowhere, or at more than one place, the row says so.

Nothing here is a measure of time; a machine with other things to do gives the same table.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults_list import FAULTS, Fault
from benchmarks.report import Column, Report, print_with_options

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"only": "tables"}
PATIENCE = 1800.0
"""Seconds after which tests that do not end count as having found a fault."""
FOUND, MISSED, SAID = "found", "missed", "said.txt"


@dataclass(frozen=True)
class Outcome:
    """What became of one fault."""

    fault: Fault
    verdict: str
    by: str = ""
    seconds: float = 0.0


class Tree:
    """A copy of a project in which one file at a time is changed."""

    def __init__(self, source: Path, folder: Path, moved: dict[str, str]) -> None:
        self.root, self._moved = folder / "tree", moved
        shutil.copytree(source, self.root, ignore=shutil.ignore_patterns(".*"), symlinks=True)

    def file_with(self, text: str) -> Path | None:
        """The only file of the package that holds this text, once."""
        holding = [file for file in sorted((self.root / "src").rglob("*.py")) if text in file.read_text()]
        return holding[0] if len(holding) == 1 and holding[0].read_text().count(text) == 1 else None

    @contextmanager
    def changed(self, file: Path, old: str, new: str) -> Iterator[None]:
        """The fault is in the file as long as this lasts."""
        before = file.read_text()
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        file.write_text(before.replace(old, new))
        try:
            yield
        finally:
            file.write_text(before)

    def tests(self, named: str) -> list[str] | None:
        """Arguments for pytest: a file, where it is in this tree, and maybe ``-k words``."""
        path, *words = named.split(" -k ")
        here = path if (self.root / path).exists() else self._moved.get(path, "")
        return [here, *(["-k", words[0]] if words else [])] if here and (self.root / here).exists() else None

    def fails(self, arguments: list[str]) -> bool | None:
        """Does a test fail? None where none ran. In a fork: what all tests import has been imported before."""
        child = os.fork()
        if child == 0:
            _run_tests(self.root, arguments)
        end = time.monotonic() + PATIENCE
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return self._verdict(os.waitstatus_to_exitcode(status))
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return True
            time.sleep(0.05)

    def _verdict(self, code: int) -> bool | None:
        if code not in (0, 1, 2, 5):  # passed; a test failed, or could not be collected; there was none
            raise RuntimeError(f"pytest ended with {code}: {(self.root.parent / SAID).read_text()[-2000:]}")
        return None if code == 5 else code != 0


def _run_tests(root: Path, arguments: list[str]) -> None:
    """In the child: pytest, quietly, with the tree's own package. Does not return."""
    try:
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root / "src")
        sys.path[:0] = [str(root / "src"), str(root)]
        for name in [name for name in sys.modules if name.split(".")[0] in ("collegium", "benchmarks", "tests")]:
            del sys.modules[name]  # the tree has its own
        sys.dont_write_bytecode = True
        said = os.open(root.parent / SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--rootdir", str(root)]
        os._exit(int(pytest.main([*options, *arguments])))
    finally:
        os._exit(3)


def try_fault(tree: Tree, fault: Fault) -> Outcome:
    """Put a fault in, and run its tests until one of them fails."""
    start = time.monotonic()
    file = tree.file_with(fault.old)
    if file is None:
        return Outcome(fault, "cannot be put in")
    runs = [arguments for named in fault.tests if (arguments := tree.tests(named)) is not None]
    with tree.changed(file, fault.old, fault.new):
        for arguments in runs:
            if tree.fails(arguments):
                return Outcome(fault, FOUND, arguments[0], time.monotonic() - start)
    return Outcome(fault, MISSED if runs else "has no tests here", "", time.monotonic() - start)


def moved_tests(before: str) -> dict[str, str]:
    """Where the test files were before a commit, by where they are now."""
    if not before:
        return {}
    command = ["git", "-C", str(ROOT), "diff", "-M20%", "--name-status", f"{before}^", before, "--", "tests"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {new: old for kind, old, new in (line.split("\t") for line in lines if line[0] == "R") if kind}


def chosen(only: str) -> list[Fault]:
    """The faults whose names hold one of the words (all without any)."""
    words = [word for word in only.split(",") if word]
    return [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]


def measure(tree: str = "", before: str = "", only: str = "", check: int = 0) -> list[Outcome]:
    """What became of each fault. `check`: the tests must pass without one, or nothing is found by them."""
    _import_what_all_tests_import()
    with tempfile.TemporaryDirectory() as folder:
        made = Tree(Path(tree) if tree else ROOT, Path(folder), moved_tests(before))
        if check:
            for named in sorted({named for fault in chosen(only) for named in fault.tests}):
                arguments = made.tests(named)
                if arguments is not None and made.fails(arguments) is not False:
                    raise SystemExit(f"{named} does not pass without a fault: nothing can be found by it.")
        outcomes = []
        for fault in chosen(only):
            outcomes.append(try_fault(made, fault))
            print(f"{outcomes[-1].verdict:16} {fault.name} ({outcomes[-1].seconds:.0f} s)", file=sys.stderr, flush=True)
        return outcomes


def _import_what_all_tests_import() -> None:
    import hypothesis.extra.numpy
    import pandas as pd
    import pytest
    import sklearn.ensemble
    import sklearn.neural_network
    import sklearn.pipeline

    assert all([hypothesis, pd, pytest, sklearn])


def report(tree: str = "", before: str = "", only: str = "", check: int = 0) -> Report:
    """The table of all faults, and the share that was found."""
    outcomes = measure(tree, before, only, check)
    found, put_in = (sum(each.verdict in kinds for each in outcomes) for kinds in ((FOUND,), (FOUND, MISSED)))
    rows = [{"fault": each.fault.name, "outcome": each.verdict, "by": each.by} for each in outcomes]
    return Report(
        f"Faults in the code: {found} of {put_in} are found by the tests",
        {"fault": Column("fault"), "outcome": Column("outcome"), "first failure in": Column("by")},
        rows,
        notes="Which tests answer for a fault is chosen by hand, not by coverage.",
        words=3,
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
