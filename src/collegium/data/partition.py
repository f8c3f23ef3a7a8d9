"""Ways to distribute the private rows of one data set over sites.

To write your own, subclass `Partition` and implement `deal`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
import pandas as pd
from annotated_types import Gt, Le
from numpy.typing import NDArray
from scipy import sparse

from collegium.core.settings import NonNegativeInt, PositiveInt, Probability, Settings, check
from collegium.errors import ConfigError
from collegium.registry import nearest
from collegium.wire.tables import Table, as_table, n_columns

Codes: TypeAlias = NDArray[np.int_]
Rows: TypeAlias = NDArray[np.intp]

# Sums of larger ones overflow; all are Iid in effect.
MAX_ALPHA: Final = 1e9
Alpha = Annotated[float, Gt(0), Le(MAX_ALPHA)]
MAX_DRAWS: Final = 100
MAX_CAPPED_DRAWS: Final = 10_000
"""The papers' codes draw until they succeed: FedKT's 20 parties at beta .1 take some thousand draws."""
MAX_BALANCING_ROUNDS: Final = 1000
BALANCED_WITHIN_ROWS: Final = 0.1


@dataclass(frozen=True)
class Partition(Settings, ABC):
    """Base class of all partitions: decides which row goes to which site."""

    def assign(self, y: Codes, sites: int | None, rng: np.random.Generator, X: Any = None) -> list[Rows]:
        """One sorted array of row indices per site; together they contain every row exactly once.

        `y` has one class code per row; `X` is the table the rows come from.
        """
        count = self.count_sites(sites, X)
        if len(y) == 0:
            raise ConfigError(f"{self}: there are no rows to distribute.")
        return [np.sort(np.asarray(rows, dtype=np.intp)) for rows in self.deal(np.asarray(y), count, rng, X)]

    @abstractmethod
    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> Sequence[Rows]:
        """The row indices of each site, in any order."""

    def count_sites(self, sites: int | None, X: Any) -> int:
        """The number of sites, given what the user asked for."""
        if sites is None:
            raise ConfigError(f"sites: {type(self).__name__} needs to know how many sites to create, e.g. sites=5.")
        return check(PositiveInt, sites, "sites")  # type: ignore[no-any-return]

    def site_names(self, sites: int, X: Any) -> list[str]:
        """The names of the sites."""
        return [f"site{number}" for number in range(sites)]

    def features(self, X: Table) -> Table:
        """The part of `X` that learners may see."""
        return X


@dataclass(frozen=True)
class Iid(Partition):
    """Every site gets a random sample of the same size."""

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        return np.array_split(rng.permutation(len(y)), sites)


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Each class is divided over the sites in proportions drawn from Dir(alpha).

    With a small alpha, sites differ in size and in classes; with a large one they approach `Iid`. The draw is repeated
    until every site has at least `min_size` rows. `capped`: classes are divided from the rarest on, and a site that has
    its equal share of all rows gets none of those still to come, as in FedLab and in FedKT's code.
    """

    alpha: Alpha
    min_size: NonNegativeInt = 1
    capped: bool = False

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        def draw() -> list[Rows]:
            return _dirichlet(np.arange(len(y)), y, sites, self.alpha, rng, capped=self.capped)

        return _draw_until(self, self.min_size, draw, MAX_CAPPED_DRAWS if self.capped else MAX_DRAWS)


@dataclass(frozen=True)
class BalancedDirichlet(Partition):
    """Sites of nearly equal size, with class proportions drawn from Dir(alpha)."""

    alpha: Alpha

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        rows_by_class = _rows_by_class(np.arange(len(y)), y, rng)
        class_counts = np.array([len(rows) for rows in rows_by_class], dtype=np.float64)
        shares = rng.dirichlet(np.full(len(class_counts), self.alpha), size=sites) + 1e-9
        balanced = _balance(shares, np.full(sites, len(y) / sites), class_counts)
        return _join((_cut(rows, column) for rows, column in zip(rows_by_class, balanced.T, strict=True)), sites)


@dataclass(frozen=True)
class MixedDirichlet(Partition):
    """A random `share` of the rows is divided by Dir(alpha1), the rest by Dir(alpha2).

    The draw is repeated until every site has at least `min_size` rows. `capped`: each part is dealt as `Dirichlet` does
    with that setting, and every site has at least `min_size` rows of each. FedCT's published split is
    ``MixedDirichlet(0.01, 100, share=0.9, min_size=10, capped=True)``.
    """

    alpha1: Alpha
    alpha2: Alpha
    share: Probability = 0.5
    min_size: NonNegativeInt = 1
    capped: bool = False

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        def draw() -> list[Rows]:
            first, second = _cut(rng.permutation(len(y)), np.array([self.share, 1 - self.share]))
            return _join((part(rows, alpha) for rows, alpha in ((first, self.alpha1), (second, self.alpha2))), sites)

        def part(rows: Rows, alpha: float) -> list[Rows]:
            def deal_part() -> list[Rows]:
                return _dirichlet(rows, y, sites, alpha, rng, capped=self.capped)

            return _draw_until(self, self.min_size, deal_part, MAX_CAPPED_DRAWS) if self.capped else deal_part()

        return draw() if self.capped else _draw_until(self, self.min_size, draw, MAX_DRAWS)


@dataclass(frozen=True)
class Shard(Partition):
    """The rows, sorted by class, are cut into shards, and each site gets `shards_per_site` of them at random."""

    shards_per_site: PositiveInt = 2

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        shards = sites * self.shards_per_site
        if len(y) < shards:
            raise ConfigError(
                f"Shard: {len(y)} private rows cannot be cut into {shards} shards "
                f"({sites} sites with {self.shards_per_site} each); use fewer sites or fewer shards per site."
            )
        by_class = np.concatenate(_rows_by_class(np.arange(len(y)), y, rng))
        cut = np.array_split(by_class, shards)
        dealt = rng.permutation(shards).reshape(sites, self.shards_per_site)
        return [np.concatenate([cut[shard] for shard in hand]) for hand in dealt]


@dataclass(frozen=True)
class Pathological(Partition):
    """Every site has exactly `classes_per_site` classes, and every class is at some site."""

    classes_per_site: PositiveInt = 2

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        rows_by_class = _rows_by_class(np.arange(len(y)), y, rng)
        left = self._holders([len(rows) for rows in rows_by_class], sites, rng)
        slices = [np.array_split(rows, holders) for rows, holders in zip(rows_by_class, left, strict=True)]
        dealt = []
        for _ in range(sites):
            # Taking the classes with most holders still to come is what lets the last site find enough of them.
            hand = np.lexsort((rng.random(len(left)), -left))[: self.classes_per_site]
            left[hand] -= 1
            dealt.append(np.concatenate([slices[label][left[label]] for label in hand]))
        return dealt

    def _holders(self, class_counts: list[int], sites: int, rng: np.random.Generator) -> NDArray[np.int_]:
        """How many sites hold each class: as even as its rows allow, and at least one."""
        classes, places = len(class_counts), sites * self.classes_per_site
        if self.classes_per_site > classes:
            raise ConfigError(
                f"Pathological: classes_per_site is {self.classes_per_site}, but there are {classes} classes; lower it."
            )
        if places < classes:
            raise ConfigError(
                f"Pathological: {sites} sites with {self.classes_per_site} classes each cannot hold {classes} classes; "
                "use more sites or more classes per site."
            )
        most = np.minimum(class_counts, sites)
        if most.sum() < places:
            raise ConfigError(
                f"Pathological: the classes have too few rows for {sites} sites with {self.classes_per_site} each; "
                "use fewer sites, fewer classes per site or more private rows."
            )
        holders = np.ones(classes, dtype=np.int_)
        while (missing := places - holders.sum()) > 0:
            can_have_more = rng.permutation(np.flatnonzero(holders < most))
            holders[can_have_more[:missing]] += 1
        return holders


@dataclass(frozen=True)
class ByColumn(Partition):
    """One site per value of a column, e.g. the hospital a case comes from; sites are sorted by value.

    The column is a name in a DataFrame, or an index into the columns of an array. It is removed from the features
    unless `drop` is False.
    """

    column: str | int
    drop: bool = True

    def deal(self, y: Codes, sites: int, rng: np.random.Generator, X: Any) -> list[Rows]:
        column = self._column(X)
        if len(column) != len(y):
            raise ConfigError(f"ByColumn: X has {len(column)} rows and y has {len(y)} labels; give one label per row.")
        return [np.flatnonzero(column == value) for value in self._values(X)]

    def count_sites(self, sites: int | None, X: Any) -> int:
        values = len(self._values(X))
        if sites is not None and check(PositiveInt, sites, "sites") != values:
            raise ConfigError(
                f"sites: {sites} sites were asked for, but column {self.column!r} has {values} values; leave sites out."
            )
        return values

    def site_names(self, sites: int, X: Any) -> list[str]:
        return [str(value) for value in self._values(X)]

    def features(self, X: Table) -> Table:
        if not self.drop:
            return X
        if isinstance(X, pd.DataFrame):
            return X.drop(columns=[self.column])
        others = np.delete(np.arange(n_columns(X)), self._position(X))
        kept: Table = X[:, others]
        return kept

    def _values(self, X: Any) -> list[Any]:
        column = self._column(X)
        missing = int(pd.isna(column).sum())
        if missing:
            raise ConfigError(
                f"ByColumn: column {self.column!r} has {missing} missing values; fill them, or leave those rows out."
            )
        try:
            return sorted(set(column))
        except TypeError:
            raise ConfigError(
                f"ByColumn: the values of column {self.column!r} cannot be sorted; convert them to one type, e.g. text."
            ) from None

    def _column(self, X: Any) -> NDArray[Any]:
        if X is None:
            raise ConfigError(f"ByColumn: column {self.column!r} is looked up in X, but no X was given.")
        table = as_table(X, "X")
        if isinstance(table, pd.DataFrame):
            return self._frame_column(table)
        position = self._position(table)
        column = table[:, [position]].toarray().ravel() if sparse.issparse(table) else table[:, position]
        return np.asarray(column, dtype=object)

    def _frame_column(self, X: pd.DataFrame) -> NDArray[Any]:
        named = [position for position, name in enumerate(X.columns) if name == self.column]
        if not named:
            hint = nearest(str(self.column), map(str, X.columns))
            raise ConfigError(f"ByColumn: X has no column {self.column!r}.{hint} Give the name of one of its columns.")
        if len(named) > 1:
            raise ConfigError(f"ByColumn: X has {len(named)} columns named {self.column!r}; rename them.")
        return X.iloc[:, named[0]].to_numpy(dtype=object)

    def _position(self, X: Any) -> int:
        if X.ndim != 2:
            raise ConfigError(f"ByColumn: X has {X.ndim} dimensions, so it has no columns; give a two-dimensional X.")
        if isinstance(self.column, str) or not 0 <= self.column < n_columns(X):
            raise ConfigError(
                f"ByColumn: the columns of X have no names, so column must be an integer from 0 to {n_columns(X) - 1}, "
                f"not {self.column!r}."
            )
        return self.column


def _dirichlet(rows: Rows, y: Codes, sites: int, alpha: float, rng: np.random.Generator, *, capped: bool) -> list[Rows]:
    sizes, deals = np.zeros(sites), []
    by_class = _rows_by_class(rows, y, rng)
    for part in sorted(by_class, key=len) if capped else by_class:
        shares = rng.dirichlet(np.full(sites, alpha))
        if capped and (open_shares := shares * (sizes < len(rows) / sites)).any():
            shares = open_shares
        deals.append(_cut(part, shares))
        sizes += [len(piece) for piece in deals[-1]]
    return _join(deals, sites)


def _draw_until(partition: Partition, min_size: int, draw: Callable[[], list[Rows]], most: int) -> list[Rows]:
    smallest = 0
    for _ in range(most):
        parts = draw()
        size = min(len(part) for part in parts)
        if size >= min_size:
            return parts
        smallest = max(smallest, size)
    raise ConfigError(
        f"{partition}: in {most:,} draws some site always had fewer than {min_size} rows "
        f"(at best {smallest}); use a larger alpha, fewer sites or more private rows."
    )


def _rows_by_class(rows: Rows, y: Codes, rng: np.random.Generator) -> list[Rows]:
    """The rows of each class present, in random order."""
    shuffled = rng.permutation(rows)
    return [shuffled[y[shuffled] == label] for label in np.unique(y[rows])]


def _cut(rows: Rows, shares: NDArray[np.float64]) -> list[Rows]:
    """The rows in consecutive pieces, with lengths proportional to the shares."""
    ends = np.cumsum(shares)
    return np.split(rows, np.rint(ends[:-1] / ends[-1] * len(rows)).astype(np.intp))


def _join(deals: Iterable[list[Rows]], sites: int) -> list[Rows]:
    """Per site, the concatenation of the pieces it got in each deal."""
    nothing = [np.zeros(0, dtype=np.intp)] * sites
    return [np.concatenate(pieces) for pieces in zip(nothing, *deals, strict=True)]


def _balance(
    matrix: NDArray[np.float64], row_sums: NDArray[np.float64], column_sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The matrix, rows and columns scaled alternately until it has these sums."""
    for _ in range(MAX_BALANCING_ROUNDS):
        matrix = matrix * (row_sums / matrix.sum(axis=1))[:, np.newaxis]
        matrix = matrix * (column_sums / matrix.sum(axis=0))
        if np.abs(matrix.sum(axis=1) - row_sums).max() < BALANCED_WITHIN_ROWS:
            break
    return matrix
