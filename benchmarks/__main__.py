"""Run benchmarks, and keep what they found.

python -m benchmarks [majority label_bytes overhead skew reproduce fashion] [--small] [--write]
python -m benchmarks fashion --device cuda --jobs 3 [--write]

A single benchmark takes its own options too: python -m benchmarks.fashion --help says which.
"""

from __future__ import annotations

import argparse
import importlib
import re
from datetime import date
from pathlib import Path

from benchmarks import machine
from benchmarks.report import Report, add_options

NAMES = (
    "majority", "label_bytes", "overhead", "links", "orders", "faults", "skew", "reproduce", "fashion", "fashion_skew",
    "privacy", "hamming", "fedkt", "fedkt_trainings", "fedkt_mnist", "fedkt_privacy", "fedaux", "scaling", "xclp",
    "semi_supervised", "federation", "fuzz", "many_sites", "audit", "audit_mechanisms", "audit_review", "audit_meter",
    "audit_vul", "footprint", "real_sites", "soak", "cohorts", "beside_pfl", "consensus", "studies",
    "together", "vision", "text", "text_few", "text_audit", "console",
)  # fmt: skip
RESULTS = Path(__file__).with_name("RESULTS.md")
EMPTY = "# Results of the benchmarks\n\n`python -m benchmarks --write` writes this page.\n"


def main() -> None:
    """Run the named benchmarks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(NAMES)} (default: all)")
    parser.add_argument("--small", action="store_true", help="a size that shows only that they work")
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options, rest = parser.parse_known_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if rest and (len(options.names) != 1 or options.small):
        parser.error(f"{' '.join(rest)}: a benchmark's own options go with its name alone")
    for name in options.names or NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        own = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
        add_options(own, benchmark.report)
        report = benchmark.report(**(benchmark.SMALL if options.small else vars(own.parse_args(rest))))
        report.print()
        if options.write:
            command = " ".join(["python -m benchmarks", name, *(["--small"] if options.small else rest)])
            write(name, section(command, report))


def section(command: str, report: Report) -> str:
    """What was run, when and where, and what came out."""
    return f"`{command}`, {date.today().isoformat()}. {report.machine or machine.in_words()}.\n\n{report.markdown()}"


def write(name: str, text: str) -> None:
    """Put a section into the page, in place of the one that was there."""
    marked = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    before = (RESULTS.read_text() if RESULTS.exists() else "") or EMPTY
    there = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    after = there.sub(lambda _: marked, before) if there.search(before) else f"{before}\n## {name}\n\n{marked}\n"
    RESULTS.write_text(after)


if __name__ == "__main__":
    main()
