"""Releases of methods that share more than labels: a net's weights, and class probabilities of the public set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import Release, is_count
from collegium.errors import ConfigError
from collegium.privacy.noise import Noise

Arrays = dict[str, NDArray[np.float32]]
Shapes = dict[str, list[int]]
_FRACTION: Final = 2.0**32
_BLOCK: Final = 2**17
"""Numbers that are averaged at a time: so many that threads seldom wait for Python."""
_MANY: Final = 16
"""Blocks of all parties that are worth several threads."""
LARGEST: Final = 2.0**20
"""The largest absolute value of a soft label."""


@dataclass(frozen=True)
class Weights(Release):
    """A net's weights by name, and on how many private samples they were trained. Copy them before you change them."""

    fixed: ClassVar[bool] = True
    arrays: Arrays
    samples: int

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(isinstance(self.arrays, dict) and bool(self.arrays), "arrays by name")
        for value in self.arrays.values():
            self.require(isinstance(value, np.ndarray) and value.dtype == np.float32, "arrays of float32")
            self.require(bool(np.isfinite(value).all()), "finite weights")
        self.require(is_count(self.samples), "an integer of samples")


@dataclass(frozen=True)
class TrainedWeights(Weights):
    """The same, with how far the training could have gone: its steps times its learning rate (SCAFFOLD's K x eta)."""

    reach: float

    def check(self, n_classes: int, public_size: int | None) -> None:
        super().check(n_classes, public_size)
        self.require(isinstance(self.reach, float) and 0 < self.reach < math.inf, "a finite reach above 0")


@dataclass(frozen=True)
class SomeSoftLabels(Release):
    """One number per class, probabilities or a net's outputs before the softmax, for public samples that were named.

    They cannot be changed where they are read: copy them first.
    """

    fixed: ClassVar[bool] = True
    values: NDArray[np.float32]

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return public_size * n_classes * 4

    def check(self, n_classes: int, public_size: int | None) -> None:
        numbers = isinstance(self.values, np.ndarray) and self.values.dtype == np.float32 and self.values.ndim == 2
        self.require(numbers, "a float32 per sample and class")
        self.require(self.values.shape[1] == n_classes, "the classes of this study")
        self.require(public_size is None or len(self.values) <= public_size, "no more rows than the public set has")
        # Written so that NaN fails too.
        self.require(bool((np.abs(self.values) <= LARGEST).all()), f"finite numbers of at most {LARGEST:.0f}")


@dataclass(frozen=True)
class SoftLabels(SomeSoftLabels):
    """The same for every public sample."""

    def check(self, n_classes: int, public_size: int | None) -> None:
        super().check(n_classes, public_size)
        self.require(public_size in (None, len(self.values)), "as many rows as the public set has")


class SoftMean:
    """The mean of sites' soft labels, without keeping any of them.

    They are added up in fixed point, so that the mean is the same to the last bit in whatever order sites answer.
    """

    def __init__(self, samples: int, n_classes: int) -> None:
        self._sum = np.zeros((samples, n_classes), np.int64)
        self.parties = 0

    def add(self, release: SomeSoftLabels) -> bool:
        """Add one site's soft labels; False, and nothing is added, if they are for other samples."""
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
        raise ConfigError("The shares of an average must add up to more than 0.")
    first = next(iter(parts.values())).arrays
    mean = {name: np.empty(value.shape, np.float32) for name, value in first.items()}

    def put(name: str, start: int) -> None:
        """The mean of a few of them: what is added up stays where the processor has it at hand."""
        block = slice(start, start + _BLOCK)
        place = mean[name].reshape(-1)[block]
        total, weighed = np.zeros(place.shape, np.float64), np.empty(place.shape, np.float64)
        for party, part in parts.items():
            own = part.arrays[name].reshape(-1)[block]
            np.add(total, np.multiply(own, shares[party] / whole, out=weighed, dtype=np.float64), out=total)
        place[:] = total

    blocks = [(name, start) for name, value in mean.items() for start in range(0, value.size, _BLOCK)]
    if len(blocks) * len(parts) < _MANY:
        for each in blocks:
            put(*each)
    else:
        with ThreadPoolExecutor() as pool:
            list(pool.map(put, *zip(*blocks, strict=True)))
    return mean


def same_shapes(nets: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
    """An error that names two sites whose nets differ."""
    shapes = {party: shapes_of(net) for party, net in nets.items()}
    first, *others = shapes
    for other in others:
        if shapes[other] != shapes[first]:
            raise different_nets(first, other)


def different_nets(site: str, other: str) -> ConfigError:
    """The error for two sites whose nets cannot be averaged."""
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

    Noise makes some negative, and the net then answers NaN. Repairing noisy values costs no privacy.
    """
    return {
        name: np.maximum(value, np.float32(0)) if name.rpartition(".")[2] == "running_var" else value
        for name, value in arrays.items()
    }


def clip(arrays: Mapping[str, NDArray[Any]], bound: float) -> dict[str, NDArray[np.float64]]:
    """All arrays together scaled down to a Euclidean norm of at most `bound`; NaN and infinite values count as 0."""
    finite = {name: np.nan_to_num(value.astype(np.float64), posinf=0.0, neginf=0.0) for name, value in arrays.items()}
    norm = math.sqrt(sum(float(np.square(value).sum()) for value in finite.values()))
    scale = bound / norm if norm > bound else 1.0
    return {name: value * scale for name, value in finite.items()}


def with_noise(arrays: Mapping[str, NDArray[Any]], sigma: float, sensitivity: float, noise: Noise) -> Arrays:
    """Gaussian noise on every number; `sensitivity` is the L2 norm by which all together may change."""
    noisy = noise.add_normal(np.concatenate([value.ravel() for value in arrays.values()]), sigma, sensitivity)
    parts = np.split(noisy.astype(np.float32), np.cumsum([value.size for value in arrays.values()])[:-1])
    return {name: part.reshape(value.shape) for (name, value), part in zip(arrays.items(), parts, strict=True)}
