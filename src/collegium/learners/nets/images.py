"""FedAUX's and XCLP's nets, for 32x32 color images and small gray ones: as published, without their early poolings.

The first convolution and what follows it have stride 1 where the nets for 224x224 images have stride 2, so that a
32x32 or 28x28 image is 4x4 before the average pooling. All are ``nn.Sequential``, with the head as their last layer.

Parameters, with 10 classes:

| net | 3x32x32 | 1x28x28 | features |
| --- | --- | --- | --- |
| resnet8 | 4,903,242 | 4,902,090 | 512 |
| mobilenetv2 | 2,236,682 | 2,236,106 | 1280 |
| mobilenetv2_half | 587,946 | 587,370 | 640 |
| shufflenet | 940,858 | 940,426 | 800 |
| cnn13 | 3,121,812 | 3,119,508 | 128 |

FedAUX reports 19.79 MB for its ResNet-8 with 100 classes and 512 features: the 4,949,412 parameters of this one, which
has ten weight layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from collegium.errors import ConfigError
from collegium.learners.nets.layers import Block, Layers, convolved_and_normed, in_precision, is_block, is_quick

Shape = tuple[int, ...]
"""Of one row: (channels, height, width)."""


def resnet8(input_shape: Shape, n_classes: int) -> nn.Module:
    """He et al. (2016): one basic block of 64, 128, 256 and 512 channels each."""
    return ResNet(
        *_conv_norm(image_of(input_shape, smallest=8)[0], 64, 3),
        nn.ReLU(),
        ResidualBlock(64, 64, stride=1),
        ResidualBlock(64, 128, stride=2),
        ResidualBlock(128, 256, stride=2),
        ResidualBlock(256, 512, stride=2),
        *_head(512, n_classes),
    )


class ResNet(Layers):
    """A convolution, its batch norm and a ReLU before residual blocks and the head."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        # A part of it, or one whose layers were replaced, is what any sequence of layers is.
        if len(self) < 3 or not isinstance(self[2], nn.ReLU) or not _only_answers(input, self[1]):
            return super().forward(input)
        convolution, norm, _, *others = self
        x = in_precision(input)
        weight, bias, how = _folded(convolution, norm, x.dtype)
        if x.dtype == torch.bfloat16:  # whose fast convolutions take channels in eights, and last
            pad = (0, 0, 0, 0, 0, -x.shape[1] % 8)
            x, weight = (
                functional.pad(each, pad).contiguous(memory_format=torch.channels_last) for each in (x, weight)
            )
        x = torch.cudnn_convolution_relu(x, weight, bias, *how)
        for layer in others:
            x = layer(x)
        return x


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv_norm(inputs, outputs, 3, stride=stride), nn.ReLU(), *_conv_norm(outputs, outputs, 3)
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(inputs, outputs, 1, stride=stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _only_answers(x, self.body[1]):
            return self._answer(x)
        if is_quick(x) and self._can_learn:
            return self._learn(x)
        added: torch.Tensor = self.body(x) + self.shortcut(x)
        return added.relu()

    @property
    def _can_learn(self) -> bool:
        """Whether all its layers are as they were made, and learn."""
        short = [] if isinstance(self.shortcut, nn.Identity) else list(self.shortcut)
        body = list(self.body)
        pairs = [body[:2], body[3:], *([short] if short else [])]
        return len(body) == 5 and type(body[2]) is nn.ReLU and all(len(p) == 2 and is_block(*p) for p in pairs)

    def _learn(self, x: torch.Tensor) -> torch.Tensor:
        """The same on a GPU, for a net that learns: norms take the ReLU after them along, and what is added."""
        first, norm, _, second, last = self.body
        inner = convolved_and_normed(Block(first, norm, slope=0.0), x)
        added = x if isinstance(self.shortcut, nn.Identity) else convolved_and_normed(Block(*self.shortcut), x)
        return convolved_and_normed(Block(second, last, slope=0.0), inner, added)

    def _answer(self, x: torch.Tensor) -> torch.Tensor:
        """The same on a GPU, for a net that only answers: each convolution is one pass over the images.

        Batch norms are in its weights, and what is added, and the ReLU, come with it.
        """
        x = in_precision(x)
        weight, bias, how = _folded(self.body[0], self.body[1], x.dtype)
        inner = torch.cudnn_convolution_relu(x, weight, bias, *how)
        weight, bias, how = _folded(self.body[3], self.body[4], x.dtype)
        added = x
        if isinstance(self.shortcut, nn.Sequential):
            kernel, its_bias, its = _folded(self.shortcut[0], self.shortcut[1], x.dtype)
            added, bias = _shortcut(x, kernel, its), bias + its_bias
        return torch.cudnn_convolution_add_relu(inner, weight, added, 1.0, bias, *how)


_FEW = 64
"""Channels, up to which cuDNN changes the layout of an image and back for a 1x1 convolution with a stride."""


def _shortcut(x: torch.Tensor, weight: torch.Tensor, how: tuple[Any, ...]) -> torch.Tensor:
    """What a convolution says, which usually is of 1x1 pixels, with a stride."""
    stride, padding, *_ = how
    if x.shape[1] > _FEW or weight.shape[2:] != (1, 1) or padding != (0, 0):
        return functional.conv2d(x, weight, None, *how)
    looked_at = x[:, :, :: stride[0], :: stride[1]].contiguous(memory_format=torch.channels_last)
    return functional.conv2d(looked_at, weight, None, (1, 1), *how[1:])


def _only_answers(x: torch.Tensor, norm: nn.Module) -> bool:
    """Whether a net on a GPU only answers, with the running statistics of its batch norms."""
    answers = x.is_cuda and torch.is_inference_mode_enabled()
    return answers and isinstance(norm, nn.BatchNorm2d) and not norm.training


_Folded = tuple[torch.Tensor, torch.Tensor, tuple[Any, ...]]
_known: ContextVar[dict[tuple[nn.Module, torch.dtype], _Folded] | None] = ContextVar("folded", default=None)


@contextmanager
def answering() -> Iterator[None]:
    """A block in which nets that answer stay as they are: what they compute of their weights alone is computed once."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def _folded(convolution: Any, norm: Any, dtype: torch.dtype) -> _Folded:
    """Weights, bias and settings of a convolution that does what it and its batch norm do with running statistics."""
    known = _known.get()
    if known is None:
        return _fold(convolution, norm, dtype)
    if (norm, dtype) not in known:
        known[norm, dtype] = _fold(convolution, norm, dtype)
    return known[norm, dtype]


def _fold(convolution: Any, norm: Any, dtype: torch.dtype) -> _Folded:
    weight, bias = fuse_conv_bn_weights(
        convolution.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    how = convolution.stride, convolution.padding, convolution.dilation, convolution.groups
    return weight.to(dtype), bias.to(dtype), how


def mobilenetv2(input_shape: Shape, n_classes: int) -> nn.Module:
    """Sandler et al. (2018), Table 2."""
    return _mobilenet(input_shape, n_classes, channels=(16, 24, 32, 64, 96, 160, 320), features=1280)


def mobilenetv2_half(input_shape: Shape, n_classes: int) -> nn.Module:
    """MobileNetV2 with half the channels after the first convolution, as in FedAUX's public code."""
    return _mobilenet(input_shape, n_classes, channels=(8, 12, 16, 32, 48, 80, 160), features=640)


def _mobilenet(input_shape: Shape, n_classes: int, *, channels: Sequence[int], features: int) -> nn.Module:
    repeats, strides = (1, 2, 3, 4, 3, 3, 1), (1, 1, 2, 2, 1, 2, 1)
    blocks: list[nn.Module] = []
    inputs = 32
    for stage, (outputs, repeat, stride) in enumerate(zip(channels, repeats, strides, strict=True)):
        for place in range(repeat):
            expansion = 1 if stage == 0 else 6
            blocks.append(InvertedResidual(inputs, outputs, expansion, stride if place == 0 else 1))
            inputs = outputs
    return nn.Sequential(
        *_conv_norm(image_of(input_shape, smallest=8)[0], 32, 3),
        nn.ReLU6(),
        *blocks,
        *_conv_norm(inputs, features, 1),
        nn.ReLU6(),
        *_head(features, n_classes),
    )


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [] if expansion == 1 else [*_conv_norm(inputs, wide, 1), nn.ReLU6()]
        self.body = nn.Sequential(
            *widen,
            *_conv_norm(wide, wide, 3, stride=stride, groups=wide),
            nn.ReLU6(),
            *_conv_norm(wide, outputs, 1),
        )
        self._has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.body(x)
        return x + narrow if self._has_shortcut else narrow


def shufflenet(input_shape: Shape, n_classes: int) -> nn.Module:
    """Zhang et al. (2018), Table 1, with two groups: stages of 4, 8 and 4 units with 200, 400 and 800 channels."""
    blocks: list[nn.Module] = []
    inputs = 24
    for outputs, repeat in ((200, 4), (400, 8), (800, 4)):
        for _ in range(repeat):
            blocks.append(ShuffleUnit(inputs, outputs, groups_in=1 if inputs == 24 else 2))
            inputs = outputs
    return nn.Sequential(
        *_conv_norm(image_of(input_shape, smallest=8)[0], 24, 3), nn.ReLU(), *blocks, *_head(800, n_classes)
    )


class ShuffleUnit(nn.Module):
    """Grouped 1x1 convolutions with a channel shuffle between them; a unit that widens also halves the image."""

    def __init__(self, inputs: int, outputs: int, groups_in: int) -> None:
        super().__init__()
        self._widens = inputs != outputs
        middle, stride = outputs // 4, 2 if self._widens else 1
        self.body = nn.Sequential(
            *_conv_norm(inputs, middle, 1, groups=groups_in),
            nn.ReLU(),
            nn.ChannelShuffle(2),
            *_conv_norm(middle, middle, 3, stride=stride, groups=middle),
            *_conv_norm(middle, outputs - inputs if self._widens else outputs, 1, groups=2),
        )
        self.shortcut = nn.AvgPool2d(3, stride=2, padding=1) if self._widens else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body, shortcut = self.body(x), self.shortcut(x)
        joined: torch.Tensor = torch.cat([shortcut, body], dim=1) if self._widens else shortcut + body
        return joined.relu()


def cnn13(input_shape: Shape, n_classes: int) -> nn.Module:
    """The 13 layers of Tarvainen and Valpola (2017, Table 5), with features of length 1, as in XCLP's code.

    Dropout of .5 after both poolings, leaky ReLU of slope .1. Their convolutions have weight norm, too: the batch norm
    after each makes that redundant, and it is left out here.
    """
    channels = image_of(input_shape, smallest=9)[0]
    return Layers(
        *_leaky_block(channels, 128), *_leaky_block(128, 128), *_leaky_block(128, 128),
        nn.MaxPool2d(2, ceil_mode=True), nn.Dropout(0.5),
        *_leaky_block(128, 256), *_leaky_block(256, 256), *_leaky_block(256, 256),
        nn.MaxPool2d(2, ceil_mode=True), nn.Dropout(0.5),
        *_leaky_block(256, 512, padding=0), *_leaky_block(512, 256, size=1), *_leaky_block(256, 128, size=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), UnitLength(), WeightNormed(128, n_classes),
    )  # fmt: skip


def _leaky_block(inputs: int, outputs: int, *, size: int = 3, padding: int | None = None) -> list[nn.Module]:
    around = size // 2 if padding is None else padding
    convolution = nn.Conv2d(inputs, outputs, size, padding=around, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)]


class UnitLength(nn.Module):
    """Each row of features, scaled to length 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.normalize(x, dim=1)


class WeightNormed(nn.Linear):
    """A linear layer whose weights are directions of length 1, each times a scale that is learned beside it.

    Salimans and Kingma (2016). The scales begin as the lengths of the weights, so that the layer begins as a plain one.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.scale = nn.Parameter(self.weight.detach().norm(dim=1, keepdim=True))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.linear(input, self.scale * functional.normalize(self.weight, dim=1), self.bias)


def _conv_norm(inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the image's size (up to its stride), and batch norm, which makes a bias redundant."""
    return [
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


def _head(features: int, n_classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, n_classes)]


def image_of(input_shape: Shape, smallest: int) -> tuple[int, int, int]:
    """(channels, height, width), with sides long enough for the net's poolings."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"expected images, but a row has shape {input_shape}: pass image_shape=(channels, height, width)."
        )
    channels, height, width = input_shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"images must have at least {smallest}x{smallest} pixels, but image_shape=(channels, height, width) is "
            f"{input_shape}."
        )
    return channels, height, width
