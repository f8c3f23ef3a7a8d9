"""Releases of methods that share more than labels: a net's weights, and class probabilities of the public set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import Release
from collegium.errors import ConfigError, WireError
from collegium.privacy.noise import Noise, to_grid

Arrays = dict[str, NDArray[np.float32]]
Shapes = dict[str, list[int]]
_FRACTION: Final = 2.0**32
LARGEST: Final = 2.0**20
"""What a soft label may be at most."""


@dataclass(frozen=True)
class Weights(Release):
    """A net's weights by name, and on how many private samples they were trained."""

    arrays: Arrays
    samples: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        if not isinstance(self.arrays, dict) or not self.arrays:
            raise WireError("Weights without arrays.")
        for value in self.arrays.values():
            if not isinstance(value, np.ndarray) or value.dtype != np.float32 or not np.isfinite(value).all():
                raise WireError("Weights that are no finite 32-bit numbers.")
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 0:
            raise WireError("Weights of no number of samples.")


@dataclass(frozen=True)
class TrainedWeights(Weights):
    """The same, with how far the training could have gone: its steps times its learning rate (SCAFFOLD's K x eta)."""

    reach: float

    def check(self, n_classes: int, public_size: int | None) -> None:
        super().check(n_classes, public_size)
        if not isinstance(self.reach, float) or not 0 < self.reach < math.inf:
            raise WireError("Weights whose training went nowhere.")


@dataclass(frozen=True)
class SoftLabels(Release):
    """One number per public sample and class: probabilities, or a net's outputs before the softmax."""

    values: NDArray[np.float32]

    def check(self, n_classes: int, public_size: int | None) -> None:
        _check_soft(self.values, n_classes)
        if public_size is not None and len(self.values) != public_size:
            raise WireError("SoftLabels of another number of public samples.")


@dataclass(frozen=True)
class SomeSoftLabels(Release):
    """The same of those public samples that the order named, in their order."""

    values: NDArray[np.float32]

    def check(self, n_classes: int, public_size: int | None) -> None:
        _check_soft(self.values, n_classes)
        if public_size is not None and len(self.values) > public_size:
            raise WireError("SomeSoftLabels of more samples than are public.")


def _check_soft(values: object, n_classes: int) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.ndim != 2:
        raise WireError("Soft labels are 32-bit numbers, one per sample and class.")
    if values.shape[1] != n_classes:
        raise WireError("Soft labels of other classes.")
    # Written so that NaN fails too.
    if not (np.abs(values) <= LARGEST).all():
        raise WireError("Soft labels are NaN, infinite or far too large.")


class SoftMean:
    """The mean of sites' soft labels; it keeps none of them.

    They are added up in fixed point, so that the mean is the same to the last bit in whatever order sites answer.
    """

    def __init__(self, samples: int, n_classes: int) -> None:
        self._sum = np.zeros((samples, n_classes), np.int64)
        self.parties = 0

    def add(self, release: SoftLabels | SomeSoftLabels) -> bool:
        """Take in one site's soft labels; False, and nothing is taken in, if they are of other samples."""
        if release.values.shape != self._sum.shape:
            return False
        self._sum += np.rint(release.values.astype(np.float64) * _FRACTION).astype(np.int64)
        self.parties += 1
        return True

    @property
    def values(self) -> NDArray[np.float64]:
        """The mean so far."""
        return self._sum / (_FRACTION * max(self.parties, 1))


def average(parts: Mapping[str, Weights], shares: Mapping[str, float]) -> Arrays:
    """The weighted mean of weights, added up in the order of `parts` so that it is the same bit for bit."""
    same_shapes({party: part.arrays for party, part in parts.items()})
    whole = sum(shares[party] for party in parts)
    if not whole > 0:
        raise ConfigError("The shares of an average add up to nothing.")
    first = next(iter(parts.values())).arrays
    mean = {name: np.zeros(value.shape, np.float64) for name, value in first.items()}
    for party, part in parts.items():
        for name, value in part.arrays.items():
            mean[name] += value.astype(np.float64) * (shares[party] / whole)
    return {name: value.astype(np.float32) for name, value in mean.items()}


def same_shapes(nets: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
    """An error that names two sites whose nets differ."""
    shapes = {party: shapes_of(net) for party, net in nets.items()}
    first, *others = shapes
    for other in others:
        if shapes[other] != shapes[first]:
            raise different_nets(first, other)


def different_nets(site: str, other: str) -> ConfigError:
    """What is raised where the nets of two sites should be averaged and cannot be."""
    return ConfigError(
        f"Weights can be averaged over one architecture only: the nets of sites {site!r} and {other!r} differ. Give "
        "both the same net, or use a method that shares labels: fedct, fedkt."
    )


def shapes_of(net: Mapping[str, NDArray[Any]]) -> Shapes:
    """The names and shapes of a net's weights."""
    return {name: list(value.shape) for name, value in net.items()}


def is_statistic(name: str) -> bool:
    """Is this a batch norm's running mean or variance? It is measured, not trained."""
    return name.rpartition(".")[2] in ("running_mean", "running_var")


def with_true_variances(arrays: Arrays) -> Arrays:
    """A batch norm's running variances raised to at least 0.

    Noise makes some negative, and then the net says nothing but NaN. To mend what is noisy already costs no privacy.
    """
    return {
        name: np.maximum(value, np.float32(0)) if name.rpartition(".")[2] == "running_var" else value
        for name, value in arrays.items()
    }


def clip(arrays: Mapping[str, NDArray[Any]], bound: float) -> dict[str, NDArray[np.float64]]:
    """All arrays together scaled down to a Euclidean norm of at most `bound`; numbers that are none count as 0."""
    finite = {name: np.nan_to_num(value.astype(np.float64), posinf=0.0, neginf=0.0) for name, value in arrays.items()}
    norm = math.sqrt(sum(float(np.square(value).sum()) for value in finite.values()))
    scale = bound / norm if norm > bound else 1.0
    return {name: value * scale for name, value in finite.items()}


def with_noise(arrays: Mapping[str, NDArray[Any]], sigma: float, noise: Noise) -> Arrays:
    """Gaussian noise on every number."""
    return {
        name: to_grid(value + noise.normal(sigma, value.shape), sigma).astype(np.float32)
        for name, value in arrays.items()
    }
