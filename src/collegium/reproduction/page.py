"""The page that puts what was found beside the papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from collegium.reproduction.declared import PAPERS, Column, Row, Table
from collegium.reproduction.results import Results
from collegium.reproduction.units import Found, Unit

WORDS: Final = {
    "sites": "Mean test accuracy over sites",
    "global": "Test accuracy of the common model",
    "quality": "Share of the consensus labels that are right",
    "labels": "Share of the found labels that are right",
    "sent": "What a site sends in all, in kB",
    "vul": "AUC of the attack",
}
HEAD: Final = """# Reproduction

Every table that is declared in `collegium.reproduction`, beside the paper's numbers and, where it was run, the
authors' code. `collegium reproduce` writes this page of the runs that are through: a cell without a number has not
been run, and a table says why where it cannot be. **ours** is the mean over seeds (each draws the split anew, but for
rows that are trained several times on each of some splits) in the last round, ± the largest distance of a seed from
it; **best** is the mean of each seed's best round, which looks at the test rows, as several papers do. Data of CIFAR
are JPEG copies (lossy).

"""


def page(tables: Mapping[str, Table], results: Mapping[str, Results]) -> str:
    """The whole page, paper by paper."""
    parts = [HEAD]
    for paper in PAPERS:
        of_paper = {name: table for name, table in tables.items() if table.paper == paper}
        if of_paper:
            parts.append(f"## {paper}\n\n")
            parts += [_section(name, table, results[name]) for name, table in of_paper.items()]
    return "".join(parts).rstrip() + "\n"


def _section(name: str, table: Table, results: Results) -> str:
    shown = [_line(name, table, row, column, results) for row, column in table.shown()]
    found = [each for _, several in shown for each in several]
    wanted = table.runs()
    with_authors = any(row.authors for row in table.rows)
    head = ["method", "setting", "paper", *(["authors' code"] if with_authors else []), "ours", "±", "best", "seeds"]
    lines = ["| " + " | ".join(cells if with_authors else [*cells[:3], *cells[4:]]) + " |" for cells, _ in shown]
    rule = "| " + " | ".join([":---", ":---", *["---:"] * (len(head) - 2)]) + " |"
    missing = [(each.name, each.missing) for each in table.columns] + [(each.name, each.missing) for each in table.rows]
    notes = [
        *table.differs,
        *(f"Not run, {label}: {why}" for label, why in missing if why),
        f"{_done(found, wanted)} `collegium reproduce {name}`.{_where(found)}",
    ]
    title = f"### {table.paper}, {table.number}: {table.title}"
    table_text = "\n".join(["| " + " | ".join(head) + " |", rule, *lines])
    return f"{title}\n\n{WORDS[table.measure]}.\n\n{table_text}\n\n" + "".join(f"- {note}\n" for note in notes) + "\n"


def _line(name: str, table: Table, row: Row, column: Column, results: Results) -> tuple[list[str], list[Found]]:
    units = [Unit(name, row.name, column.name, seed, row.parts - 1) for seed in range(100)]
    through = [unit for unit in units if results.get(unit) is not None]
    runs = [_parts(unit, results) for unit in through]
    found = [parts[-1] for parts in runs]
    last = [each["last"] for each in found if each["last"] is not None]
    best = [max(each["best"] for each in parts) for parts in runs if all(each["best"] is not None for each in parts)]
    epsilon = {f"{each['epsilon']:.3g}" for each in found if "epsilon" in each}
    setting = column.name + (f" (claimed ε {', '.join(sorted(epsilon))})" if epsilon else "")
    spread = f"{np.abs(np.array(last) - np.mean(last)).max():.3f}" if len(last) > 1 else ""
    cells = [
        row.name,
        setting.strip(),
        _number(table.number_of(row.paper, column)),
        _number(table.number_of(row.authors, column)),
        _number(float(np.mean(last)) if last else None),
        spread,
        _number(float(np.mean(best)) if best else None),
        _counted(through, row),
    ]
    return cells, found


def _counted(through: list[Unit], row: Row) -> str:
    """How many runs there are, and of how many splits where each is trained on several times."""
    splits = {unit.seed // row.trainings for unit in through}
    return "" if not through else f"{len(through)} ({len(splits)} splits)" if row.trainings > 1 else str(len(through))


def _parts(unit: Unit, results: Results) -> list[Found]:
    """What the parts of a run found, the last one at the end."""
    every = [results.get(replace(unit, part=part)) for part in range(unit.part + 1)]
    return [each for each in every if each is not None]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 10 else f"{value:,.1f}"


def _done(found: list[Found], wanted: int) -> str:
    if not found:
        return "Not run yet."
    return "All runs are through." if len(found) >= wanted else f"{len(found)} of {wanted} runs are through."


def _where(found: list[Found]) -> str:
    where = sorted({f"{each['machine']}, on {each['device']}" for each in found})
    return f" {'; '.join(where)}." if where else ""


def write(file: Path, tables: Mapping[str, Table], folder: Path) -> None:
    """Write the page of what the folder has."""
    results = {name: Results(folder, name) for name in tables}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(tables, results), encoding="utf-8")
