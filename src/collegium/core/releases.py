"""Everything that may leave a site, as types.

A release's fields are plain data: numbers, strings, arrays, labels. Never objects, never code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Labels, code_dtype
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
    holds_data: ClassVar[bool] = True
    """Whether it depends on the site's data in any way; False only for fresh keys and the like."""
    never_protected: ClassVar[bool] = False
    """Made from private rows directly, however the site's model was trained."""
    fixed: ClassVar[bool] = False
    """Whether its arrays cannot be changed where it is read: large ones are then not copied."""
    masked_only: ClassVar[bool] = False
    """Whether it leaves a site only as a summand of a masked sum: what protects it is in the sum alone."""
    coordinator_learns: ClassVar[str | None] = None
    """What a coordinator that does not collude with a site learns from it, where cryptography hides the rest."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__
        KINDS[cls.kind] = cls

    def to_plain(self) -> dict[str, Any]:
        """The fields, as plain data for the wire."""
        return {name: getattr(self, name) for name in self._names()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Build from fields that came over the wire; anything unexpected is refused."""
        if set(plain) != set(cls._names()):
            raise WireError(f"{cls.kind}: expected the fields {list(cls._names())}.")
        return cls(**plain)

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return _names_of(cls)  # type: ignore[arg-type]  # mypy takes the class for one of its instances

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int | None:
        """How many bytes its arrays and labels can have in a study; None where that depends on a model or on rows.

        Nothing larger is read.
        """
        return None

    def check(self, n_classes: int, public_size: int | None) -> None:
        """Refuse contents that do not fit the study (WireError); a site may send anything."""

    def require(self, holds: bool, expected: str) -> None:
        """Refuse this release unless a condition of it holds."""
        if not holds:
            raise WireError(f"{self.kind}: expected {expected}.")

    def require_size(self, samples: int, classes: int, n_classes: int, public_size: int | None) -> None:
        """Refuse anything but an entry for every public sample and class of the study."""
        self.require(classes == n_classes, "the classes of this study")
        self.require(public_size in (None, samples), "as many rows as the public set has")

    @classmethod
    def empty_sum(cls, parties: int) -> Sum:
        """What `total` adds releases of this kind to; a WireError for kinds that cannot be summed."""
        raise WireError(f"Releases of kind {cls.kind} cannot be summed: use fed.ask instead of fed.total.")


@lru_cache(maxsize=256)
def _names_of(kind: type[Release]) -> tuple[str, ...]:
    """The names of its fields, which are asked for with every release."""
    return tuple(each.name for each in fields(kind))


@dataclass(frozen=True)
class Nothing(Release):
    """The step finished; nothing else is released."""

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return 0


@dataclass(frozen=True)
class HardLabels(Release):
    """One class per public sample, or an abstention. Summed, they become votes."""

    labels: Labels

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return public_size * np.dtype(code_dtype(n_classes)).itemsize

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(isinstance(self.labels, Labels), "labels")
        self.require_size(len(self.labels), self.labels.n_classes, n_classes, public_size)

    @classmethod
    def empty_sum(cls, parties: int) -> VoteSum:
        return VoteSum(parties)


@dataclass(frozen=True)
class ApprovalBits(Release):
    """Which classes a site approves for each public sample, any number of them, as packed bits. Made by noise."""

    bits: NDArray[np.uint8]
    samples: int
    classes: int

    @classmethod
    def from_bits(cls, bits: NDArray[np.bool_]) -> ApprovalBits:
        """From truth values of shape (samples, classes)."""
        return cls(np.packbits(bits, axis=None), *bits.shape)

    def to_bits(self) -> NDArray[np.bool_]:
        """As truth values of shape (samples, classes)."""
        flat = np.unpackbits(self.bits, count=self.samples * self.classes)
        return flat.view(np.bool_).reshape(self.samples, self.classes)

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return -(-public_size * n_classes // 8)

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(is_count(self.samples) and is_count(self.classes), "integers for samples and classes")
        self.require_size(self.samples, self.classes, n_classes, public_size)
        used = self.samples * self.classes
        packed = isinstance(self.bits, np.ndarray) and self.bits.dtype == np.uint8
        self.require(packed and self.bits.shape == (-(-used // 8),), "a bit per sample and class")
        self.require(not used % 8 or not int(self.bits[-1]) & (0xFF >> used % 8), "zeros after the last bit")

    @classmethod
    def empty_sum(cls, parties: int) -> VoteSum:
        return VoteSum(parties, approvals=True)


class VoteSum:
    """Votes per class and public sample, or how many sites approve of it; nothing of a single site is kept."""

    def __init__(self, parties: int, *, approvals: bool = False) -> None:
        self._parties = parties
        self._approvals = approvals
        self._tally: Tally | None = None
        self.voters = 0
        self.n_classes = 0

    def add_release(self, release: HardLabels | ApprovalBits) -> None:
        """Count one site's votes or approvals."""
        if isinstance(release, HardLabels):
            self._tally_for(len(release.labels), release.labels.n_classes).add(release.labels.codes)
        else:
            self._tally_for(release.samples, release.classes).add_approvals(release.to_bits())
        self.voters += 1

    def add_counts(self, counts: NDArray[np.unsignedinteger[Any]], voters: int) -> None:
        """Count votes that were summed already, of that many sites."""
        self._tally_for(counts.shape[1], len(counts)).add_counts(counts, voters, approvals=self._approvals)
        self.voters += voters

    @property
    def tally(self) -> Tally:
        """All votes counted so far."""
        if self._tally is None:
            raise WireError("No site has voted.")
        return self._tally

    def _tally_for(self, n_samples: int, n_classes: int) -> Tally:
        if self._tally is None:
            self.n_classes = n_classes
            self._tally = Tally(n_samples, n_classes, self._parties)
        if (n_classes, n_samples) != self._tally.counts.shape:
            raise WireError("A site's labels do not fit those of the others in number or classes.")
        return self._tally


@dataclass(frozen=True)
class Count(Release):
    """How many private samples a site has. One record more or less changes it, and nothing protects it."""

    never_protected: ClassVar[bool] = True
    samples: int

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return 0

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(is_count(self.samples), "an integer of at least 0")


@dataclass(frozen=True)
class VoteCounts(Release):
    """How many of a site's own models vote for each class, per public sample."""

    counts: NDArray[np.integer[Any]] | NDArray[np.floating[Any]]

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return public_size * n_classes * 8

    def check(self, n_classes: int, public_size: int | None) -> None:
        counts = self.counts
        numbers = isinstance(counts, np.ndarray) and counts.ndim == 2 and counts.dtype.kind in "iuf"
        self.require(numbers, "a number per sample and class")
        self.require_size(len(counts), counts.shape[1], n_classes, public_size)
        self.require(bool((np.isfinite(counts) & (counts >= 0)).all()), "finite numbers of at least 0")


@dataclass(frozen=True)
class AnswerCounts(Release):
    """How often a site's learner gave each answer (column) to rows of each class (row) of its own that it had not seen.

    Made from private rows, and nothing protects it.
    """

    never_protected: ClassVar[bool] = True
    counts: NDArray[np.int64]

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return n_classes * n_classes * 8

    def check(self, n_classes: int, public_size: int | None) -> None:
        whole = isinstance(self.counts, np.ndarray) and self.counts.dtype == np.int64
        self.require(whole and self.counts.shape == (n_classes, n_classes), "a whole number per class and answer")
        self.require(bool((self.counts >= 0).all() and self.counts.sum() < 1 << 53), "counts of at least 0")


@dataclass(frozen=True)
class Numbers(Release):
    """An array of numbers. Their sum is that of all sites' arrays."""

    values: NDArray[np.float64]

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(isinstance(self.values, np.ndarray) and self.values.dtype == np.float64, "an array of float64")
        self.require(bool(np.isfinite(self.values).all()), "finite numbers")

    @classmethod
    def empty_sum(cls, parties: int) -> NumberSum:
        return NumberSum(parties)


class NumberSum:
    """The sum of arrays, the same to the last bit in whatever order sites answer."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrays: list[NDArray[np.float64]] = []

    @property
    def voters(self) -> int:
        """How many sites were added."""
        return len(self._arrays)

    def add_release(self, release: Numbers) -> None:
        """Add one site's numbers."""
        if self.voters >= self._parties:
            raise ValueError(f"This sum is for {self._parties} sites; there is no room for one more.")
        if self._arrays and release.values.shape != self._arrays[0].shape:
            raise WireError("A site's numbers do not fit those of the others in shape.")
        self._arrays.append(release.values)

    @property
    def values(self) -> NDArray[np.float64]:
        """The sum so far."""
        if not self._arrays:
            raise WireError("No site has sent numbers.")
        # Floating-point sums depend on the order: smallest first, whoever was first.
        return np.asarray(np.sort(np.stack(self._arrays), axis=0).sum(axis=0))


@dataclass(frozen=True)
class Counts(Release):
    """How many of a site's private rows lie in each of a number of cells. They leave with noise only."""

    masked_only: ClassVar[bool] = True
    counts: NDArray[np.int64]

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(_are_whole(self.counts) and bool((self.counts >= 0).all()), "whole numbers of at least 0")


@dataclass(frozen=True)
class NoisyCounts(Release):
    """Such counts with a share of noise, to be summed over at least `fewest` sites: only their sum has enough of it."""

    masked_only: ClassVar[bool] = True
    counts: NDArray[np.int64]
    fewest: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(_are_whole(self.counts) and is_count(self.fewest, 1), "whole numbers, and how many sites at least")


@dataclass(frozen=True)
class Spellings(Release):
    """Values that a site's rows have, each spelled in whole numbers (a row) and put in several of `size` places."""

    masked_only: ClassVar[bool] = True
    words: NDArray[np.uint64]
    places: NDArray[np.int64]
    size: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        tables = (self.words.ndim, self.words.dtype.kind) == (2, "u") and self.places.ndim == 2
        self.require(tables and len(self.words) == len(self.places), "a row of words and places for every value")
        inside = is_count(self.size, 1) and bool(((self.places >= 0) & (self.places < self.size)).all())
        self.require(inside, "places that there are")


@dataclass(frozen=True)
class BlindedSpellings(Release):
    """Such values times a random number each, place by place: a sum says what is spelled, not how many sites spell."""

    masked_only: ClassVar[bool] = True
    words: NDArray[np.uint64]

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require((self.words.ndim, self.words.dtype) == (1, np.dtype(np.uint64)), "words of 64 bits")


@dataclass(frozen=True)
class SharedModels(Release):
    """Fitted models in a format of numbers and text only: weights, XGBoost's JSON or LightGBM's text. Never a pickle.

    Each model is ``{"codes": the classes it knows, "parts": its arrays by name}``; one that knows a single class has no
    parts.
    """

    format: str
    models: list[dict[str, Any]]

    def check(self, n_classes: int, public_size: int | None) -> None:
        models = isinstance(self.models, list) and bool(self.models)
        self.require(isinstance(self.format, str) and models, "a format and a list of models")
        for model in self.models:
            self.require(isinstance(model, dict) and set(model) == {"codes", "parts"}, "models of codes and parts")
            codes, parts = model["codes"], model["parts"]
            whole = isinstance(codes, np.ndarray) and codes.ndim == 1 and codes.dtype.kind in "iu" and codes.size > 0
            self.require(whole and codes.min() >= 0 and codes.max() < n_classes, "classes of this study")
            self.require(bool((np.diff(codes.astype(int)) > 0).all()), "classes in their order, each once")
            arrays = isinstance(parts, dict) and all(isinstance(part, np.ndarray) for part in parts.values())
            self.require(arrays, "parts that are arrays")


@dataclass(frozen=True)
class RawRecords(Release):
    """A site's private data itself: only ever in a simulation, for the pooled upper bound."""

    simulation_only: ClassVar[bool] = True
    header: dict[str, Any]
    columns: dict[str, NDArray[np.generic]]
    codes: NDArray[np.generic]

    def check(self, n_classes: int, public_size: int | None) -> None:
        table = isinstance(self.header, dict) and isinstance(self.columns, dict)
        self.require(table and isinstance(self.codes, np.ndarray), "a table and its class codes")


def _are_whole(counts: object) -> bool:
    return isinstance(counts, np.ndarray) and counts.ndim == 1 and counts.dtype == np.int64


def is_count(value: object, least: int = 0) -> bool:
    """Is this a plain whole number of at least that much, and no truth value?"""
    return type(value) is int and value >= least
