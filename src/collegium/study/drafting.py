"""A first study file from the tables of a folder: which are sites, public or for testing, and what is predicted.

It looks at names and columns, and writes down why it decided as it did, so that whoever reads the file can correct it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from collegium.core.labels import look_like_counts, look_like_measurements
from collegium.data.files import SUFFIXES, read_frame, some
from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.wire import tables

TABLES: Final = tuple(suffix for suffix in SUFFIXES if suffix != ".npz")
_TEST: Final = {"test", "testing", "holdout", "validation", "valid", "val", "eval", "evaluation"}
_PUBLIC: Final = {"public", "unlabeled", "unlabelled", "shared", "open", "reference"}
_TARGET: Final = {"target", "label", "labels", "class", "y", "outcome", "diagnosis"}
_NUMBERS_OF_ROWS: Final = {"id", "ids", "uuid", "identifier", "mrn", "patient", "index", "unnamed"}
_TAKEN: Final = {"coordinator", "mean"}
_SPREADSHEETS: Final = {".xlsx", ".xls", ".ods"}
_MOST_CLASSES: Final = 20
_FEW_ROWS: Final = 200
_MANY_ROWS: Final = 10_000

Frames = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Draft:
    """A study that was made from a folder's files: its text, and what was taken for what."""

    text: str
    target: str
    sites: tuple[str, ...]
    public: str | None
    test: str | None


def draft_study(folder: Path, target: str | None = None) -> Draft:
    """A study of the tables in a folder; a ConfigError says what is missing, or what must be chosen."""
    frames = _read(folder)
    public, test = _named(frames, _PUBLIC, "public rows"), _named(frames, _TEST, "test rows")
    found = _target(frames, public, target)
    if test is not None and found not in frames[test]:
        raise ConfigError(f"{test} has no column {found!r}: rows for testing need their labels. Rename or remove it.")
    without = [name for name in frames if name != public and found not in frames[name]]
    if public is None and len(without) == 1:
        public = without.pop()
    if without:
        raise ConfigError(
            f"{without[0]} has no column {found!r}. Call a file of public rows public.csv; those of sites need labels."
        )
    sites = {name: frame for name, frame in frames.items() if name not in (public, test)}
    if len(sites) < 2:
        there = f"{next(iter(sites))} is the only file of a site" if sites else "no file of a site was found"
        raise ConfigError(f"{folder}: {there}: a study needs the labeled rows of two sites or more, a file each.")
    return _Writer(folder, sites, frames, public, test, found, target is not None).draft()


def _read(folder: Path) -> Frames:
    if folder.is_file():
        raise ConfigError(f"{folder} is a file: name the folder that it is in.")
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}.")
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name.lower().endswith(TABLES)]
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        sheets = any(file.suffix.lower() in _SPREADSHEETS for file in folder.iterdir())
        hint = " Save spreadsheets as CSV." if sheets else ""
        raise ConfigError(f"{folder} has no tables: put in a file per site that ends in {', '.join(TABLES)}.{hint}")
    if len(files) == 1:
        raise ConfigError(
            f"{folder} has one table only, {files[0].name}. Put in a file per site; or write a study whose "
            f'data.source is that file, dealt by a partition such as {{ name = "by_column", column = "hospital" }}.'
        )
    frames = {file.name: read_frame(file) for file in files}
    for name, frame in frames.items():
        if len(frame.columns) < 2:
            raise ConfigError(f"{folder / name} has one column only: what separates its cells?")
    return frames


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word}


def _stem(file: str) -> str:
    return file.partition(".")[0]


def _named(frames: Iterable[str], words: set[str], what: str) -> str | None:
    found = [name for name in frames if _words(_stem(name)) & words]
    if len(found) > 1:
        raise ConfigError(f"Which file holds the {what}: {some(found)}? Rename the others, or put all rows into one.")
    return found[0] if found else None


def _target(frames: Frames, public: str | None, given: str | None) -> str:
    """The column with the labels: the given one, one that labeled files alone have, or by its name or its values."""
    labelled = [frame for name, frame in frames.items() if name != public]
    columns = list(dict.fromkeys(str(column) for frame in labelled for column in frame.columns))
    if given is not None:
        if given not in columns:
            raise ConfigError(f"--target: no file has a column {given!r}.{nearest(given, columns)}")
        return given
    missing = {column: sum(column not in frame for frame in labelled) for column in columns}
    common = [column for column in columns if not missing[column]]
    # Where no file is called public, one that lacks a column of all others may be it.
    of_others = [column for column in columns if public is None and missing[column] == 1 and len(labelled) > 2]
    if not common and not of_others:
        raise ConfigError(_NO_COMMON.format(some(name for name in frames if name != public)))
    for candidates in (
        [column for column in common if public is not None and column not in frames[public]],
        [column for column in (*common, *of_others) if column.strip().lower() in _TARGET],
        [column for column in of_others if _has_classes(labelled, column)],
        [column for column in common if _has_classes(labelled, column)],
    ):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise ConfigError(f"Which column has the labels: {some(candidates)}? Name it with --target.")
    raise ConfigError(f"No column looks like labels: name it with --target. All files have {some(common)}.")


_NO_COMMON: Final = (
    "The files have no column in common ({}): sites need the same columns, under the same names. Move files of other "
    "things elsewhere."
)


def _has_classes(frames: Iterable[pd.DataFrame], column: str) -> bool:
    values = pd.concat([frame[column] for frame in frames if column in frame])
    few = 2 <= values.nunique() <= _MOST_CLASSES
    return few and not values.isna().any() and (not is_numeric_dtype(values) or values.dtype.kind in "bi")


@dataclass(frozen=True, eq=False)
class _Writer:
    """Writes the study, once it is known which file is what."""

    folder: Path
    sites: Frames
    frames: Frames
    public: str | None
    test: str | None
    target: str
    chosen: bool
    """Whether somebody said which column is the target."""

    def draft(self) -> Draft:
        for name, frame in self.frames.items():
            if name != self.public and (missing := int(frame[self.target].isna().sum())):
                raise ConfigError(f"{name}: {missing} of {len(frame)} rows have no {self.target!r}: drop these rows.")
        labels = self._values(self.target)
        values = labels.to_numpy()
        if look_like_measurements(values) or (not self.chosen and look_like_counts(values)):
            raise ConfigError(
                f"{self.target!r} has {labels.nunique()} different numbers: it looks like a measurement, and a study "
                "learns classes. Divide it into classes first, for example with pandas.cut, or choose another --target."
            )
        features = self._features()
        drop = self._drop(features)
        kinds = self._kinds([column for column in features if column not in drop])
        sections = [self._site(name, frame, kinds) for name, frame in self.sites.items()]
        text = "\n".join([self._head(labels), self._data(drop, kinds), _ALGORITHM, *sections])
        names = tuple(_site_names(self.sites).values())
        return Draft(text, self.target, names, self.public, self.test)

    def _features(self) -> list[str]:
        """Columns that all files have, the target aside."""
        first = next(iter(self.sites.values()))
        common = [c for c in first.columns if c != self.target and all(c in frame for frame in self.frames.values())]
        if not common:
            raise ConfigError(_NO_COMMON.format(some(self.frames)) + f" Besides {self.target!r} there is none.")
        return [str(column) for column in common]

    def _drop(self, features: list[str]) -> dict[str, str]:
        """Columns that are left out, and why."""
        everywhere = dict.fromkeys(str(c) for frame in self.frames.values() for c in frame.columns)
        drop = {c: "not in all files" for c in everywhere if c not in features and c != self.target}
        for column in features:
            # At each site: hospitals number their patients from 1, each for itself.
            unique = all(frame[column].nunique() > 0.9 * len(frame) for frame in self.sites.values())
            if _words(column) & _NUMBERS_OF_ROWS and unique:
                drop[column] = "numbers the rows"
        if len(drop.keys() & set(features)) == len(features):
            raise ConfigError(f"The files have no features in common: {some(features)} only number the rows.")
        return drop

    def _values(self, column: str) -> pd.Series:
        values: pd.Series = pd.concat([frame[column] for frame in self.sites.values()])
        return values

    def _kinds(self, features: list[str]) -> dict[str, list[str]]:
        kinds: dict[str, list[str]] = {"numbers": [], "categories": [], "texts": []}
        for column in features:
            values = self._values(column)
            if is_numeric_dtype(values) and not is_bool_dtype(values):
                kinds["numbers"].append(column)
            else:
                kinds["texts" if tables.holds_texts(values) else "categories"].append(column)
        return kinds

    def _head(self, labels: pd.Series) -> str:
        metrics = ["balanced_accuracy", "roc_auc"] if labels.nunique() == 2 else ["balanced_accuracy"]
        name = re.sub(r"[^\w-]+", "-", self.folder.resolve().name).strip("-") or "study"
        return (
            "# Written by `collegium init` from the files of this folder. Look through it: it may have guessed wrong.\n"
            "# What every setting means: `collegium schema`.\n"
            f"name = {_quoted(name)}\n"
            "seed = 0                            # seeds = [0, 1, 2] runs all of it three times, and compares\n"
            f"metrics = {_listed(metrics)}\n"
        )

    def _data(self, drop: Mapping[str, str], kinds: Mapping[str, list[str]]) -> str:
        classes = sorted({str(value) for value in self._values(self.target).dropna().unique()})
        told = ", ".join(f"{kind}: {len(columns)}" for kind, columns in kinds.items() if columns)
        used = [column for columns in kinds.values() for column in columns]
        blank = [column for column in used if any(frame[column].isna().any() for frame in self.frames.values())]
        lines = ["[data]", f"target = {_quoted(self.target)}  # {len(classes)} classes", f"# features: {told}"]
        if blank:
            lines.append(
                f"# blank cells in {some(blank)}: each site's learner has an imputer in front, if it needs one"
            )
        lines += [f"# {_quoted(column)}: {why}" for column, why in drop.items()]
        lines += [f"drop = {_listed(drop)}"] if drop else []
        if self.public is None:
            lines.append(
                '# no file of public rows was found: a share of every site\'s; "together" lets sites make some'
            )
            lines.append("public = 0.3")
        else:
            lines.append(f"public = {_quoted(self.public)}")
        if self.test is None:
            lines.append("test = 0.2  # no file of test rows was found: a share of every site's")
        else:
            lines.append(f"test = {_quoted(self.test)}")
        return "\n".join(lines) + "\n"

    def _site(self, file: str, frame: pd.DataFrame, kinds: Mapping[str, list[str]]) -> str:
        name = _site_names(self.sites)[file]
        key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _quoted(name)
        learner = _text_learner(kinds) if kinds["texts"] else _quoted(_suggested(len(frame)))
        return f"[sites.{key}]  # {len(frame)} rows\ndata = {_quoted(file)}\nlearner = {learner}\n"


_ALGORITHM: Final = """[algorithm]
name = "fedct"                      # collegium list algorithms
rounds = 5
# Votes count by what each site knows of its own mistakes, and sites do not vote on cases unlike theirs. Beside labels,
# each site tells how often its learner takes one class for another, once; without these two lines, labels only leave.
consensus = "informed"              # collegium list consensus
voters = "familiar"
# guard = true                      # each site takes only as much of the consensus as helps it on rows of its own

# Every site may have a learner of its own: collegium list learners. What it needs in front of it, such as an imputer,
# a scaler or an encoder of categories, is added (prepare = "auto"), unless the learner is a list: a pipeline."""


def _suggested(rows: int) -> str:
    if rows < _FEW_ROWS:
        return "logistic_regression"
    return "random_forest" if rows < _MANY_ROWS else "gradient_boosting"


def _text_learner(kinds: Mapping[str, list[str]]) -> str:
    steps = [f'{{ name = "tfidf", columns = {_quoted(column)} }}' for column in kinds["texts"]]
    if kinds["numbers"]:
        columns = _listed(kinds["numbers"])
        steps += [f'{{ name = "{name}", columns = {columns} }}' for name in ("imputer", "scaler")]
    if kinds["categories"]:
        columns = _listed(kinds["categories"])
        steps.append(f'{{ name = "one_hot", columns = {columns}, handle_unknown = "ignore" }}')
    return "[\n" + "".join(f"    {step},\n" for step in steps) + '    "logistic_regression",\n]'


def _site_names(files: Iterable[str]) -> dict[str, str]:
    """What sites are called: their files' names up to the ending, where these differ."""
    stems = [_stem(file) for file in files]
    plain = {file: _stem(file) if stems.count(_stem(file)) == 1 else file.replace(".", "-") for file in files}
    return {file: f"site-{name}" if name in _TAKEN else name for file, name in plain.items()}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(_quoted(name) for name in names) + "]"
