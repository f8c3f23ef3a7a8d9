"""A study whose sites have files of their own: their rows, the public file and the test file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.files import SUFFIXES, read_rows, read_table
from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.study.study import Study

Rows = tuple[Any, NDArray[Any]]

TOGETHER: Final = "together"
"""In place of public rows: the sites make them."""


@dataclass(frozen=True, eq=False)
class Dealt:
    """All rows of a study: by site, and those that are public or for testing."""

    sites: dict[str, Rows]
    public: Any
    truth: NDArray[Any] | None
    test: Rows | None
    classes: NDArray[Any]


def read_site_files(study: Study, base: Path | None) -> Dealt:
    """The rows of every site's own file. Columns in another order than the first site's are put into that order."""
    sites: dict[str, Rows] = {}
    columns: list[str] = []
    for number, section in enumerate(study.sites):
        file = _path(section.data, f"sites[{number}].data", base)
        X, y = read_table(file, study.data.target, least_classes=1)
        columns += columns_of(X)
        X = without_columns(X, study.data.drop)
        sites[str(section.name)] = X if not sites else tables.in_order_of(next(iter(sites.values()))[0], X), y
    check_dropped(study.data.drop, columns)
    first = next(iter(sites.values()))[0]
    public, truth, test, wanted = None, None, None, study.data.test
    if isinstance(study.data.public, str):
        if study.data.public != TOGETHER:
            public, truth = read_public_file(study, study.data.public, base, first)
    elif study.data.public:
        sites, drawn = hold_out(sites, study.data.public, study.seed, "data.public")
        public, truth = drawn
    if wanted == "own":
        raise ConfigError("data.test: the sites' files have no test rows of their own. Name a file, or give a share.")
    if isinstance(wanted, str):
        test = read_test_file(study, wanted, base, first)
    elif wanted != 0:
        sites, test = hold_out(sites, 0.2 if wanted is None else wanted, study.seed + 1, "data.test")
    return Dealt(sites, public, truth, test, _classes([y for _, y in sites.values()]))


def read_public_file(study: Study, name: str, base: Path | None, like: Any) -> tuple[Any, NDArray[Any] | None]:
    """The public rows in a file, and their labels where each of them has one: these measure, and train nothing."""
    file, target = _path(name, "data.public", base), study.data.target
    rows = read_rows(file)
    truth = None
    if isinstance(rows, pd.DataFrame) and target is not None and target in rows:
        labels = rows.pop(target)
        truth = None if labels.isna().any() else labels.to_numpy()
    return tables.in_order_of(like, without_columns(rows, study.data.drop)), truth


def read_test_file(study: Study, name: str, base: Path | None, like: Any) -> Rows:
    """The rows of a test file, with their labels."""
    X, y = read_table(_path(name, "data.test", base), study.data.target, least_classes=1)
    return tables.in_order_of(like, without_columns(X, study.data.drop)), y


def columns_of(X: Any) -> list[str]:
    """The names of a table's columns, where they have names."""
    return [str(column) for column in X.columns] if isinstance(X, pd.DataFrame) else []


def check_dropped(names: Sequence[str], columns: Sequence[str]) -> None:
    """A ConfigError if a column is to be dropped that is nowhere."""
    if unknown := [name for name in names if name not in columns]:
        raise ConfigError(f"data.drop: there is no column {unknown[0]!r}.{nearest(unknown[0], columns)}")


def without_columns(X: Any, names: Sequence[str]) -> Any:
    """The rows without these columns, as far as there are any."""
    there = [name for name in names if name in columns_of(X)]
    return X.drop(columns=there) if there else X


def hold_out(sites: dict[str, Rows], many: float, seed: int, where: str) -> tuple[dict[str, Rows], Rows]:
    """The sites without a share of their rows, the same at every site, and those rows of all sites together."""
    total = sum(len(y) for _, y in sites.values())
    share = many / total if isinstance(many, int) else many
    if not 0 < share < 1:
        raise ConfigError(f"{where}: the sites have {total} rows; give fewer, or a fraction below 1.")
    kept: dict[str, Rows] = {}
    drawn: list[Rows] = []
    for number, (name, (X, y)) in enumerate(sites.items()):
        order = np.random.default_rng([seed, number]).permutation(len(y))
        out, stay = (np.sort(rows) for rows in np.split(order, [round(share * len(y))]))
        kept[name] = tables.take(X, stay), y[stay]
        drawn.append((tables.take(X, out), y[out]))
    return kept, (tables.stack([X for X, _ in drawn]), np.concatenate([y for _, y in drawn]))


def _classes(labels: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All classes. Labels of different types cannot be sorted together; a run says at which site they are."""
    alike = len({y.dtype.kind in "biuf" for y in labels}) == 1
    return np.unique(np.concatenate([np.unique(y) for y in labels])) if alike else np.unique(labels[0])


def _path(name: str | None, where: str, base: Path | None) -> Path:
    if name is None or not name.lower().endswith(SUFFIXES):
        raise ConfigError(f"{where}: {name!r} is not a file that ends in {', '.join(SUFFIXES)}.")
    return (base or Path.cwd()) / Path(name).expanduser()
