"""Made-up public sets: the section of a run's report, and a page for a site's owner alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from collegium.reports import style
from collegium.reports.style import Markup, element, join, number, paragraph
from collegium.reports.tables import bytes_text
from collegium.together import fidelity

_OWNER_ONLY: Final = (
    "For the owner of these rows only: this page shows shares of private rows as they are. Do not publish it, and do "
    "not send it to the coordinator."
)


def made_section(made: Mapping[str, Any]) -> list[Markup]:
    """What the public set of a run is, and what making it cost."""
    claim = made["claim"]
    intro = (
        f"The public set is made up: {made['rows']:,} rows, drawn from a model of noisy counts over {made['sites']} "
        "sites. Nobody saw any site's counts; the coordinator saw their sums, with noise that the sites had added."
    )
    facts = [
        ("What each record paid", made["said"]),
        ("What left each site", f"{made['counts']:,} masked counts, {bytes_text(made['bytes'])} in all"),
        ("Sums", ", ".join(made["sums"])),
        ("Rests on", "; ".join(claim["assumptions"])),
        ("Run that made it", made["run"]),
    ]
    return [
        paragraph(intro),
        style.facts(facts),
        paragraph("Its cost is in the sites' ledgers and budgets, and not among the claims of this run."),
    ]


def owner_page(made: Any, own: Any, name: str = "this site") -> str:
    """A page that compares made-up rows with a site's own."""
    shares, near = fidelity.distributions(made, own), fidelity.nearest(made, own)
    differs = fidelity.distances(shares)
    parts = [
        ("columns", "Columns", [_summary(differs)]),
        ("nearest", "Nearest rows", [paragraph(_NEAREST), _nearest(near)]),
        ("values", "Values", [_values(column, table) for column, table in shares.groupby("column", sort=False)]),
    ]
    body = join(style.section(key, title, *content) for key, title, content in parts)
    head = join([element("h1", f"Made-up rows and those of {name}"), paragraph(_OWNER_ONLY, class_="warning")])
    contents = [(key, title) for key, title, _ in parts]
    return style.page(f"Made-up rows and those of {name}", head, body, contents, paragraph("This page loads nothing."))


_NEAREST: Final = (
    "How far the site's own rows are from the nearest made-up row, and from the nearest other row of their own "
    "(Gower's distance, 0 to 1). Copies of real rows would make the first column much smaller than the second."
)


def _summary(differs: pd.Series[float]) -> Markup:
    rows = [[str(name), number(f"{value:.1%}")] for name, value in differs.items()]
    return style.table(["Column", "Rows that would have to change"], rows, title="How far the columns differ")


def _nearest(near: pd.DataFrame) -> Markup:
    rows = [[f"{share:.0%}", *(number(f"{value:.4f}") for value in row)] for share, row in near.iterrows()]
    return style.table(
        ["Share of own rows within", *map(str, near.columns)], rows, title="Distances to the nearest row"
    )


def _values(column: Any, table: pd.DataFrame) -> Markup:
    rows = [[str(row.value), number(f"{row.made:.1%}"), number(f"{row.own:.1%}")] for row in table.itertuples()]
    return style.details(str(column), style.table(["Value", "Made up", "Own"], rows, title=f"Column {column}"))
