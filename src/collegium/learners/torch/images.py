"""Unlabeled images in any common layout, and SimCLR's random views of them, made a batch at a time on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log, pi
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch.nn import functional

from collegium.core.settings import NonNegativeFloat, Probability, Settings, Share
from collegium.errors import ConfigError
from collegium.learners.torch.rows_on_gpu import MOST_VALUES

_COLOUR_OR_GREY = (1, 3)
# NTSC: brightness, and two axes of color. A hue is an angle in the plane of these two, a saturation a length.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@cache
def _yiq(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """It and its inverse: a GPU has them once."""
    matrix = _YIQ.to(dtype)
    return matrix.to(device), torch.linalg.inv(matrix).to(device)


class Images:
    """Images as (n, channels, height, width), without a copy, and the range of their values."""

    def __init__(self, X: Any, image_shape: Sequence[int] | None = None) -> None:
        self.values = channels_first(_array(X), image_shape)
        if len(self.values) < 2:
            raise ConfigError(f"Pre-training compares images with each other: {len(self.values)} are too few.")
        is_byte = self.values.dtype == np.uint8
        self.low, self.high = (0.0, 255.0) if is_byte else (float(self.values.min()), float(self.values.max()))
        if not np.isfinite([self.low, self.high]).all():
            raise ConfigError("The images contain NaN or infinite values: drop those images first.")
        if self.low == self.high:
            raise ConfigError("All pixels have the same value: there is nothing to learn.")
        self._there: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        _, channels, height, width = self.values.shape
        return channels, height, width

    def take(self, rows: NDArray[np.intp], device: torch.device) -> torch.Tensor:
        """These images, with values from 0 to 1."""
        if self._there is not None:
            return self._scaled(self._there[torch.from_numpy(rows).to(device)])
        return self._scaled(_copied(self.values[rows], device))

    def stay_on(self, device: torch.device) -> None:
        """Copy all images to a GPU, if they fit, so that batches need not be copied one by one."""
        if device.type == "cuda" and self.values.size <= MOST_VALUES:
            self._there = _copied(self.values, device)

    def _scaled(self, images: torch.Tensor) -> torch.Tensor:
        return (images.float() - self.low) / (self.high - self.low)

    def as_given(self, images: torch.Tensor) -> torch.Tensor:
        """Values from 0 to 1 scaled back to the range of the given images, as a classifier sees them."""
        return images * (self.high - self.low) + self.low


def _copied(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Bytes are copied as they are, which is a quarter of the traffic; everything else as float32."""
    kept = values if values.dtype == np.uint8 else values.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(kept)).to(device)


@dataclass(frozen=True)
class Augmentation(Settings):
    """SimCLR's random views (Chen et al. 2020, App. A), as tensor operations on a whole batch.

    Differs from the paper in two minor ways: colors are jittered in a fixed order, and hue is rotated in YIQ instead of
    HSV, which makes hue and saturation one matrix per image. Gray images only change in brightness and contrast.
    """

    smallest_crop: Share = 0.08
    """A crop covers from this share of the image up to all of it."""
    flip: bool = True
    """Whether to mirror half of the views. Turn it off for digits and letters."""
    jitter: NonNegativeFloat = 0.5
    """The strength of the color jitter: .5 for small images, 1 for ImageNet."""
    jitter_share: Probability = 0.8
    grey_share: Probability = 0.2
    """The share of color views that are turned gray."""
    blur_share: Probability = 0.0
    """The share of views that are blurred: 0 for small images, .5 for ImageNet."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """A random view of each image (n, channels, height, width), values from 0 to 1."""
        views = self._crop(images)
        if self.jitter > 0 and self.jitter_share > 0:
            views = _sometimes(self.jitter_share, self._jitter(views), views)
        if images.shape[1] == 3 and self.grey_share > 0:
            gray = (
                (views * _yiq(views.device, views.dtype)[0][0].view(1, 3, 1, 1))
                .sum(dim=1, keepdim=True)
                .expand_as(views)
            )
            views = _sometimes(self.grey_share, gray, views)
        if self.blur_share > 0:
            views = _sometimes(self.blur_share, _blur(views), views)
        return views

    def _crop(self, images: torch.Tensor) -> torch.Tensor:
        """A random crop of each image, with a random aspect ratio, resized to the whole; perhaps mirrored."""
        n = len(images)
        share = _uniform(images, self.smallest_crop, 1)
        # At most 4:3, and no wider or higher than the image.
        most = (-share.log()).clamp(max=log(4 / 3)) / 2
        stretch = (most * _uniform(images, -1, 1)).exp()
        width, height = share.sqrt() * stretch, share.sqrt() / stretch
        theta = torch.zeros(n, 2, 3, device=images.device)
        theta[:, 0, 0], theta[:, 1, 1] = width, height
        theta[:, 0, 2] = _uniform(images, -1, 1) * (1 - width)
        theta[:, 1, 2] = _uniform(images, -1, 1) * (1 - height)
        if self.flip:
            theta[:, 0, 0] *= _uniform(images, -1, 1).sign()
        grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
        return functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def _jitter(self, images: torch.Tensor) -> torch.Tensor:
        most = 0.8 * self.jitter
        brightness, contrast = (_uniform(images, max(0.0, 1 - most), 1 + most).view(-1, 1, 1, 1) for _ in range(2))
        views = (images * brightness).clamp(0, 1)
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        views = (mean + (views - mean) * contrast).clamp(0, 1)
        return self._recolour(views) if images.shape[1] == 3 else views

    def _recolour(self, images: torch.Tensor) -> torch.Tensor:
        """Saturation and hue: colors in YIQ scaled and rotated around gray, as one 3x3 matrix per image."""
        most = 0.8 * self.jitter
        saturation = _uniform(images, max(0.0, 1 - most), 1 + most)
        angle = 2 * pi * _uniform(images, -0.2 * self.jitter, 0.2 * self.jitter)
        turn = torch.zeros(len(images), 3, 3, device=images.device)
        turn[:, 0, 0] = 1
        turn[:, 1, 1] = turn[:, 2, 2] = saturation * angle.cos()
        turn[:, 1, 2], turn[:, 2, 1] = -saturation * angle.sin(), saturation * angle.sin()
        to_yiq, back = _yiq(images.device, images.dtype)
        recolor = back @ turn @ to_yiq
        return torch.einsum("nij,njhw->nihw", recolor, images).clamp(0, 1)


def _sometimes(share: float, changed: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """The changed images in this share of cases, else the originals."""
    return torch.where(_uniform(images, 0, 1).view(-1, 1, 1, 1) < share, changed, images)


def _blur(images: torch.Tensor) -> torch.Tensor:
    """Gaussian blur with a kernel of a tenth of the image's side and a width between .1 and 2 pixels per image."""
    n, channels, height, width = images.shape
    reach = max(1, min(height, width) // 20)
    offsets = torch.arange(-reach, reach + 1, device=images.device)
    kernel = torch.exp(-0.5 * (offsets / _uniform(images, 0.1, 2).view(-1, 1)) ** 2)
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)
    # Each channel of each image is a channel of one big image, with its own kernel.
    flat = functional.pad(images, (reach,) * 4, mode="reflect").reshape(1, n * channels, height + 2 * reach, -1)
    flat = functional.conv2d(flat, kernel.view(n * channels, 1, 1, -1), groups=n * channels)
    flat = functional.conv2d(flat, kernel.view(n * channels, 1, -1, 1), groups=n * channels)
    return flat.view(n, channels, height, width)


def _uniform(images: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """One random number per image."""
    return torch.empty(len(images), device=images.device).uniform_(low, high)


def _array(X: Any) -> NDArray[Any]:
    if sparse.issparse(X):
        raise ConfigError("Images are arrays, not sparse matrices: use X.toarray().")
    values = np.asarray(X)
    if values.dtype.kind not in "uif":
        raise ConfigError(f"Images must be numeric, but these have dtype {values.dtype}.")
    return values


def channels_first(values: NDArray[Any], image_shape: Sequence[int] | None) -> NDArray[Any]:
    """(n, channels, height, width), from that, (n, height, width[, channels]), or flat rows of a known shape."""
    if values.ndim == 2:
        if image_shape is None or len(image_shape) != 3 or values.shape[1] != np.prod(image_shape):
            raise ConfigError(
                f"Rows of {values.shape[1]} values have no known image shape: give the learner an "
                "image_shape=(channels, height, width)."
            )
        return values.reshape(len(values), *image_shape)
    if values.ndim == 3:
        return values[:, None]
    if values.ndim == 4 and values.shape[1] in _COLOUR_OR_GREY:
        return values
    if values.ndim == 4 and values.shape[3] in _COLOUR_OR_GREY:
        return values.transpose(0, 3, 1, 2)
    raise ConfigError(
        "Images must have shape (n, channels, height, width) or (n, height, width, channels) with 1 or 3 channels, "
        f"not {values.shape}."
    )
