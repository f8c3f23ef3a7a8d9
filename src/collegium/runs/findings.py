"""`check`: what is wrong, or looks wrong, with sites, a public set and a test set, before anything is trained.

A finding says how many rows or which columns, never what is in a row. Label values are named where their spelling is
what is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy import sparse

from collegium.core.labels import as_labels, look_like_counts, look_like_measurements, plain_spelling
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.errors import ConfigError
from collegium.privacy.learners.assignment import row_hashes
from collegium.runs.checks import has_missing_values, takes_missing_values
from collegium.wire import tables

CODES: Final = {
    "columns": "columns are missing, or there are others",
    "column-order": "the same columns in another order",
    "column-type": "a column holds numbers in one table and words in another",
    "shape": "tables of different kinds or shapes",
    "label-type": "labels are numbers in one place and words in another",
    "label-spelling": "labels that differ only by case or blanks",
    "unknown-label": "a label of the test set that no site has",
    "float-target": "labels that look like measurements, not like classes",
    "integer-target": "labels that are many whole numbers, such as ages: perhaps no classes",
    "one-class": "a site has rows of one class only",
    "missing-class": "a site has no rows of a class that others have",
    "few-rows": "a class of which a site has very few rows",
    "imbalance": "nearly all rows are of one class",
    "missing-values": "blank cells that the site's learner does not take",
    "constant-column": "a column that always has the same value",
    "same-rows": "the same rows in two of the private, public and test sets",
}
"""Every code that a finding can have, and what it means."""
_DOUBTFUL: Final = ("columns", "column-type", "label-type", "label-spelling", "unknown-label", "same-rows")
"""Codes after which what a run says is likely to be wrong; the others describe sites as they may well be."""
_MOST_CELLS: Final = 20_000_000
"""Of larger data, a run compares columns and labels, not rows."""
_FEW: Final = 5
_NEARLY_ALL: Final = 0.95
_MANY_CLASSES: Final = 100


@dataclass(frozen=True)
class Finding:
    """Something to look at before a run."""

    code: str
    """One of `CODES`."""
    site: str
    """The site's name; "public" or "test" for those sets."""
    message: str
    """What, where, and what next."""

    def __str__(self) -> str:
        return f"{self.site}: {self.message} ({self.code})"


def check(sites: Site | Sequence[Site], public: Any = None, test: tuple[Any, Any] | None = None) -> list[Finding]:
    """Look at all data of a study before the run; an empty list means that nothing was found.

    ``for finding in cg.check(sites, public=U, test=(X, y)): print(finding.code, finding.site, finding.message)``.
    Labels that a method learns from may come with the public set, as ``public=(U, y)``.
    """
    parts, learners = _parts(sites, public, test)
    looked = (_columns(parts), _labels(parts), _balance(parts, learners), _cells(parts, learners), _leaks(parts))
    return [finding for findings in looked for finding in findings]


def doubts(sites: Sequence[Site], public: Any, test: tuple[Any, Any] | None) -> str | None:
    """What a run says before it starts, where its data look as if its results could not be trusted; else None."""
    parts, _ = _parts(sites, public, test)
    cells = sum(int(np.prod(tables.row_shape(part.X))) * tables.n_rows(part.X) for part in parts.values())
    looked = (_columns(parts), _labels(parts), _leaks(parts) if cells <= _MOST_CELLS else ())
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for finding in (each for findings in looked for each in findings if each.code in _DOUBTFUL):
        found[finding.code][finding.site] = None
    if not found:
        return None
    said = "; ".join(
        f"{CODES[code]} ({', '.join(list(at)[:5])}{', ...' if len(at) > 5 else ''})" for code, at in found.items()
    )
    return f"Look at the data before you trust this run: {said}. `collegium check`, or cg.check(...), says more."


def _parts(
    sites: Site | Sequence[Site], public: Any, test: tuple[Any, Any] | None
) -> tuple[dict[str, _Part], dict[str, Any]]:
    """All tables by name, those of the sites first; and the sites' learners."""
    every = [sites] if isinstance(sites, Site) else list(sites)
    if not every or not all(isinstance(site, Site) for site in every):
        raise ConfigError("check takes sites: cg.check([cg.Site(...), ...], public=U, test=(X, y)).")
    parts = {site.name: _Part(site.X, site.y) for site in every}
    if len(parts) < len(every):
        raise ConfigError("Two sites have the same name: give each a name of its own.")
    if public is not None:
        X, y = public if isinstance(public, tuple) else (public, None)
        X = X.X if isinstance(X, PublicSet) else X
        parts["public"] = _Part(tables.as_table(X, "public"), None if y is None else as_labels(y, "public: y"))
    if test is not None:
        parts["test"] = _Part(tables.as_table(test[0], "test: X"), as_labels(test[1], "test: y"))
    return parts, {site.name: site.learner for site in every}


@dataclass(frozen=True, eq=False)
class _Part:
    X: Any
    y: NDArray[Any] | None


def _columns(parts: dict[str, _Part]) -> Iterator[Finding]:
    """Tables that do not fit the first site's."""
    (first, model), *others = parts.items()
    for name, part in others:
        if _kind(part.X) != _kind(model.X):
            yield Finding("shape", name, f"It is {_kind(part.X)}, and {first}'s is {_kind(model.X)}: use one kind.")
        elif not isinstance(part.X, pd.DataFrame):
            own, expected = tables.row_shape(part.X), tables.row_shape(model.X)
            if own != expected:
                yield Finding("shape", name, f"Its rows have shape {own}, those of {first} have {expected}.")
        else:
            yield from _frames(first, model.X, name, part.X)


def _kind(X: Any) -> str:
    return "a DataFrame" if isinstance(X, pd.DataFrame) else "sparse" if sparse.issparse(X) else "an array"


def _frames(first: str, model: pd.DataFrame, name: str, frame: pd.DataFrame) -> Iterator[Finding]:
    wanted, own = list(model.columns), list(frame.columns)
    missing, extra = [c for c in wanted if c not in own], [c for c in own if c not in wanted]
    if missing or extra:
        words = [f"it has no {_some(missing)}"] if missing else []
        words += [f"only it has {_some(extra)}"] if extra else []
        yield Finding(
            "columns", name, f"Its columns are not those of {first}: {' and '.join(words)}. Rename or add them."
        )
    elif wanted != own:
        text = f"It has the columns of {first} in another order. A run puts them into that order."
        yield Finding("column-order", name, text)
    for column in (c for c in wanted if c in own):
        if is_numeric_dtype(model[column]) != is_numeric_dtype(frame[column]):
            words = ["words" if not is_numeric_dtype(each[column]) else "numbers" for each in (frame, model)]
            text = f"Column {column!r} holds {words[0]}, and {words[1]} at {first}. Use one type."
            yield Finding("column-type", name, text)


def _labels(parts: dict[str, _Part]) -> Iterator[Finding]:
    """Labels that are not the same classes everywhere."""
    labelled = {name: part.y for name, part in parts.items() if part.y is not None and len(part.y)}
    if not labelled:
        return
    kinds = {name: "numbers" if y.dtype.kind in "biuf" else "words" for name, y in labelled.items()}
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            text = f"Its labels are {kind}, those of {first} are {kinds[first]}. Use one type."
            yield Finding("label-type", name, text)
    spellings: dict[str, set[str]] = defaultdict(set)
    for name, y in labelled.items():
        if kinds[name] == "words":
            for value in np.unique(y).tolist():
                spellings[plain_spelling(value)].add(str(value))
    for name, y in labelled.items():
        yield from _spelling(name, y, kinds[name], spellings)
        yield from _target(name, y)
    yield from _counts(labelled)
    at_sites = {str(value) for name, y in labelled.items() if name != "test" for value in np.unique(y).tolist()}
    plain = {plain_spelling(value) for value in at_sites}
    tested = labelled.get("test", np.zeros(0))
    unknown = [v for v in np.unique(tested).tolist() if plain_spelling(v) not in plain]
    if unknown and kinds["test"] == kinds[first] and not look_like_measurements(tested):  # those are of single rows
        yield Finding("unknown-label", "test", f"No site has rows of {_some(unknown)}: nobody can learn them.")


def _spelling(name: str, y: NDArray[Any], kind: str, spellings: dict[str, set[str]]) -> Iterator[Finding]:
    own = np.unique(y).tolist() if kind == "words" else []
    for value in own:
        others = sorted(spellings[plain_spelling(value)] - {str(value)})
        if others:
            text = f"Label {str(value)!r} is also spelled {_some(others)}: these would be different classes. "
            yield Finding("label-spelling", name, text + "Strip blanks and use one case.")


def _target(name: str, y: NDArray[Any]) -> Iterator[Finding]:
    if look_like_measurements(y):
        text = (
            f"Its labels are {len(np.unique(y))} different numbers: they look like measurements, and would be as many "
        )
        yield Finding(
            "float-target", name, text + "classes. Divide them into classes first, for example with pandas.cut."
        )


def _counts(labelled: dict[str, NDArray[Any]]) -> Iterator[Finding]:
    """Whole numbers of all tables together: a site that lacks classes has gaps between theirs."""
    whole = {name: y for name, y in labelled.items() if y.dtype.kind in "iu"}
    if not whole or not look_like_counts(np.concatenate([np.unique(y) for y in whole.values()])):
        return
    for name, y in whole.items():
        text = f"Its labels are {len(np.unique(y))} different whole numbers, each of which is a class. If they are "
        text += "amounts, such as ages or days, divide them into classes first, for example with pandas.cut; if they "
        yield Finding("integer-target", name, text + "are codes of classes, all is well.")


def _balance(parts: dict[str, _Part], learners: dict[str, Any]) -> Iterator[Finding]:
    """Which classes each site has, and how many rows of them."""
    counts: dict[str, Counter[Any]] = {}
    for name in learners:
        y = parts[name].y
        if y is not None and len(y) and not look_like_measurements(y):
            counts[name] = Counter(y.tolist())
    # Another spelling of a class is no other class, and is found elsewhere.
    every = sorted({plain_spelling(value): value for own in counts.values() for value in own}.values(), key=str)
    if len(every) > _MANY_CLASSES:
        return  # which is not about balance
    for name, own in counts.items():
        there = {plain_spelling(value) for value in own}
        missing, few = [v for v in every if plain_spelling(v) not in there], [v for v in own if own[v] < _FEW]
        share = max(own.values()) / sum(own.values())
        if len(own) == 1 and len(every) > 1:
            yield Finding("one-class", name, f"All of its rows are of one class, {str(next(iter(own)))!r}.")
        elif share > _NEARLY_ALL:
            yield Finding("imbalance", name, f"{share:.0%} of its rows are of one class: look at balanced_accuracy.")
        if missing and len(own) > 1:
            yield Finding(
                "missing-class", name, f"It has no rows of {_some(missing)}: let sites abstain, by voters Familiar."
            )
        if few:
            yield Finding("few-rows", name, f"It has fewer than {_FEW} rows of {_some(few)}.")


def _cells(parts: dict[str, _Part], learners: dict[str, Any]) -> Iterator[Finding]:
    """Blank cells and columns that tell nothing."""
    for name, part in parts.items():
        blank = has_missing_values(part.X)
        refusing = [
            site for site, learner in learners.items() if learner is not None and not takes_missing_values(learner)
        ]
        if name in learners:
            refusing = [site for site in refusing if site == name]
        if blank and refusing:
            who = "its learner does" if name in learners else f"the learner of {refusing[0]} does"
            text = f"It has blank or infinite cells, which {who} not take: put an imputer in front of it."
            yield Finding("missing-values", name, text)
        constant = _constant(part.X)
        if constant:
            yield Finding("constant-column", name, f"Columns with one value only: {_some(constant)}.")


def _constant(X: Any) -> list[Any]:
    if tables.n_rows(X) < 2 or sparse.issparse(X):
        return []
    if isinstance(X, pd.DataFrame):
        return [column for column in X.columns if X[column].nunique(dropna=False) <= 1]
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        return []  # pixels at the edge of images are often constant
    return np.flatnonzero(np.equal(X, X[0]).all(axis=0)).tolist()


def _leaks(parts: dict[str, _Part]) -> Iterator[Finding]:
    """Rows that stand in two sets; those that occur often anyway, such as blank images, are not counted twice."""
    hashes = {name: set(row_hashes(part.X)) for name, part in parts.items()}
    for one, other in combinations(hashes, 2):
        shared = len(hashes[one] & hashes[other])
        if not shared:
            continue
        smaller = min(len(hashes[one]), len(hashes[other]))
        text = f"{shared} of its different rows are also in {_place(one)} ({shared / smaller:.0%} of the smaller one)."
        harm = " Accuracy on the test set would be too high: remove them there." if other == "test" else ""
        yield Finding("same-rows", other, text + harm)


def _some(values: Sequence[Any], most: int = 5) -> str:
    """A few names for a message."""
    return ", ".join(repr(value) for value in values[:most]) + (", ..." if len(values) > most else "")


def _place(name: str) -> str:
    return "the public set" if name == "public" else f"site {name!r}"
