"""Canaries: records whose presence at a site is decided by a coin, and which an attacker then tries to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.site import Site
from collegium.errors import ConfigError, SiteError, StorageError
from collegium.site.ledger import storage_errors
from collegium.wire import tables

CanaryKind = Literal["ordinary", "mislabelled", "out_of_distribution", "duplicated"]
KINDS: Final[dict[str, str]] = {
    "ordinary": "records of the site as they are",
    "mislabelled": "records of the site with another class's label",
    "out_of_distribution": "rows whose columns come from different records, with a random label",
    "duplicated": "mislabelled records that are there four times or not at all",
}
FEWEST: Final = 20
"""With fewer canaries no attack shows anything."""
_COPIES: Final = 4


@dataclass(frozen=True, eq=False)
class Canaries:
    """Rows with labels, each in or out of a site by a coin."""

    X: Any
    y: NDArray[Any]
    """The labels that they have if they are there."""
    truth: NDArray[Any]
    """The labels of the records that they were made from."""
    kinds: NDArray[np.str_]
    codes: NDArray[np.int64]
    """`y` as positions among the study's classes."""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def single(self) -> NDArray[np.bool_]:
        """Those that are one record: a claim about one record says nothing of several."""
        return np.asarray(self.kinds != "duplicated")

    def present(self, coins: NDArray[np.bool_]) -> tuple[Any, NDArray[Any]]:
        """The records that are there, for coins that are up."""
        rows = np.repeat(np.flatnonzero(coins), np.where(self.single, 1, _COPIES)[coins])
        return tables.take(self.X, rows), self.y[rows]

    def absent(self, coins: NDArray[np.bool_]) -> tuple[Any, NDArray[Any]]:
        """What stands in the place of the others, where records are replaced: what they were made from."""
        rows = np.flatnonzero(~coins)
        return tables.take(self.X, rows), self.truth[rows]

    def in_words(self) -> dict[str, int]:
        """How many of each kind, without any of their values."""
        return {str(kind): int(np.count_nonzero(self.kinds == kind)) for kind in dict.fromkeys(self.kinds.tolist())}


def make_canaries(
    site: Site, classes: NDArray[Any], number: int, kinds: Mapping[str, float], rng: np.random.Generator
) -> tuple[Canaries, Site]:
    """Canaries made from some of a site's records, and the site with the others.

    `kinds` are the shares of each kind. At most half of the records become canaries of other kinds than ordinary: the
    model would be one of canaries.
    """
    shares = _shares(kinds)
    most = int(min(len(site), len(site) / 2 / max(1e-9, 1 - shares.get("ordinary", 0.0))))
    if most < FEWEST:
        raise SiteError(
            site.name,
            f"with {len(site)} records it is too small for an audit: {2 * FEWEST} are needed, half of which become "
            "canaries. Audit a site with more records, or all sites' records as one site.",
        )
    drawn = rng.permutation(len(site))
    chosen, kept = drawn[: min(number, most)], np.sort(drawn[min(number, most) :])
    X, truth = tables.take(site.X, chosen), site.y[chosen]
    named = _kinds(shares, len(chosen), rng)
    y = truth.copy()
    flipped = named != "ordinary"
    y[flipped] = [rng.choice(classes[classes != label]) for label in truth[flipped]] if len(classes) > 1 else y[flipped]
    strange = np.flatnonzero(named == "out_of_distribution")
    if len(strange):
        X = _mixed(X, strange, rng, site.name)
    codes = np.searchsorted(classes, y).astype(np.int64)
    return Canaries(X, y, truth, named, codes), replace(site, X=tables.take(site.X, kept), y=site.y[kept])


def write_canaries(canaries: Canaries, coins: NDArray[np.bool_], scores: NDArray[np.float64], path: Path) -> None:
    """A CSV file for the site's owner alone: every canary, whether it was there, and how it was scored."""
    X = canaries.X.toarray() if hasattr(canaries.X, "toarray") else canaries.X
    frame = X.reset_index(drop=True) if isinstance(X, pd.DataFrame) else pd.DataFrame(X.reshape(len(X), -1))
    told = {"its label": canaries.y, "its kind": canaries.kinds, "was there": coins, "score": scores}
    with storage_errors(path, StorageError):
        path.unlink(missing_ok=True)  # a file that others could read would stay so
        path.touch(mode=0o600)
        frame.assign(**told).to_csv(path, index=False)


def _shares(kinds: Mapping[str, float]) -> dict[str, float]:
    """Shares that add up to 1."""
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown or not kinds or min(kinds.values()) < 0 or not sum(kinds.values()) > 0:
        what = f"unknown: {', '.join(unknown)}" if unknown else "shares must be at least 0, and some above it"
        raise ConfigError(f"audit: kinds of canaries are {', '.join(KINDS)}; {what}.")
    return {kind: share / sum(kinds.values()) for kind, share in kinds.items()}


def _kinds(shares: Mapping[str, float], number: int, rng: np.random.Generator) -> NDArray[np.str_]:
    edges = np.round(np.cumsum(list(shares.values())) * number).astype(int)
    named = np.repeat(list(shares), np.diff(edges, prepend=0))
    return np.asarray(rng.permutation(named))


def _mixed(X: Any, rows: NDArray[np.intp], rng: np.random.Generator, name: str) -> Any:
    """The same table, with each column of these rows taken from other rows of the table."""
    if isinstance(X, pd.DataFrame):
        mixed = X.copy()
        for place in range(X.shape[1]):
            source = rng.integers(len(X), size=len(rows))
            mixed.iloc[rows, place] = X.iloc[source, place].to_numpy()
        return mixed
    if isinstance(X, np.ndarray):
        flat = X.reshape(len(X), -1).copy()
        flat[rows] = flat[rng.integers(len(X), size=(len(rows), flat.shape[1])), np.arange(flat.shape[1])]
        return flat.reshape(X.shape)
    raise SiteError(name, "canaries out of distribution need an array or a DataFrame: choose another kind.")
