"""Random views of rows, for which a net should predict the same class.

Images are shifted by up to an eighth of their side, and color images mirrored, as is usual for CIFAR-10; gray ones are
often digits or letters, which mirroring would change. A strong view of an image is SimCLR's. In rows of features, some
are swapped with those of another row of the batch (Bahri et al., "SCARF", ICLR 2022), which needs no scale. All numbers
are drawn from torch's generator, on the rows' device.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from collegium.learners.torch.images import Augmentation

_WEAK_SWAPS: Final = 0.1
_STRONG_SWAPS: Final = 0.4
_COLOUR: Final = 3
_IMAGES: Final = 4  # dimensions of a batch of them


def weak(X: torch.Tensor) -> torch.Tensor:
    """Views that clearly keep their class."""
    return _shifted(X) if X.ndim == _IMAGES else _swapped(X, _WEAK_SWAPS)


def strong(X: torch.Tensor) -> torch.Tensor:
    """Views that are hard to classify."""
    if X.ndim != _IMAGES:
        return _swapped(X, _STRONG_SWAPS)
    low, high = X.min(), X.max()
    scale = (high - low).clamp(min=torch.finfo(X.dtype).tiny)
    distort = Augmentation(smallest_crop=0.3, flip=X.shape[1] == _COLOUR)
    return distort((X - low) / scale) * scale + low


def _shifted(images: torch.Tensor) -> torch.Tensor:
    n, channels, height, width = images.shape
    reach = max(1, min(height, width) // 8)
    padded = functional.pad(images, (reach,) * 4, mode="reflect")
    rows = _places(n, height, reach, images.device)
    columns = _places(n, width, reach, images.device)
    if channels == _COLOUR:
        mirrored = torch.rand(n, 1, device=images.device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    picture = torch.arange(n, device=images.device)
    return padded.permute(0, 2, 3, 1)[picture[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _places(n: int, side: int, reach: int, device: torch.device) -> torch.Tensor:
    """Which rows or columns of each padded image are seen."""
    start = torch.randint(0, 2 * reach + 1, (n, 1), device=device)
    return start + torch.arange(side, device=device)


def _swapped(X: torch.Tensor, share: float) -> torch.Tensor:
    others = X[torch.randperm(len(X), device=X.device)]
    return torch.where(torch.rand_like(X) < share, others, X)
