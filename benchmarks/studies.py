"""Does every study of the folder `studies` run? Each is cut to a round and few rows; its data must be at hand.

python -m benchmarks.studies [--rows 2000] [--only adult]
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.report import Column, Report, print_with_options, watched
from collegium.errors import ConfigError
from collegium.study.study import Study

STUDIES = Path(__file__).resolve().parents[1] / "studies"
SMALL: dict[str, Any] = {"only": "breast_cancer_1"}


def report(rows: int = 2000, only: str = "") -> Report:
    """Run the studies whose names contain `only`, with at most so many rows of each kind."""
    files = [file for file in sorted(STUDIES.glob("*.toml")) if only in file.stem]
    return Report(
        title="The studies of the folder, cut short",
        columns={
            "study": Column("study"),
            "outcome": Column("outcome"),
            "accuracy": Column("accuracy", ".3f"),
            "seconds": Column("seconds", ".1f"),
        },
        rows=[_run(file, rows) for file in watched(files, "running", len(files))],
        notes=f"One round and one epoch, at most {rows} private, public and test rows: accuracies show that it runs.",
        words=2,
    )


def _run(file: Path, rows: int) -> dict[str, Any]:
    start, row = time.perf_counter(), {"study": file.stem}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = Study.from_toml(file, cut(Study.from_toml(file), rows)).run(progress=False)
    except ConfigError as error:
        if "COLLEGIUM_DATA" not in str(error):
            raise
        return row | {"outcome": f"no data in {os.environ.get('COLLEGIUM_DATA', 'the data folder')}"}
    outcome = "failed at some sites" if run.incomplete else "runs"
    accuracy = float(run.summary().loc["mean", "accuracy"])
    return row | {"outcome": outcome, "accuracy": accuracy, "seconds": time.perf_counter() - start}


def cut(study: Study, rows: int) -> list[str]:
    """Settings that make a study short."""
    changes = [
        f"data.{name}={rows}"
        for name in ("train", "public", "test")
        if isinstance(given := getattr(study.data, name), int) and given > rows
    ]
    public = study.data.public
    large = isinstance(public, str) or (public or 0) > rows
    if study.data.test == "own" or (study.data.train is None and large):
        changes.append(f"data.train={rows}")
    if isinstance(study.algorithm, dict) and "rounds" in study.algorithm:
        changes.append("algorithm.rounds=1")
    for number, site in enumerate(study.sites):
        if isinstance(site.learner, dict) and "epochs" in site.learner:
            changes.append(f"sites.{number}.learner.epochs=1")
    return changes


if __name__ == "__main__":
    print_with_options(report, __doc__)
