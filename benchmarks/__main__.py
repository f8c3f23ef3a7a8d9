"""Run benchmarks, and keep what they found.

python -m benchmarks [majority label_bytes overhead skew reproduce fashion] [--small] [--write]
"""

from __future__ import annotations

import argparse
import importlib
import re
from datetime import date
from pathlib import Path

from benchmarks import machine
from benchmarks.report import Report

NAMES = ("majority", "label_bytes", "overhead", "skew", "reproduce", "fashion")
RESULTS = Path(__file__).with_name("RESULTS.md")
EMPTY = "# Results of the benchmarks\n\n`python -m benchmarks --write` writes this page.\n"


def main() -> None:
    """Run the named benchmarks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(NAMES)} (default: all)")
    parser.add_argument("--small", action="store_true", help="a size that shows only that they work")
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    for name in options.names or NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        report = benchmark.report(**(benchmark.SMALL if options.small else {}))
        report.print()
        if options.write:
            command = f"python -m benchmarks {name}{' --small' if options.small else ''}"
            write(name, section(command, report))


def section(command: str, report: Report) -> str:
    """What was run, when and where, and what came out."""
    return f"`{command}`, {date.today().isoformat()}. {machine.in_words()}.\n\n{report.markdown()}"


def write(name: str, text: str) -> None:
    """Put a section into the page, in place of the one that was there."""
    marked = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    before = (RESULTS.read_text() if RESULTS.exists() else "") or EMPTY
    there = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    after = there.sub(lambda _: marked, before) if there.search(before) else f"{before}\n## {name}\n\n{marked}\n"
    RESULTS.write_text(after)


if __name__ == "__main__":
    main()
