"""A study with several algorithms or seeds, run as a grid: each cell is a run in a folder of its own.

What is there is not run again, so that the same call goes on where it was stopped, and a new seed or algorithm adds
its own runs only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from collegium.data.files import SUFFIXES, sha256_of
from collegium.errors import CollegiumError, ConfigError, StorageError
from collegium.reports.grids import judge_grid, render_grid, sum_up_grid, verdict_rows
from collegium.runs.folder import remove_earlier_run
from collegium.runs.loading import load
from collegium.runs.results import Run
from collegium.runs.run_files import write_file
from collegium.site.ledger import storage_errors
from collegium.study.making import folder_of_making
from collegium.study.study import Study

GRID_FILE: Final = "grid.json"
PAGE: Final = "comparison.html"
_AGAIN: Final = "Run all again with --force (in Python: overwrite=True), or choose another folder."


@dataclass(frozen=True, eq=False)
class Grid:
    """The runs of a study, by what results call the algorithm and by seed: ``grid.runs["fedct"][0]``."""

    name: str
    runs: dict[str, dict[int, Run]] = field(repr=False)
    folder: Path | None = None

    def summary(self) -> pd.DataFrame:
        """One row per algorithm: means over the seeds, with 95% intervals; NaN was not measured."""
        return sum_up_grid(self.runs)

    @property
    def verdict(self) -> pd.DataFrame:
        """Did it help? One row per algorithm and site, with an interval over the seeds."""
        return verdict_rows(judge_grid(self.runs))

    def report(self, path: str | Path) -> Path:
        """Write the comparison as one self-contained HTML file."""
        file = Path(path)
        text = render_grid(self.name, self.runs, self.folder).encode()
        with storage_errors(file, StorageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, lambda out: out.write(text))
        return file


def run_grid(
    study: Study,
    out: str | Path | None = None,
    *,
    base: Path | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    callbacks: Sequence[Any] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Grid:
    """Every run of a study that is not in the folder yet; then the page that compares them.

    `say` is told which run begins.
    """
    folder, cells = None if out is None else Path(out), study.cells()
    if folder is not None:
        _open(folder, study, base, overwrite=overwrite)
    runs: dict[str, dict[int, Run]] = {}
    for number, ((label, seed), cell) in enumerate(cells.items()):
        place = None if folder is None else folder / label / f"seed-{seed}"
        found = None if place is None else _finished(place, cell)
        if found is None:
            say(f"{label}, seed {seed} (run {number + 1} of {len(cells)})")
            begun = place is not None and _begun(place)
            try:
                found = cell.run(place, base=base, resume=begun, progress=progress, callbacks=callbacks)
            except CollegiumError as error:
                error.add_note(f"That was {label} with seed {seed}. Runs that are through are kept.")
                raise
            # Of a run in a folder, models and data need not stay in memory.
            found = found if place is None else load(place)
        runs.setdefault(label, {})[seed] = found
    grid = Grid(study.name, runs, folder)
    if folder is not None:
        grid.report(folder / PAGE)
    return grid


def _open(folder: Path, study: Study, base: Path | None, *, overwrite: bool) -> None:
    """A folder that holds nothing, or the runs of a grid on the same data."""
    file = folder / GRID_FILE
    there = folder.is_dir() and any(folder.iterdir())
    if there and not file.is_file():
        raise ConfigError(f"{folder} is not empty, and holds no runs of a study like this one: choose another folder.")
    if there and overwrite:
        for place in sorted(folder.glob("*/seed-*")):
            if place.name.removeprefix("seed-").isdecimal():
                remove_earlier_run(place)
                remove_earlier_run(folder_of_making(place))
    data = _checksums(study, base)
    before = json.loads(file.read_text(encoding="utf-8")) if there and not overwrite else {}
    if changed := [name for name in data if before.get(name, data[name]) != data[name]]:
        raise ConfigError(f"{changed[0]} has changed since the runs in {folder}. {_AGAIN}")
    with storage_errors(folder, StorageError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, lambda out: out.write(json.dumps(before | data, indent=1).encode()))


def _begun(place: Path) -> bool:
    """Whether there is a run to go on with, or one that makes its public set."""
    return any(each.is_dir() and any(each.iterdir()) for each in (place, folder_of_making(place)))


def _checksums(study: Study, base: Path | None) -> dict[str, str]:
    """Of every file with data that the study names."""
    data = study.data
    named = [data.source, data.public_source, data.public, data.opinion, data.test]
    files = [each for each in [*named, *(site.data for site in study.sites)] if isinstance(each, str)]
    paths = {name: (base or Path.cwd()) / Path(name).expanduser() for name in files if name.lower().endswith(SUFFIXES)}
    return {name: sha256_of(path) for name, path in paths.items() if path.is_file()}


def _finished(place: Path, cell: Study) -> Run | None:
    """The run in a folder, if it is through; a ConfigError if it is one with other settings."""
    if not (place / "run.json").is_file():
        return None
    run = load(place)
    if run.study is not None and _result_of(Study.from_toml(place / "study.toml", own=False)) != _result_of(cell):
        raise ConfigError(f"{place} holds a run with other settings. {_AGAIN}")
    return run if run.finished else None


def _result_of(cell: Study) -> dict[str, Any]:
    """All that a result depends on."""
    return cell.model_dump(exclude={"name", "engine"})
