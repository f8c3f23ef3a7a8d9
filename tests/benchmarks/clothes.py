"""Images that tell their class by how bright they are, and a folder of them that looks like Fashion-MNIST."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def images(n: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    y = np.arange(n) % 10
    noise = rng.integers(0, 60, (n, *shape))
    return (noise + 19 * y.reshape(-1, *[1] * len(shape))).astype(np.uint8), y.astype(np.uint8)


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return gzip.compress(header + values.tobytes(), 1)


def write_clothes(folder: Path) -> None:
    """A Fashion-MNIST of 400 images."""
    place = folder / "fashion_mnist"
    place.mkdir()
    for part, n in (("train", 300), ("t10k", 100)):
        X, y = images(n, 28, 28)
        (place / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(X))
        (place / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(y))
