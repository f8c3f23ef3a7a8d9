"""Releases of cryptographic protocols: keys, letters that the coordinator cannot read, shares and masked sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import Release
from collegium.errors import WireError


@dataclass(frozen=True)
class Greeting(Release):
    """A site's fresh key for one circle, signed, in hexadecimal."""

    holds_data: ClassVar[bool] = False
    key: str
    signature: str

    def check(self, n_classes: int, public_size: int | None) -> None:
        for text, size in ((self.key, 32), (self.signature, 64)):
            if not isinstance(text, str) or len(text) != 2 * size or set(text) - set("0123456789abcdef"):
                raise WireError("A Greeting without a key or a signature.")


@dataclass(frozen=True)
class Met(Release):
    """The site has agreed on keys with the others; `faults` are those that were not who they said."""

    holds_data: ClassVar[bool] = False
    faults: list[str]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _are_names(self.faults):
            raise WireError("Met with faults that are not names.")


@dataclass(frozen=True)
class Letters(Release):
    """Sealed envelopes for other sites, by their names, and the sites whose letters this one could not accept."""

    coordinator_learns: ClassVar[str | None] = "who talks to whom and how many bytes, not what they say"
    letters: dict[str, NDArray[np.uint8]]
    faults: list[str]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _are_envelopes(self.letters):
            raise WireError("Letters that are not envelopes.")
        if not _are_names(self.faults):
            raise WireError("Letters with faults that are not names.")


@dataclass(frozen=True)
class Neighbourhood(Release):
    """How many of a site's points have labels (they come first), and the nearest of each among the site's own."""

    coordinator_learns: ClassVar[str | None] = (
        "how many points the site has and which of them are labeled, which of its own points are the nearest of each, "
        "and at which distance"
    )
    labelled: int
    columns: NDArray[np.int64]
    distances: NDArray[Any]

    def __len__(self) -> int:
        return len(self.columns)

    def check(self, n_classes: int, public_size: int | None) -> None:
        columns, distances = self.columns, self.distances
        if not _is_table(columns, 2, "iu") or not _is_table(distances, 2, "iu") or columns.shape != distances.shape:
            raise WireError("A Neighbourhood that is not a table of points and distances.")
        if not len(columns) or (columns.size and (columns.min() < 0 or columns.max() >= len(columns))):
            raise WireError("A Neighbourhood without points, or with neighbours that are not points of the site.")
        if type(self.labelled) is not int or not 0 <= self.labelled <= len(columns) or (distances < 0).any():
            raise WireError("A Neighbourhood with more labels than points, or with distances below 0.")

    def fits(self, bits: int, k: int) -> bool:
        """Whether these can be the k nearest others of each point, by sketches of so many bits."""
        if self.columns.shape[1] != min(k, len(self) - 1) or (self.distances > bits).any():
            return False
        ordered = np.sort(self.columns, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any()
        own = (self.columns == np.arange(len(self))[:, None]).any()
        return not (twice or own)


@dataclass(frozen=True)
class DistanceShares(Release):
    """A site's shares of its points' distances to those of others, by their names; random each by itself."""

    coordinator_learns: ClassVar[str | None] = (
        "the distance of every two points of different sites, and not their sketches"
    )
    shares: dict[str, Any]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.shares, dict):
            raise WireError("DistanceShares that are not by site.")


@dataclass(frozen=True)
class MaskedRows(Release):
    """What a site's labels say of the others' points, masked so that only sums mean anything, and only to the owner."""

    coordinator_learns: ClassVar[str | None] = "nothing but sizes: sums can be read by the owner of the points alone"
    rows: dict[str, NDArray[np.uint64]]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.rows, dict) or not all(_is_table(rows, 2, "u") for rows in self.rows.values()):
            raise WireError("MaskedRows that are not tables of masked numbers.")


@dataclass(frozen=True)
class MaskedVotes(Release):
    """A site's votes per class and public sample, masked so that only the sum over all sites means anything.

    With them go shares of the mask's key, sealed for the other sites, and what shares and key must hash to.
    """

    coordinator_learns: ClassVar[str | None] = "how many sites vote for each class, not which"
    counts: NDArray[np.unsignedinteger[Any]]
    letters: dict[str, NDArray[np.uint8]]
    digests: dict[str, str]
    key_digest: str

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _is_table(self.counts, 2, "u"):
            raise WireError("MaskedVotes that are not a table of classes and samples.")
        if len(self.counts) != n_classes or (public_size is not None and self.counts.shape[1] != public_size):
            raise WireError("MaskedVotes for other classes, or for another number of public samples.")
        _check_mask(self, self.letters, self.digests, self.key_digest)


@dataclass(frozen=True)
class MaskedCounts(Release):
    """A site's counts with its share of noise, masked so that only the sum over all sites means anything.

    With them go shares of the mask's key, sealed for the other sites, and what shares and key must hash to.
    """

    coordinator_learns: ClassVar[str | None] = "the noisy sum over all sites, and no site's counts"
    counts: NDArray[np.unsignedinteger[Any]]
    letters: dict[str, NDArray[np.uint8]]
    digests: dict[str, str]
    key_digest: str

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _is_table(self.counts, 1, "u"):
            raise WireError("MaskedCounts that are not a list of masked numbers.")
        _check_mask(self, self.letters, self.digests, self.key_digest)


@dataclass(frozen=True)
class MaskedWords(Release):
    """What a site spells of its values, blinded, and masked so that only the sum over all sites means anything.

    With it go shares of the mask's key, sealed for the other sites, and what shares and key must hash to.
    """

    coordinator_learns: ClassVar[str | None] = "values that many records of all sites have, not who has them"
    counts: NDArray[np.unsignedinteger[Any]]
    letters: dict[str, NDArray[np.uint8]]
    digests: dict[str, str]
    key_digest: str

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _is_table(self.counts, 1, "u"):
            raise WireError("MaskedWords that are not a list of masked numbers.")
        _check_mask(self, self.letters, self.digests, self.key_digest)


@dataclass(frozen=True)
class MaskShares(Release):
    """A site's shares of the masks on everybody's votes in one round, by the sites that drew them.

    None, where letters of `faults` could not be opened.
    """

    holds_data: ClassVar[bool] = False
    shares: dict[str, NDArray[np.uint8]]
    faults: list[str]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _are_envelopes(self.shares) or not _are_names(self.faults):
            raise WireError("MaskShares that are not shares, or with faults that are not names.")


@dataclass(frozen=True)
class OpenPoints(Release):
    """A site's points themselves, or their sketches, labeled ones first: only ever in a simulation."""

    simulation_only: ClassVar[bool] = True
    labelled: int
    points: NDArray[Any]

    def __len__(self) -> int:
        return len(self.points)

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not _is_table(self.points, 2, "uf") or type(self.labelled) is not int:
            raise WireError("OpenPoints that are not points.")
        if not 0 <= self.labelled <= len(self.points) or not np.isfinite(self.points).all():
            raise WireError("OpenPoints with more labels than points, or with values that are NaN or infinite.")


def _check_mask(release: Release, letters: object, digests: object, key_digest: object) -> None:
    if not _are_envelopes(letters) or not isinstance(digests, dict):
        raise WireError(f"{release.kind} without shares of their mask.")
    if not all(isinstance(text, str) and len(text) == 64 for text in (*digests.values(), key_digest)):
        raise WireError(f"{release.kind} whose mask has no digests.")


def _is_table(array: object, dimensions: int, kinds: str) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == dimensions and array.dtype.kind in kinds


def _are_envelopes(letters: object) -> bool:
    return isinstance(letters, dict) and all(
        _is_table(each, 1, "u") and each.dtype == np.uint8 for each in letters.values()
    )


def _are_names(parties: object) -> bool:
    return isinstance(parties, list) and all(isinstance(party, str) for party in parties)
