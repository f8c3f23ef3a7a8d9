"""An export as a page that needs nothing else: no script, no request."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from collegium.reports import style, svg
from collegium.reports.refusals import CODES, UNKNOWN
from collegium.reports.style import Markup, code, number
from collegium.reports.tables import bytes_text

_UNITS: Final = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def export_page(facts: dict[str, Any]) -> str:
    """The whole page. All that others wrote is escaped."""
    about, budget = facts["about"], facts["budget"]
    releases = facts["releases"]
    bare = sum(row["claim"] == "unprotected" for row in releases)
    head = style.join(
        [
            style.element("h1", f"What left {about['site']}, and what was decided there"),
            style.paragraph(f"Made on {about['time']} with Collegium {about['version']}.", class_="meta"),
            style.tiles(
                [
                    ("decisions", str(len(facts["decisions"])), "signed"),
                    ("releases", str(len(releases)), f"{bare} without differential privacy"),
                    ("sent", bytes_text(sum(row["bytes"] for row in releases)), "in all runs"),
                    ("refusals", str(len(facts["refusals"])), "the latest are kept"),
                    ("epsilon spent", f"{budget['spent']:.4g}", _limit(budget)),
                ]
            ),
        ]
    )
    sections = [
        ("decisions", "Decisions", _decisions(facts["decisions"])),
        ("budget", "Privacy budget over time", _budget(budget)),
        ("runs", "Runs", _runs(facts["runs"])),
        ("releases", "Releases", _releases(releases)),
        ("refusals", "Refusals", _refusals(facts["refusals"])),
        ("about", "About this file", style.facts([(key, str(value)) for key, value in about.items()])),
    ]
    body = style.join(style.section(key, title, content) for key, title, content in sections)
    foot = style.paragraph(
        "This file is signed in its last line. To check that nothing was changed:",
        code("collegium site verify-export FILE --identity IDENTITY"),
    )
    return style.page(f"{about['site']}: records", head, body, [(key, title) for key, title, _ in sections], foot)


def budget_chart(points: list[dict[str, Any]], limit: float | None) -> Markup | None:
    """Epsilon over time, and the limit; None while nothing was spent."""
    if not points:
        return None
    moments = [datetime.fromisoformat(each["time"]).timestamp() for each in points]
    size, unit = next(((size, unit) for size, unit in _UNITS if moments[-1] - moments[0] >= size), _UNITS[-1])
    passed = [(moment - moments[0]) / size for moment in moments]
    until = max(passed[-1], 1.0)  # a budget is a line, also where all was released at once
    lines = [svg.Line("spent", [*passed, until], [*(each["epsilon"] for each in points), points[-1]["epsilon"]], "s0")]
    if limit is not None:
        lines.append(svg.Line("budget", [0.0, until], [limit, limit], "s1 dash"))
    axes = svg.Axis(f"{unit} since the first release", lowest=0.0), svg.Axis("epsilon", lowest=0.0)
    chart = svg.line_chart(lines, label="epsilon spent over time", x=axes[0], y=axes[1], size=svg.FLAT)
    return style.join([chart, svg.legend([(each.name, each.style) for each in lines])])


def _limit(budget: dict[str, Any]) -> str:
    at = f"at delta {budget['delta']:g}"
    return f"no budget, {at}" if budget["epsilon"] is None else f"of {budget['epsilon']:g}, {at}"


def _budget(budget: dict[str, Any]) -> Markup:
    chart = budget_chart(budget["over time"], budget["epsilon"])
    if chart is None:
        return style.paragraph("Nothing was spent.")
    problem = [style.paragraph(budget["problem"], class_="warning")] if budget["problem"] else []
    return style.join([*problem, style.figure("spent", "Epsilon", f"Spent {_limit(budget)}.", chart)])


def _decisions(rows: list[dict[str, Any]]) -> Markup:
    cells = [
        [row["time"], row["act"], code(row["about"]) if row["about"] else "the site", row["reason"], row["by"],
         ", ".join(f"{key}: {value}" for key, value in row["terms"].items())]
        for row in rows
    ]  # fmt: skip
    return _table(["time (UTC)", "decision", "about", "reason", "by", "terms"], cells, "Decisions")


def _runs(rows: list[dict[str, Any]]) -> Markup:
    cells = [
        [code(row["run"]), repr(row["study"]) if row["study"] else "", row["lead"], row["state"],
         number(str(row["releases"])), number(bytes_text(row["bytes"]))]
        for row in rows
    ]  # fmt: skip
    return _table(["run", "study (the coordinator's words)", "lead", "state", "releases", "sent"], cells, "Runs")


def _releases(rows: list[dict[str, Any]]) -> Markup:
    cells = [
        [row["time"], code(row["run"]), number(str(row["round"])), row["step"], row["kind"],
         number(bytes_text(row["bytes"])), row["claim"], code(row["sha256"])]
        for row in rows
    ]  # fmt: skip
    heads = ["time (UTC)", "run", "round", "step", "kind", "bytes", "privacy", "hash of the release"]
    return _table(heads, cells, "Releases")


def _refusals(rows: list[dict[str, Any]]) -> Markup:
    cells = [
        [row["time"], code(row["run"]) if row["run"] else "", row["step"], row["code"], CODES.get(row["code"], UNKNOWN)]
        for row in rows
    ]
    return _table(["time (UTC)", "run", "step", "code", "what it means"], cells, "Refusals")


def _table(heads: list[str], rows: list[list[object]], title: str) -> Markup:
    return style.table(heads, rows, title=title) if rows else style.paragraph("None.")
