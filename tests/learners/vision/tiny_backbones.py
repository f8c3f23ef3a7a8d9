"""Small random backbones in folders, made when a test first wants one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import collegium as cg

SIDE = 12


@cache
def tiny_backbone(seed: int = 0, channels: int = 1) -> str:
    """The folder of AIMHI's small net with random weights, for images of 12x12 pixels: 64 features."""
    place = Path(tempfile.mkdtemp(prefix="backbone"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shape = (channels, SIDE, SIDE)
    net = cg.TorchClassifier("cnn_aimhi", random_state=seed).initialize(np.zeros((0, *shape), np.float32), [0, 1])
    wider = {name: 3 * value for name, value in net.get_weights("features").items()}  # features that differ more
    return str(cg.save_backbone(place / f"tiny{seed}", "cnn_aimhi", wider, shape))
