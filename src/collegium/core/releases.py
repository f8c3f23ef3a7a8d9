"""Everything that may leave a site, as types.

A release's fields are plain data: numbers, strings, arrays, labels. Never objects, never code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Labels
from collegium.core.tally import Tally
from collegium.errors import WireError

KINDS: dict[str, type[Release]] = {}


class Sum(Protocol):
    """What `Federation.total` hands out: it grows by one release at a time."""

    def add_release(self, release: Any) -> None: ...


@dataclass(frozen=True)
class Release:
    """A value that a site may send. The name of the class is its kind, in policies and ledgers."""

    kind: ClassVar[str]
    simulation_only: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__
        KINDS[cls.kind] = cls

    def to_plain(self) -> dict[str, Any]:
        """The fields, as plain data for the wire."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Build from fields that came over the wire; anything unexpected is refused."""
        if set(plain) != {f.name for f in fields(cls)}:
            raise WireError(f"A {cls.kind} has fields {[f.name for f in fields(cls)]}, not {sorted(plain)}.")
        return cls(**plain)

    def check(self, n_classes: int, public_size: int | None) -> None:
        """Refuse contents that do not fit the study (WireError); a site may send anything."""

    @classmethod
    def empty_sum(cls, parties: int) -> Sum:
        """Where `total` adds releases of this kind up; kinds that cannot be summed say so."""
        raise WireError(f"Releases of kind {cls.kind} cannot be summed: ask for them instead of their total.")


@dataclass(frozen=True)
class Nothing(Release):
    """The step finished; nothing is released but that fact."""


@dataclass(frozen=True)
class HardLabels(Release):
    """One class per public sample, or an abstention. Summed, they become votes."""

    labels: Labels

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.labels, Labels):
            raise WireError("HardLabels without labels.")
        if self.labels.n_classes != n_classes or (public_size is not None and len(self.labels) != public_size):
            raise WireError("HardLabels of other classes, or of another number of public samples.")

    @classmethod
    def empty_sum(cls, parties: int) -> VoteSum:
        return VoteSum(parties)


class VoteSum:
    """The number of votes per class and public sample; no site's own labels are kept."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._tally: Tally | None = None
        self.voters = 0
        self.n_classes = 0

    def add_release(self, release: HardLabels) -> None:
        """Count one site's votes."""
        labels = release.labels
        if self._tally is None:
            self.n_classes = labels.n_classes
            self._tally = Tally(len(labels), labels.n_classes, self._parties)
        if (labels.n_classes, len(labels)) != (self.n_classes, self._tally.counts.shape[1]):
            raise WireError("A site's labels do not fit those of the others in number or classes.")
        self._tally.add(labels.codes)
        self.voters += 1

    @property
    def tally(self) -> Tally:
        """All votes counted so far."""
        if self._tally is None:
            raise WireError("No site has voted.")
        return self._tally


@dataclass(frozen=True)
class Count(Release):
    """How many private samples a site has."""

    samples: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 0:
            raise WireError("A Count that is no whole number.")


@dataclass(frozen=True)
class RawRecords(Release):
    """A site's private data itself: only ever in a simulation, for the pooled upper bound."""

    simulation_only: ClassVar[bool] = True
    header: dict[str, Any]
    columns: dict[str, NDArray[np.generic]]
    codes: NDArray[np.generic]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not (
            isinstance(self.header, dict) and isinstance(self.columns, dict) and isinstance(self.codes, np.ndarray)
        ):
            raise WireError("RawRecords that are no table.")
