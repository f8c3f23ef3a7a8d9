"""What a site keeps of a run for itself: one page with what left it, at what cost, and how its model came out."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, Final

from collegium.errors import StorageError
from collegium.flare.agreement.planning import Plan
from collegium.site.ledger import Ledger, storage_errors

SCORES: Final = "scores.csv"
_COLUMNS: Final = {
    "time": "time (UTC)", "round": "round", "step": "step", "kind": "kind", "bytes": "bytes", "claim": "privacy",
    "sha256": "hash of the release",
}  # fmt: skip
_STYLE: Final = """
:root { color-scheme: light dark; } body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
padding: 0 1rem; } table { border-collapse: collapse; width: 100%; font-size: .85rem; } th, td { text-align: left;
padding: .25rem .5rem; border-bottom: 1px solid #8884; overflow-wrap: anywhere; } caption { text-align: left;
font-weight: 600; padding: .5rem 0; }
"""


def write_site_report(folder: Path, run: str, plan: Plan, ledger: Ledger) -> Path:
    """Write report.html into the run's folder at the site."""
    left = [row for row in ledger.rows() if row["run"] == run]
    refused = [row for row in ledger.refusals() if row["run"] == run]
    file = folder / SCORES
    scores = [float(line) for line in file.read_text(encoding="utf-8").split()] if file.is_file() else []
    parts = [
        f"<h1>{html.escape(plan.study)}: what left {html.escape(ledger.party)}</h1>",
        f"<p>Method: {html.escape(str(plan.algorithm.get('name')))}. Run {run}. Plan {plan.digest}.</p>",
        f"<p>{len(left)} releases, {sum(row['bytes'] for row in left):,} bytes. {len(refused)} refusals.</p>",
        _scores(scores),
        _table("Releases", _COLUMNS, [row | {"claim": row["claim"] or "unprotected"} for row in left]),
        _table("Refusals", {"time": "time (UTC)", "step": "step", "code": "code"}, refused),
    ]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(plan.study)}</title>"
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>"
    )
    target = folder / "report.html"
    with storage_errors(target, StorageError):
        target.write_text(page, encoding="utf-8")
    return target


def _scores(scores: list[float]) -> str:
    if not scores:
        return "<p>This site holds out no rows, so its model was not tested here.</p>"
    return (
        f"<p>Accuracy on this site's held-out rows: {scores[0]:.3f} after the first training, {scores[-1]:.3f} after "
        f"the last ({len(scores)} in all).</p>"
    )


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"<p>{title}: none.</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(row[key]))}</td>" for key in columns) + "</tr>" for row in rows
    )
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
