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
    holds_data: ClassVar[bool] = True
    """Whether it is made of anything that a site knows of its data; False only for fresh keys and the like."""
    never_protected: ClassVar[bool] = False
    """Made from private rows that no private learner stands before, however the site's model was trained."""
    coordinator_learns: ClassVar[str | None] = None
    """What a coordinator that sides with no site gets to know from it, where cryptography hides the rest."""

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

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not (type(self.samples) is type(self.classes) is int and self.samples >= 0 and self.classes > 0):
            raise WireError("ApprovalBits of no number of samples or classes.")
        if self.classes != n_classes or (public_size is not None and self.samples != public_size):
            raise WireError("ApprovalBits of other classes, or of another number of public samples.")
        used = self.samples * self.classes
        packed = isinstance(self.bits, np.ndarray) and self.bits.dtype == np.uint8
        if not packed or self.bits.shape != (-(-used // 8),):
            raise WireError("ApprovalBits that are not as many bits as they say.")
        if used % 8 and int(self.bits[-1]) & (0xFF >> used % 8):
            raise WireError("ApprovalBits with something in the bits that stand for nothing.")

    @classmethod
    def empty_sum(cls, parties: int) -> ApprovalSum:
        return ApprovalSum(parties)


class _TallySum:
    """Votes per class and public sample; nothing of a single site is kept."""

    _approvals: ClassVar[bool] = False

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._tally: Tally | None = None
        self.voters = 0
        self.n_classes = 0

    def _tally_for(self, n_samples: int, n_classes: int) -> Tally:
        if self._tally is None:
            self.n_classes = n_classes
            self._tally = Tally(n_samples, n_classes, self._parties)
        if (n_classes, n_samples) != self._tally.counts.shape:
            raise WireError("A site's labels do not fit those of the others in number or classes.")
        return self._tally

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


class VoteSum(_TallySum):
    """The number of votes per class and public sample; no site's own labels are kept."""

    def add_release(self, release: HardLabels) -> None:
        """Count one site's votes."""
        labels = release.labels
        self._tally_for(len(labels), labels.n_classes).add(labels.codes)
        self.voters += 1


class ApprovalSum(_TallySum):
    """The number of sites that approve each class, per public sample; no site's own approvals are kept."""

    _approvals: ClassVar[bool] = True

    def add_release(self, release: ApprovalBits) -> None:
        """Count one site's approvals."""
        self._tally_for(release.samples, release.classes).add_approvals(release.to_bits())
        self.voters += 1


@dataclass(frozen=True)
class Count(Release):
    """How many private samples a site has."""

    samples: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 0:
            raise WireError("A Count that is no whole number.")


@dataclass(frozen=True)
class VoteCounts(Release):
    """How many of a site's own models vote for each class, per public sample."""

    counts: NDArray[np.integer[Any]] | NDArray[np.floating[Any]]

    def check(self, n_classes: int, public_size: int | None) -> None:
        counts = self.counts
        if not isinstance(counts, np.ndarray) or counts.ndim != 2 or counts.dtype.kind not in "iuf":
            raise WireError("VoteCounts that are no numbers per sample and class.")
        if counts.shape[1] != n_classes or (public_size is not None and len(counts) != public_size):
            raise WireError("VoteCounts of other classes, or of another number of public samples.")
        if not (np.isfinite(counts) & (counts >= 0)).all():
            raise WireError("VoteCounts below 0, or that are no numbers.")


@dataclass(frozen=True)
class Numbers(Release):
    """An array of numbers. Their sum is that of all sites' arrays."""

    values: NDArray[np.float64]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.values, np.ndarray) or self.values.dtype != np.float64:
            raise WireError("Numbers that are no array of 64-bit floating-point numbers.")
        if not np.isfinite(self.values).all():
            raise WireError("Numbers that are infinite or none at all.")

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
            raise ValueError(f"This sum was made for {self._parties} sites; there is no room for one more.")
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
class SharedModels(Release):
    """Fitted models in a format of numbers and text only: weights, XGBoost's JSON or LightGBM's text. Never a pickle.

    Each model is ``{"codes": the classes it knows, "parts": its arrays by name}``; one that knows a single class has no
    parts.
    """

    format: str
    models: list[dict[str, Any]]

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.format, str) or not isinstance(self.models, list) or not self.models:
            raise WireError("SharedModels without a format, or without models.")
        for model in self.models:
            if not isinstance(model, dict) or set(model) != {"codes", "parts"} or not isinstance(model["parts"], dict):
                raise WireError("SharedModels with a model that is none.")
            codes = model["codes"]
            whole = isinstance(codes, np.ndarray) and codes.ndim == 1 and codes.dtype.kind in "iu" and codes.size > 0
            if not whole or codes.min() < 0 or codes.max() >= n_classes or (np.diff(codes.astype(int)) <= 0).any():
                raise WireError("SharedModels of other classes.")
            if not all(isinstance(part, np.ndarray) for part in model["parts"].values()):
                raise WireError("SharedModels with something else than arrays.")


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
