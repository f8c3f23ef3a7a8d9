"""Audits as pictures and as a page: what attacks found, beside what is claimed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from collegium import __version__
from collegium.errors import StorageError
from collegium.reports import style, svg
from collegium.reports.style import Markup, element, join, number, paragraph
from collegium.site.ledger import storage_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collegium.auditing.result import Audit

_LOWEST: Final = 1e-3
_HEAD: Final = (
    "View", "Attack", "Public set", "Canaries", "AUC", "TPR at 0.1% FPR", "TPR at 1% FPR", "Epsilon at least", "Claim",
    "Verdict",
)  # fmt: skip
_SET: Final = {None: "honest", "static": "forged", "adaptive": "forged twice"}


def plot_audits(audits: Sequence[Audit]) -> Figure:
    """ROC curves with both axes logarithmic, as the literature draws them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for each in audits:
        false, true = (np.clip(rates, _LOWEST / 10, 1) for rates in each.roc)
        axes.plot(false, true, label=f"{each.site}, {each.view}: AUC {each.auc:.3f}")
    guess = np.geomspace(_LOWEST, 1, 50)
    axes.plot(guess, guess, linestyle="--", color="grey", label="guessing")
    axes.set(xscale="log", yscale="log", xlim=(_LOWEST, 1), ylim=(_LOWEST, 1.05))
    axes.set(xlabel="false positive rate", ylabel="true positive rate", title="Who was a member?")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def write_page(audits: Sequence[Audit], path: Path) -> Path:
    """A page about audits: one self-contained HTML file, without any record."""
    found = [paragraph(each.in_words(), class_="warning" if each.contradicts else None) for each in audits]
    parts = [("found", "What was found", found)]
    parts += [("numbers", "Numbers", audit_section(audits)), ("how", "How", [_how(each) for each in audits])]
    body = join(style.section(key, name, *content) for key, name, content in parts)
    head = join([element("h1", "Audit"), element("p", ", ".join(dict.fromkeys(each.algorithm for each in audits)))])
    foot = paragraph(f"Made with Collegium {__version__}. This page loads nothing, runs no script and holds no record.")
    text = style.page("Audit", head, body, [(key, name) for key, name, _ in parts], foot)
    with storage_errors(path, StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def audit_section(audits: Sequence[Audit]) -> list[Markup]:
    """The table of audits and their ROC curves, for a page."""
    return [style.table(("Site", *_HEAD), [_row(each) for each in audits], title="Audits"), _curves(audits)]


def _row(audit: Audit) -> list[object]:
    low, high = audit.auc_interval
    claim = "none" if audit.claim is None else f"{audit.claim.epsilon:.4g} at {audit.claim.delta:.2g}"
    return [
        audit.site, audit.view, audit.attack, _SET[audit.forged], number(str(audit.canaries)),
        number(f"{audit.auc:.3f} ({low:.3f} to {high:.3f})"),
        *(number(f"{audit.tpr[fpr]:.3f}") for fpr in sorted(audit.tpr)),
        number(f"{audit.epsilon_lower:.2f}"), claim, audit.verdict,
    ]  # fmt: skip


def _curves(audits: Sequence[Audit]) -> Markup:
    guess = np.linspace(np.log10(_LOWEST), 0, 20)
    lines = [svg.Line("guessing", guess, guess, "hair")]
    for place, each in enumerate(audits):
        false, true = (_logarithm(rates) for rates in each.roc)
        lines.append(svg.Line(f"{each.site}, {each.view}", false, true, svg.series_style(place)))
    axes = [svg.Axis(f"{name} positive rate", whole=True, highest=0.0, logarithmic=True) for name in ("false", "true")]
    chart = svg.line_chart(lines, label="ROC curves", x=axes[0], y=axes[1])
    names = svg.legend([(line.name, line.style) for line in lines[1:]])
    caption = "Both axes are logarithmic: what counts is how many members are found with few false alarms."
    return style.figure("fig-roc", "Members found", caption, chart, names)


def _logarithm(rates: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(np.log10(np.clip(np.asarray(rates, dtype=np.float64), _LOWEST, 1)))


def _how(audit: Audit) -> Markup:
    kinds = ", ".join(f"{many} {kind.replace('_', ' ')}" for kind, many in audit.kinds.items())
    changed = {"add_remove": "added or not", "replace": "put in the place of another record or not"}[audit.relation]
    unread = ", ".join(f"{many} x {kind}" for kind, many in audit.unread.items())
    return style.facts(
        [
            ("Site and view", f"{audit.site}, {audit.view}"),
            ("Canaries", f"{kinds}; each {changed} by a coin"),
            ("Shadow runs", str(audit.shadows)),
            ("Guesses", f"{audit.right} right of {audit.guesses}, whose number was fixed beforehand"),
            ("Confidence", f"{1 - audit.alpha:.0%}"),
            ("Seen, but not read by this attack", unread or "nothing"),
            (
                "By kind of canary",
                "; ".join(f"{kind}: AUC {part.auc:.3f}" for kind, part in audit.by_kind.items()) or "-",
            ),
        ]
    )
