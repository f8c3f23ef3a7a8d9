"""Images of any common layout and type, as float32 from 0 to 1, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse

from collegium.errors import ConfigError
from collegium.learners.torch.batches import CHUNK_ROWS, CHUNK_VALUES, Floats, Rows
from collegium.learners.torch.hands import Indices
from collegium.learners.torch.images import channels_first

_BYTE: Final = 255
_SLACK: Final = 0.05
"""By so much may numbers lie beyond 0 and 1: resizing an image overshoots at its edges."""
_FLAT, _GREY = 2, 3  # dimensions


class Pictures:
    """The images in X, which is not copied; grey or in color, with the channels first or last, of bytes or numbers."""

    def __init__(self, X: Any, image_shape: Sequence[int] | None = None, *, name: str = "X") -> None:
        self.given = X
        self._name = name
        self.values = _layout(X, image_shape, name)
        self._are_counts = self.values.dtype.kind in "iu"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        _, channels, height, width = self.values.shape
        return channels, height, width

    def raw(self, row: int) -> bytes:
        """The values of an image as they are given, in the same order for every layout."""
        return np.ascontiguousarray(self.values[row]).tobytes()

    @property
    def kind(self) -> str:
        """Tells apart images whose values would be the same bytes."""
        return f"{self.shape} {self.values.dtype}"

    def take(self, rows: Indices | slice) -> Floats:
        """These images with values from 0 to 1; others are refused."""
        values: Floats = np.array(self.values[rows], dtype=np.float32, order="C")
        if values.size == 0:
            return values
        low, high = values.min(), values.max()  # NaN if one is
        if not np.isfinite([low, high]).all():
            raise ConfigError(f"{self._name} contains images with NaN or infinite pixels: drop those images first.")
        if self._are_counts:
            if low < 0 or high > _BYTE:
                raise ConfigError(
                    f"{self._name} contains pixels from {low:g} to {high:g}. Whole numbers must be bytes, 0 to 255: "
                    "divide others, such as those of 12-bit scans, by their largest possible value."
                )
            return values / np.float32(_BYTE)
        if low < -_SLACK or high > 1 + _SLACK:
            raise ConfigError(
                f"{self._name} contains pixels from {low:g} to {high:g}. Pass numbers from 0 to 1, or bytes (uint8): a "
                "backbone scales images as it was trained to. In a study, leave `standardize` out."
            )
        return values


class PictureRows(Rows):
    """The same as rows of a net that takes images from 0 to 1."""

    def __init__(self, pictures: Pictures, *, at_once: int, name: str = "X") -> None:
        """`at_once` are computed at a time: a backbone makes much more of an image than that has values."""
        super().__init__(pictures.values, name=name)
        self._pictures, self._at_once = pictures, at_once

    def chunks(self, most: int = CHUNK_ROWS, most_values: int = CHUNK_VALUES) -> Iterator[slice]:
        return super().chunks(min(most, self._at_once), most_values)

    def take(self, rows: Indices | slice) -> Floats:
        return self._pictures.take(rows)

    @property
    def can_stay(self) -> bool:
        """Whether a GPU may keep a copy of the very array that was given: it is as the net takes it."""
        values = self._pictures.values
        return values is self._pictures.given and values.dtype.kind == "f" and super().can_stay


class FeatureRows(Rows):
    """Features of images as rows; `given_shape` is that of the images."""

    def __init__(self, features: NDArray[np.float32], pictures: Pictures, *, name: str = "X") -> None:
        super().__init__(features, name=name)
        self._pictures_shape = pictures.shape

    @property
    def given_shape(self) -> tuple[int, ...]:
        return self._pictures_shape


def looks_like_one_image(X: Any, shape: tuple[int, ...]) -> bool:
    """Whether X is a single image without the dimension of rows."""
    return np.shape(X) in (shape, shape[1:], (*shape[1:], shape[0]))


def as_tensor(pictures: Pictures, rows: Indices | slice, device: torch.device) -> torch.Tensor:
    """These images on a device, in the layout in which convolutions are fastest."""
    there = torch.from_numpy(pictures.take(rows)).to(device)
    return there.contiguous(memory_format=torch.channels_last)


def _layout(X: Any, image_shape: Sequence[int] | None, name: str) -> NDArray[Any]:
    if sparse.issparse(X):
        raise ConfigError(f"{name} is a sparse matrix, and images are arrays: use X.toarray().")
    values = X.to_numpy() if isinstance(X, pd.DataFrame) else np.asarray(X)
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{name} must contain pixels, which are numbers, but has dtype {values.dtype}.")
    if 0 in values.shape[1:]:
        raise ConfigError(f"{name} has images without pixels: its shape is {values.shape}.")
    if values.ndim < _FLAT:
        raise ConfigError(f"{name} must hold images, (rows, channels, height, width), but its shape is {values.shape}.")
    if image_shape is not None and values.ndim == _GREY and tuple(image_shape) != (1, *values.shape[1:]):
        raise ConfigError(
            f"{name} has shape {values.shape}, which does not fit image_shape={tuple(image_shape)}. A single image "
            "needs a dimension of rows: X[None]."
        )
    return channels_first(values, image_shape)
