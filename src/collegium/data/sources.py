"""Data sets by name or by path, as a study file gives them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.benchmarks import BENCHMARKS, is_available, read_benchmark
from collegium.data.files import SUFFIXES, read_table
from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.wire.tables import Table, n_rows


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set read by `load_source`.

    `X` is a DataFrame for tables and texts, an array for images and npz files, and a sparse matrix for svmlight files;
    `y` has one label per row. `test` is the data set's own test split, if it has one. `about` describes it in one line,
    with its license and what to cite.
    """

    name: str
    X: Table
    y: NDArray[Any]
    test: tuple[Table, NDArray[Any]] | None
    about: str

    def __repr__(self) -> str:
        test = f", test: {n_rows(self.test[0])} rows" if self.test else ""
        return f"Dataset({self.name}: {n_rows(self.X)} rows{test})"


class SourceInfo(NamedTuple):
    """One row of `list_sources`; `rows` and `features` count the training rows."""

    name: str
    kind: str
    rows: int
    features: int
    available: bool
    about: str


EMBEDDED: Final = {
    "breast_cancer": (569, 30, "Breast Cancer Wisconsin (Diagnostic), malignant or benign; UCI, CC BY 4.0."),
    "digits": (1797, 64, "Handwritten digits, 8x8 pixels; test part of UCI's optical digits, CC BY 4.0."),
    "iris": (150, 4, "Three species of iris flowers; Fisher 1936, UCI, CC BY 4.0."),
    "wine": (178, 13, "Chemical analysis of wines from three cultivars; UCI, CC BY 4.0."),
    "reviews": (1000, 1, "Made-up film reviews of eight words, good or bad: to try things, nothing to learn from."),
    "patterns": (2000, 768, "Made-up color images, 16x16 pixels, 10 classes: to try things, nothing to learn from."),
}


_KINDS: Final = {"digits": "images", "patterns": "images", "reviews": "text"}
TELLING: Final = {
    "bad": "awful boring weak cold stupid dull",
    "good": "lovely great moving warm clever fine",
}
OTHERS: Final = "the film was a story actors and in scene music"
"""The words of the made-up reviews."""


def load_source(
    source: str, *, target: str | None = None, folder: Path | None = None, base: Path | None = None
) -> Dataset:
    """Load the data set named `source`, or the file at the path `source`.

    `list_sources` lists the names. Sets that do not come with scikit-learn are looked up in `folder`, by default the
    folder that the environment variable COLLEGIUM_DATA names, else the user's cache folder. Nothing is ever downloaded.

    A path leads to a .csv (or .csv.gz, .csv.xz), .parquet or .npz file, and is relative to `base`. `target` is the
    column with the labels; in an npz file the features are the array X, and the labels the array y or `target`.
    """
    if source in EMBEDDED or source in BENCHMARKS:
        if target is not None:
            raise ConfigError(f"data: {source} brings its own labels; leave out target = {target!r}.")
        return _embedded(source) if source in EMBEDDED else _benchmark(source, folder)
    if source.lower().endswith(SUFFIXES):
        return _file((base or Path.cwd()) / Path(source).expanduser(), target)
    names = [*EMBEDDED, *BENCHMARKS]
    raise ConfigError(
        f"data: there is no source {source!r}.{nearest(source, names)} Known: {', '.join(names)}; "
        f"or give the path of a file that ends in {', '.join(SUFFIXES)}."
    )


def list_sources(folder: Path | None = None) -> list[SourceInfo]:
    """All named data sets, and whether their files are available. `pandas.DataFrame(list_sources())` shows a table."""
    embedded = [
        SourceInfo(name, _KINDS.get(name, "table"), rows, features, True, about)
        for name, (rows, features, about) in EMBEDDED.items()
    ]
    return embedded + [
        SourceInfo(name, entry.kind, entry.rows, entry.features, is_available(entry, folder), entry.about)
        for name, entry in BENCHMARKS.items()
    ]


def _embedded(name: str) -> Dataset:
    if name == "patterns":
        return _patterns()
    if name == "reviews":
        return _reviews()
    from sklearn import datasets

    loaded = getattr(datasets, f"load_{name}")(as_frame=name != "digits")
    y = np.asarray(loaded.target)
    if name != "digits":
        y = np.asarray(loaded.target_names)[y]
    return Dataset(name, loaded.data, y, None, EMBEDDED[name][2])


def _reviews() -> Dataset:
    """Three telling words among five others, in any order: the same texts every time."""
    rng, rows = np.random.default_rng(0), EMBEDDED["reviews"][0]
    y = np.array(sorted(TELLING))[np.arange(rows) % 2]
    drawn = [[*rng.choice(TELLING[label].split(), 3), *rng.choice(OTHERS.split(), 5)] for label in y]
    texts = [" ".join(rng.permutation(words)) for words in drawn]
    return Dataset("reviews", pd.DataFrame({"text": texts}, dtype=object), y, None, EMBEDDED["reviews"][2])


def _patterns() -> Dataset:
    """Ten coarse patterns, each at random places and under noise: the same images every time."""
    rng = np.random.default_rng(0)
    rows, side = EMBEDDED["patterns"][0], 16
    y = np.arange(rows) % 10
    coarse = rng.random((10, 3, 4, 4)).repeat(side // 4, axis=2).repeat(side // 4, axis=3)
    places = (np.arange(side) + rng.integers(0, 5, (rows, 2, 1))) % side
    X = coarse[y[:, None, None], :, places[:, 0, :, None], places[:, 1, None, :]].transpose(0, 3, 1, 2)
    noisy = 160 * X + rng.integers(0, 96, X.shape)
    return Dataset("patterns", noisy.astype(np.uint8), y, None, EMBEDDED["patterns"][2])


def _benchmark(name: str, folder: Path | None) -> Dataset:
    X, y, test = read_benchmark(name, folder)
    return Dataset(name, X, y, test, BENCHMARKS[name].about)


def _file(path: Path, target: str | None) -> Dataset:
    X, y = read_table(path, target)
    labels = f"labels from {target!r}" if target is not None else "labels from 'y'"
    return Dataset(path.name, X, y, None, f"Your file {path.name}; {labels}.")
