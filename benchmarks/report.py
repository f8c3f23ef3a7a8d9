"""What a benchmark found: rows in, a table for the terminal or for a Markdown page out."""

from __future__ import annotations

import argparse
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]
PAGE_WIDTH = 150
"""Where the output goes to a file, which has no width of its own."""


@dataclass(frozen=True)
class Column:
    """One value of each row and how it is written; nothing where a row lacks it."""

    key: str
    format: str = ""
    per: float | None = None
    """The unit: 1e6 shows millions."""

    def text(self, row: Row) -> str:
        """The cell of a row."""
        value = row.get(self.key)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, bool):
            return "yes" if value else "NO"
        return format(value if self.per is None else value / self.per, self.format)


@dataclass(frozen=True)
class Report:
    """A table with a title, and what one has to know to read it. The first columns are words."""

    title: str
    columns: Mapping[str, Column]
    rows: Sequence[Row]
    notes: str = ""
    words: int = 1
    machine: str = ""
    """Where it was measured, if that need not be here."""

    def print(self) -> None:
        """Show it in the terminal."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ModuleNotFoundError:  # a machine that only measures need not have it
            print(self.markdown())
            return
        table = Table(title=self.title, caption=self.notes or None)
        for number, heading in enumerate(self.columns):
            is_word = number < self.words
            table.add_column(heading, justify="left" if is_word else "right", no_wrap=is_word)
        for cells in self._cells():
            table.add_row(*cells)
        Console(width=None if sys.stdout.isatty() else PAGE_WIDTH).print(table)

    def markdown(self) -> str:
        """The same as Markdown."""
        rules = [":---" if number < self.words else "---:" for number in range(len(self.columns))]
        lines = [_line(self.columns), _line(rules), *map(_line, self._cells())]
        parts = [f"**{self.title}**", "\n".join(lines), self.notes]
        return "\n\n".join(part for part in parts if part)

    def _cells(self) -> list[list[str]]:
        return [[column.text(row) for column in self.columns.values()] for row in self.rows]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def watched(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """The items, with a progress bar where somebody is watching."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, what, total, console=console, transient=True, disable=not console.is_terminal)


def print_with_options(make: Callable[..., Report], description: str | None) -> None:
    """Run a benchmark from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, make)
    make(**vars(parser.parse_args())).print()


def add_options(parser: argparse.ArgumentParser, make: Callable[..., Report]) -> None:
    """The parameters of a benchmark, whole numbers and words, as options of the command line."""
    for name, parameter in inspect.signature(make).parameters.items():
        shown = f"{parameter.default:,}" if isinstance(parameter.default, int) else parameter.default
        text = f"default: {shown}" if parameter.default else None  # the description says what none means
        parser.add_argument(f"--{name}", type=type(parameter.default), default=parameter.default, help=text)
