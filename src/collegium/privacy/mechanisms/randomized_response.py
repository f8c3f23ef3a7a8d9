"""k-ary randomized response: the true label, or sometimes another one."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from collegium.core.labels import Codes, Labels, code_dtype
from collegium.core.releases import HardLabels, Release
from collegium.core.settings import TwoOrMore, checked
from collegium.privacy import events
from collegium.privacy.mechanisms.labels import PerLabelMechanism, true_codes
from collegium.privacy.noise import Noise, NoiseSource, noise_source


class RandomizedResponse(PerLabelMechanism):
    """Every label is kept with probability e^epsilon / (e^epsilon + C - 1), else replaced by another, uniformly.

    Its settings are those of :class:`~collegium.privacy.mechanisms.labels.PerLabelMechanism`.
    """

    name: ClassVar[str] = "randomized_response"
    gives: ClassVar[type[Release]] = HardLabels

    @checked
    def keep_probability(self, n_classes: TwoOrMore) -> float:
        """The probability that a label is kept."""
        return 1 / (1 + (n_classes - 1) * math.exp(-self.per_label))

    def release(self, labels: Labels | ArrayLike, n_classes: int, rng: NoiseSource = None) -> Codes:
        """Noisy labels: one class code per sample. `rng`: see `NoiseSource`."""
        codes = true_codes(type(self).__name__, labels, n_classes)
        noise = noise_source(rng)
        kept = noise.happens(self.keep_probability(n_classes), len(codes))
        other = (codes + 1 + noise.below(n_classes - 1, len(codes))) % n_classes
        return np.where(kept, codes, other).astype(code_dtype(n_classes))

    def apply(self, release: Any, noise: Noise) -> HardLabels:
        labels: Labels = release.labels
        return HardLabels(Labels(self.release(labels, labels.n_classes, noise), labels.n_classes))

    def label_events(self, changes: int, release_size: int, n_classes: int) -> tuple[events.Event, ...]:
        return (events.RandomizedResponse(changes, self.per_label, n_classes),)
