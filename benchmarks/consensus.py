"""Which rule to take: every rule on real data sets, from equal sites to skewed, useless and hostile ones.

    python -m benchmarks.consensus [--seeds 5] [--rows 100] [--public 600] [--sets mnist,adult]
        [--rules "majority;informed"] [--jobs 14] [--minutes 9] [--out build/consensus.jsonl] [--measure 1]
        [--csv benchmarks/consensus_results.csv]

Ten sites with `rows` rows each, `public` public rows, at most 1,500 test rows. Partitions are iid and Dirichlet
(balanced) with alpha .5, .1 and .01. Situations: "alike" (decision trees), "mixed" (five kinds of learners), "one
useless" (mixed, and one site in five always says its larger class), "20% flip" (trees; two sites have turned their
labels round); and with 30% of the sites, where the partition is iid or .5: "30% flip", "30% one class" (they always
vote for one class) and "30% copy" (they have the rows of another site).

FedCT takes two rounds: sites train alone, and then with the consensus; AIMHI has the same loop. A site is worse than
alone if it loses more than half a point of test accuracy; only honest sites count. FedKT's sites learn nothing from
each other: its columns have the accuracy of the student. What is measured is kept in a file of JSON lines, one per
rule, cell and seed, so that a run that was stopped, or whose `minutes` are over, goes on where it was; the first seed
of all cells comes first. `--measure 0` shows what is there, and `--csv` names a table that gets every row of it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from benchmarks.consensus_cells import DATA, MARGIN, PARTITIONS, RULES, SITUATIONS, TUNED, Cell, Found, cells, outcomes
from benchmarks.pool import machines
from benchmarks.report import Column, Report, print_with_options
from collegium.consensus.advice import SKEWED

SMALL = {"seeds": 1, "rows": 30, "public": 60, "out": "", "sets": "breast_cancer"}
OUT: Final = "build/consensus.jsonl"
WHERE: Final = ("seed", "data", "partition", "situation", "skew", "rule")
MEASURED: Final = ("alone", "accuracy", "balanced", "student", "student_balanced", "worse", "sites")
BY_SKEW: Final = ("informed, guarded", "familiar, informed, guarded")
Task = tuple[Cell, list[str]]


def report(
    seeds: int = 5,
    rows: int = 100,
    public: int = 600,
    out: str = OUT,
    sets: str = "",
    rules: str = "",
    jobs: int = 1,
    minutes: int = 0,
    measure: int = 1,
    csv: str = "",
) -> Report:
    """The table; `sets` and `rules` name some of them (default: all), and `minutes` ends it (default: never)."""
    chosen = rules.split(";") if rules else list(RULES)
    found = [row for row in kept(out) if row["rule"] in chosen]
    if measure:
        todo = missing(found, seeds, sets.split(",") if sets else DATA, chosen)
        for new in measured(todo, rows, public, jobs, minutes):
            found += new
            _keep(out, new)
    if csv:
        rows_found = pd.DataFrame(found, columns=[*WHERE, *MEASURED])
        rows_found.sort_values("seed", kind="stable").round(4).to_csv(csv, index=False)
    return table(found)


def kept(out: str) -> list[Found]:
    """What was measured before."""
    file = Path(out or "/nonexistent")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def _keep(out: str, new: list[Found]) -> None:
    if out:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        with Path(out).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)


def missing(found: list[Found], seeds: int, sets: Sequence[str], rules: Sequence[str]) -> list[Task]:
    """The cells that are not in the file, each with the rules that it lacks."""
    done = {(row["seed"], row["data"], row["partition"], row["situation"], row["rule"]) for row in found}
    lacking = {cell: [rule for rule in rules if (*cell, rule) not in done] for cell in cells(seeds, sets)}
    return [(cell, rules) for cell, rules in lacking.items() if rules]


def measured(todo: Sequence[Task], rows: int, public: int, jobs: int, minutes: int) -> Iterator[list[Found]]:
    """What the rules do in these cells, as they end; after `minutes` no further cell is begun."""
    if jobs == 1 and not minutes:
        yield from (outcomes(*task, rows, public) for task in todo)
        return
    end = time.monotonic() + 60 * minutes if minutes else np.inf
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # for the processes: many of them with many threads each hinder one another
    waiting, running = iter(todo), set[Future[list[Found]]]()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end and (task := next(waiting, None)) is not None:
                running.add(pool.submit(outcomes, *task, rows, public))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def table(found: list[Found]) -> Report:
    """What was measured, averaged over data sets and seeds; only cells in which all rules were measured."""
    rules = [rule for rule in RULES if any(row["rule"] == rule for row in found)]
    by_cell: dict[Any, dict[str, Found]] = defaultdict(dict)
    for row in found:
        by_cell[row["data"], row["partition"], row["situation"], row["seed"]][row["rule"]] = _of_honest_learners(row)
    complete = [cell for cell in by_cell.values() if set(rules) <= set(cell)]
    whole = [row for cell in complete for row in cell.values()]
    if set(BY_SKEW) <= set(rules):
        whole += [cell[_by_skew(cell)] | {"rule": "by skew, guarded"} for cell in complete]
        rules.append("by skew, guarded")
    columns = {"partition": Column("partition"), "sites": Column("situation"), "alone": Column("alone", ".3f")}
    columns |= {rule: Column(rule) for rule in rules}
    seen = Counter(row["data"] for row in whole if row["rule"] == rules[0])
    of_sets = ", ".join(f"{n} of {name}" for name, n in seen.items())
    notes = (
        "Accuracy of the honest sites / share of them that ended worse than alone; FedKT: accuracy of the student. "
        f"Cells, times seeds: {of_sets}. New sets are all but {' and '.join(TUNED)}, which settings were chosen on. "
        "Best: within half a point of the best rule of a data set, partition and situation, averaged over seeds. "
        "By skew: with Familiar where the sites' class frequencies are more than 20% apart, known before a run."
    )
    rows = [*_over_all(whole, rules), *_by_situation(whole, rules)] if whole else []
    return Report("Which consensus", columns, rows, notes, words=2, machine=machines(whole) if whole else "")


def _by_skew(cell: dict[str, Found]) -> str:
    """The rule to take: whether classes differ much between sites is known before a run."""
    return BY_SKEW[next(iter(cell.values()))["skew"] > SKEWED]


def _of_honest_learners(row: Found) -> Found:
    """The student has the first site's learner: where that always says one class, its accuracy tells nothing."""
    hostile = row["situation"] == "30% one class"
    return row | {"student": None, "student_balanced": None} if hostile else row


def _over_all(whole: list[Found], rules: Sequence[str]) -> Iterator[Found]:
    new = [row for row in whole if row["data"] not in TUNED]
    yield _row("all", "all", whole, rules, _of_sites)
    yield _row("new sets", "all", new, rules, _of_sites)
    balanced = [row | {"alone": row["alone_balanced"]} if "alone" in row else row for row in whole]
    yield _row("all", "balanced accuracy", balanced, rules, lambda own: _mean(own, "balanced", "student_balanced"))
    yield _row("all", "student", whole, rules, lambda own: _mean(own, "student"))
    yield _row("all", "student, balanced", whole, rules, lambda own: _mean(own, "student_balanced"))
    best = _best(whole)
    yield _row("all", "best", whole, rules, lambda own: f"{np.mean([close for close, _ in _gaps(own, best)]):.0%}")
    yield _row("all", "behind the best", whole, rules, lambda own: f"{np.mean([g for _, g in _gaps(own, best)]):.3f}")


def _by_situation(whole: list[Found], rules: Sequence[str]) -> Iterator[Found]:
    for partition in PARTITIONS:
        for situation in SITUATIONS:
            own = [row for row in whole if (row["partition"], row["situation"]) == (partition, situation)]
            if own:
                yield _row(partition, situation, own, rules, _of_sites)


def _row(
    partition: str, situation: str, rows: list[Found], rules: Sequence[str], cell: Callable[[list[Found]], str]
) -> Found:
    alone = [row["alone"] for row in rows if "alone" in row]
    told = {"partition": partition, "situation": situation, "alone": float(np.mean(alone)) if alone else None}
    return told | {rule: cell(own) for rule in rules if (own := [row for row in rows if row["rule"] == rule])}


def _of_sites(own: list[Found]) -> str:
    if "worse" not in own[0]:
        return _mean(own, "student")
    worse = sum(row["worse"] for row in own) / sum(row["sites"] for row in own)
    return f"{_mean(own, 'accuracy')} / {worse:.0%}"


def _mean(own: list[Found], *keys: str) -> str:
    key = next(key for key in keys if key in own[0])
    values = [row[key] for row in own if row[key] is not None]
    return f"{np.mean(values):.3f}" if values else ""


def _cell_of(row: Found) -> tuple[Any, ...]:
    """Rules are compared with those of the same algorithm."""
    return row["data"], row["partition"], row["situation"], "worse" in row


def _by_cell(rows: list[Found]) -> dict[Any, float]:
    values = defaultdict(list)
    for row in rows:
        value = row["accuracy"] if "worse" in row else row["student"]
        if value is not None:
            values[_cell_of(row)].append(value)
    return {cell: float(np.mean(own)) for cell, own in values.items()}


def _best(whole: list[Found]) -> dict[Any, float]:
    """The accuracy of the best rule of each cell."""
    by_rule = [_by_cell([row for row in whole if row["rule"] == rule]) for rule in {row["rule"] for row in whole}]
    return {cell: max(own[cell] for own in by_rule if cell in own) for cell in set().union(*by_rule)}


def _gaps(own: list[Found], best: dict[Any, float]) -> list[tuple[bool, float]]:
    """For each cell, whether a rule is close to the best, and how far it is behind."""
    gaps = [best[cell] - value for cell, value in _by_cell(own).items()]
    return [(gap <= MARGIN, gap) for gap in gaps]


if __name__ == "__main__":
    print_with_options(report, __doc__)
