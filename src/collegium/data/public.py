"""Splits one data set into private sites, an unlabeled public set, and a test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.settings import NonNegativeInt, OpenProbability, check
from collegium.data.partition import Iid, Partition
from collegium.errors import ConfigError
from collegium.wire.tables import Table, as_table, n_rows, take

IID: Final = Iid()


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """The result of `split`.

    `public_truth` is for scoring only: in a real study nobody has it. `indices` maps "public", "test" and the name of
    each site to row indices of the original X.
    """

    sites: list[tuple[Any, NDArray[Any]]]
    public: Any
    public_truth: NDArray[Any]
    test: tuple[Any, NDArray[Any]]
    names: list[str]
    indices: dict[str, NDArray[np.intp]]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(rows)}" for name, rows in self.indices.items())
        return f"Split({sizes})"


def split(
    X: Any,
    y: Any,
    sites: int | None = None,
    public: float = 0.5,
    test: float = 0.2,
    partition: Partition = IID,
    seed: int = 0,
    train: float | None = None,
) -> Split:
    """Split one data set into `sites` private ones, a public set and a test set, all disjoint.

    `public`, `test` and `train` (all private rows together) are row counts if integers, and fractions of all rows if
    between 0 and 1. Without `train`, all remaining rows are private. `partition` distributes the private rows over the
    sites; `ByColumn` determines the number of sites itself.
    """
    table = as_table(X, "X")
    labels = _labels(y)
    _check_rows(table, labels)
    if not isinstance(partition, Partition):
        raise ConfigError(f"partition: {partition!r} is not a partition; give one, e.g. Iid() or Dirichlet(0.5).")
    count = partition.count_sites(sites, table)
    names = _site_names(partition, count, table)
    sizes = _sizes(len(labels), public, test, train)
    if sizes["train"] < count:
        raise ConfigError(
            f"train: {sizes['train']} private rows are too few for {count} sites; "
            "use fewer sites, or a smaller public or test set."
        )

    rng = np.random.default_rng(check(NonNegativeInt, seed, "seed"))
    drawn = _draw(rng, len(labels), sizes)
    dealt = _deal(partition, names, table, labels, drawn["train"], rng)
    indices = {"public": drawn["public"], "test": drawn["test"], **dealt}
    _check_disjoint(indices, sum(sizes.values()))

    features = partition.features(table)
    return Split(
        sites=[(take(features, indices[name]), labels[indices[name]]) for name in names],
        public=take(features, indices["public"]),
        public_truth=labels[indices["public"]],
        test=(take(features, indices["test"]), labels[indices["test"]]),
        names=names,
        indices=indices,
    )


def _labels(y: Any) -> NDArray[Any]:
    if isinstance(y, pd.Series | pd.Index):
        y = y.to_numpy()
    elif isinstance(y, pd.Categorical):
        y = np.asarray(y)
    labels = y if isinstance(y, np.ndarray) else _array_of_labels(y)
    if labels.ndim != 1:
        raise ConfigError(f"y: has shape {labels.shape}, but there is one label per row; flatten it, e.g. y.ravel().")
    missing = int((np.asarray(pd.isna(labels)) | np.ma.getmaskarray(labels)).sum())
    if missing:
        raise ConfigError(f"y: {missing} of {len(labels)} labels are missing; leave those rows out.")
    return np.asarray(labels)


def _array_of_labels(y: Any) -> NDArray[Any]:
    if not isinstance(y, list | tuple):
        raise ConfigError(f"y: a {type(y).__name__} is not a list of labels; give a numpy array, a Series or a list.")
    try:
        labels = np.array(y)
    except ValueError:
        raise ConfigError("y: the labels are lists of different lengths; give one label per row.") from None
    # numpy would turn the numbers, or None, into text
    return np.array(y, dtype=object) if labels.dtype.kind in "SU" and not all(isinstance(v, str) for v in y) else labels


def _check_rows(X: Table, labels: NDArray[Any]) -> None:
    if n_rows(X) != len(labels):
        raise ConfigError(f"X has {n_rows(X)} rows and y has {len(labels)} labels; give one label per row.")
    if not len(labels):
        raise ConfigError("X has no rows.")


def _site_names(partition: Partition, count: int, X: Table) -> list[str]:
    names = partition.site_names(count, X)
    reserved = {"public", "test"} & set(names)
    if reserved:
        raise ConfigError(f"partition: a site cannot be called {min(reserved)!r}; rename that value of the column.")
    if len(set(names)) < len(names):
        raise ConfigError(f"partition: {type(partition).__name__} gives two sites the same name; make them differ.")
    return names


def _sizes(rows: int, public: float, test: float, train: float | None) -> dict[str, int]:
    sizes = {"public": _size(public, rows, "public"), "test": _size(test, rows, "test")}
    rest = rows - sum(sizes.values())
    sizes["train"] = rest if train is None else _size(train, rows, "train")
    if rest < 0 or sum(sizes.values()) > rows:
        asked = " + ".join(f"{size} {name}" for name, size in sizes.items() if name != "train" or train is not None)
        raise ConfigError(f"There are {rows} rows, but {asked} rows were asked for; ask for fewer.")
    return sizes


def _size(value: Any, rows: int, what: str) -> int:
    """A number of rows, given as one or as a fraction of all rows."""
    size = check(NonNegativeInt | OpenProbability, value, what)
    return size if isinstance(size, int) else round(size * rows)


def _draw(rng: np.random.Generator, rows: int, sizes: dict[str, int]) -> dict[str, NDArray[np.intp]]:
    # The test rows come first, so that they stay the same when only the public set is made larger or smaller.
    order = ["test", "public", "train"]
    ends = np.cumsum([sizes[name] for name in order])
    pieces = np.split(rng.permutation(rows).astype(np.intp), ends)
    return dict(zip(order, pieces[:-1], strict=True))


def _deal(
    partition: Partition,
    names: list[str],
    X: Table,
    labels: NDArray[Any],
    private: NDArray[np.intp],
    rng: np.random.Generator,
) -> dict[str, NDArray[np.intp]]:
    """Per site, the indices of its rows."""
    private_X = take(X, private)
    # A value of ByColumn may occur in public and test rows only: its site has no rows then.
    there = set(partition.site_names(len(names), private_X))
    parts = partition.assign(_codes(labels)[private], len(there), rng, private_X)
    found = dict(zip([name for name in names if name in there], parts, strict=True))
    for name in names:
        if name not in found or not len(found[name]):
            raise ConfigError(
                f"partition: site {name!r} ends up without rows; "
                "use another seed, fewer sites, a larger alpha or a smaller public or test set."
            )
    return {name: private[found[name]] for name in names}


def _codes(labels: NDArray[Any]) -> NDArray[np.int_]:
    try:
        return np.unique(labels, return_inverse=True)[1].astype(np.int_)
    except TypeError:
        raise ConfigError("y: the labels have different types; convert them to one, e.g. to text.") from None


def _check_disjoint(indices: dict[str, NDArray[np.intp]], rows: int) -> None:
    together = np.concatenate(list(indices.values()))
    if len(together) != rows or len(np.unique(together)) != rows:
        raise RuntimeError("Internal error: public, test and private rows overlap or are incomplete.")
