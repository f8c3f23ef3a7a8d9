"""What a table of a paper is: studies that differ by row and column, and the numbers that the paper prints for them.

Each table is a TOML file in the folder `tables`. Its study is that of all its cells; a column and a row change settings
of it (`set`), and the quick form makes it small.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from collegium.core.building import settings_of
from collegium.data.benchmarks import BENCHMARKS, is_available
from collegium.errors import ConfigError
from collegium.registry import lookup, nearest
from collegium.study.sections import File, Section, validate
from collegium.study.study import Study

Measure = Literal["sites", "global", "quality", "labels", "sent", "vul"]
PAPERS: Final = ("FedCT", "AIMHI", "FedKT", "FedAUX", "XCLP")
NONE: Final = "(none)"
PRETRAINING: Final = "pretraining"
"""The row of the units that pre-train, which no table shows."""


class Column(Section):
    """Cells of one setting."""

    name: str = ""
    set: dict[str, Any] = Field({}, description="settings of the study that it changes")
    missing: str | None = Field(None, description="why it cannot be run")


class Row(Section):
    """Cells of one method."""

    name: str
    set: dict[str, Any] = Field({}, description="settings of the study that it changes")
    paper: list[float] = Field([], description="what the paper prints, by column; nan where it does not")
    authors: list[float] = Field([], description="what the authors' code gives, by column, where that was run")
    measure: Measure | None = Field(None, description="what is measured, if not the table's measure")
    columns: list[str] | None = Field(None, description="the columns that it has (default: all)")
    after: str | None = Field(None, description="the row from whose model it goes on")
    pretrained: bool = Field(False, description="whether it starts from the table's pre-trained features")
    parts: int = Field(1, ge=1, description="runs in a row, each from the model of the one before")
    minutes: float | None = Field(
        None, gt=0, description="about how long a run, or a part of one, takes, if not as the table says"
    )
    trainings: int = Field(1, ge=1, description="how often each split is trained on, every time with other draws")
    audit: dict[str, Any] | None = Field(None, description="the attack whose AUC is measured, with its options")
    missing: str | None = Field(None, description="why it cannot be run")


class Table(File):
    """One table or figure of a paper."""

    paper: Literal["FedCT", "AIMHI", "FedKT", "FedAUX", "XCLP"]
    number: str = Field(description="which table or figure it is")
    title: str
    measure: Measure = "sites"
    seeds: int = Field(3, ge=1, description="how many splits are drawn")
    minutes: float = Field(1.0, description="about how long a run takes on the device, where none has been timed")
    worth: float = Field(1.0, gt=0, description="how much its numbers matter beside other tables', where time is short")
    device: Literal["cpu", "cuda"] = Field("cpu", description="what it is meant to be run on")
    differs: list[str] = Field([], description="in what it differs from the paper, and why")
    study: dict[str, Any]
    quick: dict[str, Any] = Field(
        {}, description="what makes it small: data, partition, algorithm, learner, pretraining"
    )
    pretraining: dict[str, Any] | None = None
    pretraining_minutes: float | None = Field(None, gt=0, description="about how long it takes, if not as a run does")
    columns: list[Column] = Field([Column()], min_length=1)
    rows: list[Row] = Field(min_length=1)

    def check(self) -> None:
        """Every number stands in a column, and every row that another one needs is there."""
        for row in self.rows:
            for numbers in (row.paper, row.authors):
                if len(numbers) not in (0, len(self.columns)):
                    raise ConfigError(f"{row.name}: give one number for each of the {len(self.columns)} columns.")
            if row.after is not None and self.row(row.after).trainings != row.trainings:
                raise ConfigError(f"{row.name}: its trainings go on from those of {row.after}: give both as many.")
            if row.pretrained and self.pretraining is None:
                raise ConfigError(f"{row.name}: the table has no pretraining.")

    def cells(self) -> list[tuple[Row, Column]]:
        """What can be run."""
        return [(row, column) for row, column in self.shown() if not row.missing and not column.missing]

    def shown(self) -> list[tuple[Row, Column]]:
        """All that the table has, column by column."""
        return [
            (row, column)
            for column in self.columns
            for row in self.rows
            if row.columns is None or column.name in row.columns
        ]

    def runs(self, seeds: int | None = None) -> int:
        """How many runs its numbers are made of; `seeds` of splits instead of its own."""
        return sum((seeds or self.seeds) * row.trainings for row, _ in self.cells())

    def row(self, name: str) -> Row:
        """The row of this name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise ConfigError(f"There is no row {name!r}.{nearest(name, found)}")
        return found[name]

    def expected(self, name: str) -> float | None:
        """What the declaration says of how long a run of this row takes, or pre-training, in minutes."""
        return self.pretraining_minutes if name == PRETRAINING else self.row(name).minutes

    def number_of(self, numbers: list[float], column: Column) -> float | None:
        """What stands in this column, if anything does."""
        value = numbers[self.columns.index(column)] if numbers else math.nan
        return None if math.isnan(value) else value

    def study_of(self, row: str, column: str, seed: int, *, quick: bool = False) -> Study:
        """The study of a cell."""
        settings = self._settings(row, column)
        if quick:
            settings = made_quick(settings, self.quick)
        about = {"name": f"{self.paper} {self.number}: {row} {column}".strip(), "seed": seed}
        return Study.from_dict(_with_none(settings | about), where=str(about["name"]))

    def digest(self, row: str, column: str) -> str:
        """Of what a cell is run with: a result of other settings is not its result."""
        of_row = self.row(row).model_dump(include={"audit", "measure", "after", "parts", "pretrained"})
        pretraining = self.pretraining if self.row(row).pretrained else None
        what = json.dumps([self._settings(row, column), of_row, pretraining], sort_keys=True, default=str)
        return hashlib.sha256(what.encode()).hexdigest()[:12]

    def _settings(self, row: str, column: str) -> dict[str, Any]:
        settings = self.study
        for name, place in ((column, self.columns), (row, self.rows)):
            for each in place:
                if each.name == name:
                    settings = merged(settings, each.set)
        return settings

    def sources(self, row: str, column: str) -> set[str]:
        """The data sets of a cell; of pre-training, that of the public rows."""
        if row == PRETRAINING:
            row, column = self.pretrained_cell()
            data = self._settings(row, column)["data"]
            return {data.get("public_source", data["source"])}
        data = self._settings(row, column)["data"]
        return {data[key] for key in ("source", "public_source") if key in data}

    def pretrained_cell(self) -> tuple[str, str]:
        """The first that starts from pre-trained features: its public rows and its net are those that pre-train."""
        return next((row.name, column.name) for row, column in self.cells() if row.pretrained)


def _with_none(value: Any) -> Any:
    """The same with None for the word that stands for it: TOML has none."""
    if isinstance(value, Mapping):
        return {key: _with_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_none(each) for each in value]
    return None if value == NONE else value


def not_at_hand(sources: Iterable[str], folder: Path | None) -> list[str]:
    """Those of these data sets that are not in the folder."""
    return sorted(name for name in set(sources) if name in BENCHMARKS and not is_available(BENCHMARKS[name], folder))


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table with these changes; a component of another name replaces the whole of it."""
    result = dict(table)
    for key, value in changes.items():
        before = result.get(key)
        joins = isinstance(value, Mapping) and isinstance(before, Mapping)
        renamed = joins and "name" in value and value["name"] != before.get("name")  # type: ignore[union-attr]
        result[key] = merged(before, value) if joins and not renamed else value  # type: ignore[arg-type]
    return result


def made_quick(settings: Mapping[str, Any], quick: Mapping[str, Any]) -> dict[str, Any]:
    """The same study in small: of an algorithm and a learner, only the settings that it has are changed."""
    small = merged(settings, {key: value for key, value in quick.items() if key in ("data", "partition", "engine")})
    if "public_source" in small["data"]:
        small["data"]["public_source"] = small["data"]["source"]
    small["algorithm"] = _shrunk("algorithm", small["algorithm"], quick.get("algorithm", {}))
    learner = quick.get("learner", {})
    small["sites"] = [each | {"learner": _shrunk("learner", each["learner"], learner)} for each in small["sites"]]
    for part in ("teacher", "student"):
        if isinstance(small["algorithm"].get(part), Mapping):
            small["algorithm"][part] = _shrunk("learner", small["algorithm"][part], learner)
    return small


def _shrunk(kind: str, component: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    table = {"name": component} if isinstance(component, str) else dict(component)
    known = settings_of(lookup(kind, table["name"]))
    return table | {key: value for key, value in changes.items() if key in known}


@cache
def tables() -> dict[str, Table]:
    """All declared tables, by the names of their files."""
    folder = resources.files(__package__) / "tables"
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    read = {
        each.name.removesuffix(".toml"): validate(
            Table, tomllib.loads(each.read_text(encoding="utf-8")), each.name, "table"
        )
        for each in files
    }
    return dict(sorted(read.items(), key=lambda item: _place(*item)))


def _place(name: str, table: Table) -> tuple[Any, ...]:
    """Paper by paper, tables before figures, by their numbers."""
    digits = re.search(r"\d+", name)
    return PAPERS.index(table.paper), "table" not in name, int(digits[0]) if digits else 0, name


def named(names: list[str]) -> dict[str, Table]:
    """The tables of these names; a paper's name stands for all of its tables, and none for all."""
    known = tables()
    chosen: dict[str, Table] = {}
    for name in names:
        of_paper = {key: table for key, table in known.items() if table.paper.lower() == name.lower()}
        if name not in known and not of_paper:
            raise ConfigError(f"There is no table {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
        chosen |= of_paper or {name: known[name]}
    return chosen or known
