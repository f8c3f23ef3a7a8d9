"""What a site keeps of a run for itself: one page with what left it, at what cost, and how its model came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from collegium.errors import StorageError
from collegium.flare.agreement.planning import Plan
from collegium.reports import style
from collegium.site.ledger import Ledger, storage_errors

SCORES: Final = "scores.csv"
_RELEASES: Final = {
    "time": "time (UTC)", "round": "round", "step": "step", "kind": "kind", "bytes": "bytes", "claim": "privacy",
    "sha256": "hash of the release",
}  # fmt: skip
_REFUSALS: Final = {"time": "time (UTC)", "step": "step", "code": "code"}


def write_site_report(folder: Path, run: str, plan: Plan, ledger: Ledger) -> Path:
    """Write report.html into the run's folder at the site."""
    left = [row | {"claim": row["claim"] or "unprotected"} for row in ledger.rows() if row["run"] == run]
    refused = [row for row in ledger.refusals() if row["run"] == run]
    file = folder / SCORES
    scores = [float(line) for line in file.read_text(encoding="utf-8").split()] if file.is_file() else []
    head = [
        style.element("h1", f"{plan.study}: what left {ledger.party}"),
        style.paragraph(f"Method: {plan.algorithm['name']}. Run {run}. Plan {plan.digest}."),
        style.paragraph(f"{len(left)} releases, {sum(row['bytes'] for row in left):,} bytes. {len(refused)} refusals."),
        style.paragraph(_scores(scores)),
    ]
    body = [_table("Releases", _RELEASES, left), _table("Refusals", _REFUSALS, refused)]
    target = folder / "report.html"
    with storage_errors(target, StorageError):
        target.write_text(style.page(plan.study, style.join(head), style.join(body), [], ""), encoding="utf-8")
    return target


def _scores(scores: list[float]) -> str:
    if not scores:
        return "This site has no held-out rows, so its model was not tested here."
    return (
        f"Accuracy on this site's held-out rows: {scores[0]:.3f} after the first training, {scores[-1]:.3f} after the "
        f"last ({len(scores)} in all)."
    )


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> style.Markup:
    cells = [[row[key] for key in columns] for row in rows]
    shown = style.table(list(columns.values()), cells, title=title) if rows else style.paragraph("None.")
    return style.section(title.lower(), title, shown)
