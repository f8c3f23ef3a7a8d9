"""Tables for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collegium.site.ledger import read_ledger


def bytes_text(size: int) -> str:
    """A number of bytes for people."""
    if size < 1000:
        return f"{size} B"
    amount, units = size / 1000, ["kB", "MB", "GB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.1f} {units[0]}"


def ledger_table(path: Path, most: int | None = None) -> Table:
    """The rows of a ledger (the last `most` of them)."""
    rows = sorted(read_ledger(path), key=lambda row: (row["time"], row["number"], row["party"]))
    shown = rows if most is None else rows[-most:]
    title = f"What left ({path.name}" + (
        f", the last {len(shown)} of {len(rows)} releases)" if len(shown) < len(rows) else ")"
    )
    table = Table(title=title)
    for column in ("site", "round", "step", "kind", "bytes", "privacy", "sha256"):
        table.add_column(column, justify="right" if column in ("round", "bytes") else "left")
    for row in shown:
        table.add_row(
            escape(row["party"]),
            str(row["round"]),
            row["step"],
            row["kind"],
            str(row["bytes"]),
            row["claim"] or "unprotected",
            row["sha256"][:12],
        )
    return table


def print_ledger(path: Path) -> None:
    """Print all rows of a ledger."""
    Console().print(ledger_table(path))


def frame_table(frame: pd.DataFrame, title: str) -> Table:
    """Any DataFrame for the terminal: numbers to the right, words to the left."""
    table = Table(title=title)
    numeric = set(frame.select_dtypes("number").columns)
    for column in frame.columns:
        table.add_column(str(column), justify="right" if column in numeric else "left")
    for row in frame.to_dict("records"):
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
