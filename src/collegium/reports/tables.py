"""Tables for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

from collegium.site.ledger import read_ledger

if TYPE_CHECKING:
    import pandas as pd

BYTE_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def bytes_text(size: int) -> str:
    """A number of bytes for people."""
    by, unit = next(((by, name) for by, name in BYTE_UNITS if size >= by), (1, "B"))
    return f"{size / by:.1f} {unit}" if by > 1 else f"{size} B"


def ledger_table(path: Path, most: int | None = None) -> Table:
    """The rows of a ledger (the last `most` of them)."""
    import pandas as pd

    rows = sorted(read_ledger(path), key=lambda row: (row["time"], row["number"], row["party"]))
    shown = rows if most is None else rows[-most:]
    part = f", the last {len(shown)} of {len(rows)} releases" if len(shown) < len(rows) else ""
    columns = ["site", "round", "step", "kind", "bytes", "privacy", "sha256"]
    frame = pd.DataFrame(shown, columns=["party", *columns[1:5], "claim", "sha256"]).set_axis(columns, axis=1)
    shorter = frame.assign(privacy=frame["privacy"].fillna("unprotected"), sha256=frame["sha256"].str[:12])
    return frame_table(shorter, f"What left ({path.name}{part})")


def frame_table(rows: pd.DataFrame | list[dict[str, Any]], title: str) -> Table:
    """Any rows for the terminal: numbers to the right, words to the left. Nothing in them is taken for markup."""
    import pandas as pd

    frame, table = pd.DataFrame(rows), Table(title=escape(title))
    numeric = set(frame.select_dtypes("number").columns)
    for column in frame.columns:
        table.add_column(escape(str(column)), justify="right" if column in numeric else "left")
    for row in frame.to_dict("records"):
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
