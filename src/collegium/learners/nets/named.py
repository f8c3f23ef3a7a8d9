"""The papers' networks, by name.

Each takes the shape of one row, ``(features,)`` or ``(channels, height, width)``, and the number of classes, and builds
an ``nn.Module`` that returns logits. "FedCT" is the paper "Little is Enough", whose Tables 12 to 16 list the layers.

What the tables leave open, or misprint:

- The size of the last layer follows from the input shape. Tables 14 and 15 print 4,194,306 and 2,636,034 parameters
  for it, which agrees neither with their own Flatten rows nor with the image sizes of the text.
- A 3x3 convolution from 32 to 64 channels has 18,496 parameters, as Table 12 says; Tables 14 to 16 print 18,464.
- Tables 14 to 16 name no activations. ReLU follows each batch norm in the nets of Tables 14 and 15, and each
  convolution and the hidden layer in that of Table 16.
- No table lists dropout rates; each function documents the ones it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from pathlib import Path
from typing import Final, Literal

from torch import nn

from collegium.core.settings import checked
from collegium.errors import ConfigError
from collegium.learners.nets import efficientnet, images
from collegium.learners.nets.images import UnitLength, WeightNormed, image_of
from collegium.learners.nets.layers import Layers
from collegium.registry import nearest

NetFunction = Callable[[tuple[int, ...], int], nn.Module]


def logistic(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Logistic regression: one linear layer on the flattened row."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), n_classes))


def mlp(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """FedCT Tab. 13 (FashionMNIST): two hidden layers of 512 on the flattened row."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(input_shape), 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, n_classes),
    )


def cnn_cifar10(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """FedCT Tab. 12 (CIFAR10): batch norm after the ReLU of every layer.

    The table gives no dropout rates: we use .2, .3 and .4 after the three blocks and .5 before the last layer.
    """
    channels, height, width = image_of(input_shape, smallest=8)
    return Layers(
        *_cifar10_block(channels, 32, dropout=0.2),
        *_cifar10_block(32, 64, dropout=0.3),
        *_cifar10_block(64, 128, dropout=0.4),
        nn.Flatten(),
        nn.Linear(128 * (height // 8) * (width // 8), 128),
        nn.ReLU(),
        nn.BatchNorm1d(128),
        nn.Dropout(0.5),
        nn.Linear(128, n_classes),
    )


def _cifar10_block(inputs: int, outputs: int, *, dropout: float) -> list[nn.Module]:
    return [
        _conv(inputs, outputs),
        nn.ReLU(),
        nn.BatchNorm2d(outputs),
        _conv(outputs, outputs),
        nn.ReLU(),
        nn.BatchNorm2d(outputs),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
    ]


def cnn_pneumonia(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """FedCT Tab. 14 (Pneumonia) and Tab. 15 (MRI): the same layers, the last one sized by the input."""
    channels, height, width = image_of(input_shape, smallest=4)
    return Layers(
        _conv(channels, 32),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        _conv(32, 64),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _conv(64, 64),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), n_classes),
    )


def cnn_svhn(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """FedCT Tab. 16 (SVHN). The table gives no dropout rates: .3 after each block and .4 before the last layer."""
    channels, height, width = image_of(input_shape, smallest=8)
    return Layers(
        *_svhn_block(channels, 32),
        *_svhn_block(32, 64),
        *_svhn_block(64, 128),
        nn.Flatten(),
        nn.Linear(128 * (height // 8) * (width // 8), 128),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(128, n_classes),
    )


def _svhn_block(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        _conv(inputs, outputs),
        nn.ReLU(),
        nn.BatchNorm2d(outputs),
        _conv(outputs, outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.3),
    ]


def cnn_aimhi(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """AIMHI Tab. 1 (CIFAR10): two convolutions without padding, as in Keras, and a hidden layer of 64."""
    channels, height, width = image_of(input_shape, smallest=10)
    rows, columns = (((side - 2) // 2 - 2) // 2 for side in (height, width))
    return nn.Sequential(
        *_unpadded_block(channels, 32, 3),
        *_unpadded_block(32, 64, 3),
        nn.Flatten(),
        nn.Linear(64 * rows * columns, 64),
        nn.ReLU(),
        nn.Linear(64, n_classes),
    )


def cnn_normed(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """AIMHI's net with features of length 1 before a weight-normed head, as in XCLP's code."""
    *features, _ = cnn_aimhi(input_shape, n_classes).children()
    return nn.Sequential(*features, UnitLength(), WeightNormed(64, n_classes))


def lenet(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """FedKT's net for MNIST (Sec. 5): two convolutions of 5x5 with pooling, two hidden layers, as in LeNet-5."""
    channels, height, width = image_of(input_shape, smallest=16)
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        *_unpadded_block(channels, 6, 5),
        *_unpadded_block(6, 16, 5),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, n_classes),
    )


def _unpadded_block(inputs: int, outputs: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size), nn.ReLU(), nn.MaxPool2d(2)]


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)


NETS: Final[dict[str, NetFunction]] = {
    "linear": logistic,
    "mlp": mlp,
    "cnn_cifar10": cnn_cifar10,
    "cnn_pneumonia": cnn_pneumonia,
    "cnn_mri": cnn_pneumonia,
    "cnn_svhn": cnn_svhn,
    "cnn_aimhi": cnn_aimhi,
    "cnn_normed": cnn_normed,
    "cnn13": images.cnn13,
    "lenet": lenet,
    "resnet8": images.resnet8,
    "mobilenetv2": images.mobilenetv2,
    "mobilenetv2_half": images.mobilenetv2_half,
    "shufflenet": images.shufflenet,
    "efficientnet_lite0": efficientnet.efficientnet_lite0,
}


@checked
def build(
    name: str, input_shape: Sequence[int], n_classes: int, norm: Literal["batch", "group"] = "batch"
) -> nn.Module:
    """The net called `name`, with weights drawn from torch's generator and "batch" or "group" norm."""
    if name not in NETS:
        elsewhere = " For a pre-trained net, by its folder or timm's name, use cg.VisionClassifier."
        raise ConfigError(
            f"There is no net {name!r}.{nearest(name, NETS)} Known: {', '.join(sorted(NETS))}."
            f"{elsewhere if _is_place(name) else ''}"
        )
    try:
        net = NETS[name](tuple(input_shape), n_classes)
    except ConfigError as misfit:
        raise ConfigError(f"Net {name!r}: {misfit}") from None
    if norm == "group":
        use_group_norm(net)
    return net


def _is_place(name: str) -> bool:
    return any(mark in name for mark in (":", "/", "\\")) or Path(name).is_dir()


def use_group_norm(net: nn.Module) -> None:
    """Replace every batch norm by group norm, with 8 groups or as many as the number of channels allows."""
    for name, layer in list(net.named_children()):
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(net, name, nn.GroupNorm(gcd(8, layer.num_features), layer.num_features))
        else:
            use_group_norm(layer)
