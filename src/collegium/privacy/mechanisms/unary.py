"""Unary encoding: a label as one-hot bits, each flipped at random."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from collegium.core.labels import Codes, Labels
from collegium.core.releases import ApprovalBits, Release
from collegium.privacy import events
from collegium.privacy.mechanisms.labels import PerLabelMechanism, true_codes
from collegium.privacy.noise import Noise, NoiseSource, noise_source

# Every bit takes a random word of 64: flip a few megabytes of words at a time.
_BITS_AT_A_TIME: Final = 1 << 20


class UnaryEncoding(PerLabelMechanism):
    """A label's one-hot bits, each flipped with probability 1 / (1 + e^(epsilon/2)).

    A changed label changes two bits, so each of them may cost half of `epsilon`. The release holds approvals: a sample
    may have several classes or none, and the consensus counts them (never the first bit that is set).

    Its settings are those of :class:`~collegium.privacy.mechanisms.labels.PerLabelMechanism`.
    """

    name: ClassVar[str] = "unary_encoding"
    gives: ClassVar[type[Release]] = ApprovalBits

    @property
    def flip_probability(self) -> float:
        """The probability that a bit is flipped."""
        return float(expit(-self.per_label / 2))

    def release(self, labels: Labels | ArrayLike, n_classes: int, rng: NoiseSource = None) -> NDArray[np.bool_]:
        """Noisy bits of shape (samples, classes). `rng`: see `NoiseSource`."""
        codes = true_codes(type(self).__name__, labels, n_classes)
        return flipped(one_hot(codes, n_classes), self.flip_probability, noise_source(rng))

    def apply(self, release: Any, noise: Noise) -> ApprovalBits:
        return ApprovalBits.from_bits(self.release(release.labels, release.labels.n_classes, noise))

    def label_events(self, changes: int, release_size: int, n_classes: int) -> tuple[events.Event, ...]:
        return (events.RandomizedResponse(2 * changes, self.per_label / 2),)


def one_hot(codes: Codes, n_classes: int) -> NDArray[np.bool_]:
    """One row per label, with one bit set."""
    bits = np.zeros((len(codes), n_classes), dtype=np.bool_)
    bits[np.arange(len(codes)), codes] = True
    return bits


def flipped(bits: NDArray[np.bool_], probability: float, noise: Noise) -> NDArray[np.bool_]:
    """`bits`, each flipped independently, in place."""
    flat = bits.reshape(-1)
    for start in range(0, flat.size, _BITS_AT_A_TIME):
        part = flat[start : start + _BITS_AT_A_TIME]
        part ^= noise.happens(probability, part.size)
    return bits
