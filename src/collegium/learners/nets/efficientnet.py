"""EfficientNet-Lite0, an ImageNet net that is small enough for a CPU.

Tan and Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019, Table 1, in the form
of TensorFlow's "EfficientNet-Lite" (2020): without squeeze-and-excitation, with ReLU6 instead of Swish, and with a
first and a last convolution that are the same in all sizes. Its 3,371,008 parameters before the head give 1,280
features.

Convolutions with stride 2 are padded as TensorFlow pads them, which published weights were trained with: where an odd
number of pixels is to be added, the last side gets one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from collegium.learners.nets.images import Shape, image_of

FEATURES: Final = 1280
# Of each stage: blocks, kernel, stride of the first block, expansion, channels.
_STAGES: Final[Sequence[tuple[int, int, int, int, int]]] = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def efficientnet_lite0(input_shape: Shape, n_classes: int) -> nn.Module:
    """EfficientNet-Lite0 for images of at least 32x32 pixels; it was made for 224x224."""
    return EfficientNetLite0(image_of(input_shape, smallest=32)[0], n_classes)


class EfficientNetLite0(nn.Module):
    """The net; `stem`, `blocks` and `top` make the features, `head` the logits."""

    def __init__(self, channels: int, n_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv_norm(channels, 32, 3, stride=2), nn.ReLU6())
        blocks: list[nn.Module] = []
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in _STAGES:
            for place in range(repeats):
                blocks.append(Block(inputs, outputs, kernel, stride if place == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.top = nn.Sequential(*_conv_norm(inputs, FEATURES, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(FEATURES, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.top(self.blocks(self.stem(x))))
        return logits


class Block(nn.Module):
    """Widen, filter each channel, narrow; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.widen = nn.Identity() if expansion == 1 else nn.Sequential(*_conv_norm(inputs, wide, 1), nn.ReLU6())
        self.filter = nn.Sequential(*_conv_norm(wide, wide, kernel, stride=stride, groups=wide), nn.ReLU6())
        self.narrow = nn.Sequential(*_conv_norm(wide, outputs, 1))
        self._has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.narrow(self.filter(self.widen(x)))
        return x + narrow if self._has_shortcut else narrow


class PaddedLast(nn.Conv2d):
    """A convolution with stride 2 that keeps half of the pixels, rounded up; what is odd is padded at the last side."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        (height, width), (stride, _), (kernel, _) = input.shape[-2:], self.stride, self.kernel_size
        rows, columns = (max(0, (-(-side // stride) - 1) * stride + kernel - side) for side in (height, width))
        around = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        return super().forward(functional.pad(input, around))


def _conv_norm(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    if stride == 1:
        return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False), norm]
    return [PaddedLast(inputs, outputs, kernel, stride=stride, groups=groups, bias=False), norm]
