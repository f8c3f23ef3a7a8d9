"""The CNN of the FedKT paper for MNIST: two convolutions with pooling, two hidden layers."""

from __future__ import annotations

from torch import nn


def lenet(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """For images of 28 x 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, n_classes),
    )
